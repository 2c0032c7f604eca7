"""Compare our `ssgd` with torch's DistributedDataParallel: same model, network, buckets and channels.

    python benchmarks/ddp_ratio.py            prints every pair and the median ratio; exits 1 above the limit

Two workers in separate namespaces train a 22 MB multilayer perceptron over the `lan` profile, alternately with our
engine and with DDP. The payload scale is 1, because gloo's segments depend on the message size. The result is a ratio
of speeds that were measured in one run.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import FileStore

from wanbench.harness.emulators.emulator import RelayEmulator
from wanbench.harness.emulators.plan import build, worker_address
from wanbench.netprofiles import load, place
from wanbench.workloads.algorithms.base import Replica
from wanbench.workloads.algorithms.ssgd import SSGD
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.comm.gloo import GlooComm
from wanbench.workloads.comm.meter import MeteredComm
from wanbench.workloads.compute.optim import SGD, SGDConfig
from wanbench.workloads.process import namespace, tun
from wanbench.workloads.process.control import Channel
from wanbench.workloads.registry import make_task

WORKERS, PAIRS, STEPS, WARM_STEPS = 2, 5, 12, 3
BUCKET_MB, CHANNELS, LIMIT = 5, 1, 1.10
WIDTH = 1300
BATCH = 16


def make(rank: int, world_size: int, seed: int, batch_size: int) -> Any:
    """Return a perceptron of 5.5 M parameters and random data: the workload `model = "benchmarks.ddp_ratio:make"`."""
    layers: list[torch.nn.Module] = []
    for width in (784, WIDTH, WIDTH, WIDTH):
        layers += [torch.nn.Linear(width, WIDTH), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10))
    generator = torch.Generator().manual_seed(rank)
    batch = (torch.randn(batch_size, 784, generator=generator), torch.randint(10, (batch_size,), generator=generator))
    return module, [batch], torch.nn.functional.cross_entropy


def timed(step: Callable[[int], None]) -> float:
    """Return the seconds per step, after a few warm-up steps."""
    for index in range(WARM_STEPS):
        step(index)
    begin = time.monotonic()
    for index in range(STEPS):
        step(WARM_STEPS + index)
    return (time.monotonic() - begin) / STEPS


def ours(rank: int, store_path: str) -> float:
    """Measure `ssgd` on the gloo collective once."""
    store = FileStore(store_path, WORKERS)
    comm = GlooComm(store, rank, WORKERS, interface="wan0", channels=CHANNELS, timeout_s=120)
    clock = MonotonicClock()
    spec = {"model": "benchmarks.ddp_ratio:make", "step_time": "real"}
    task = make_task(spec, rank, WORKERS, 1, clock, BUCKET_MB << 20, train={"batch_size": BATCH})
    optimizer = SGD(SGDConfig(lr=0.01, momentum=0.9))
    algorithm = SSGD()
    replica = Replica(task.w, task.w.clone().zero_(), optimizer, MeteredComm(comm, clock))
    algorithm.start(replica)

    def step(index: int) -> None:
        replica.step = index
        optimizer.advance(index)
        gradient, _ = task.gradient(index, algorithm.bucket)
        optimizer.step(replica.w, replica.m, algorithm.gradient(gradient))
        algorithm.stepped()

    seconds = timed(step)
    comm.close()
    return seconds


def ddp(rank: int, store_path: str) -> float:
    """Measure DistributedDataParallel with torch.optim.SGD once."""
    os.environ["GLOO_SOCKET_IFNAME"] = ",".join(["wan0"] * CHANNELS)
    store = FileStore(store_path, WORKERS)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=WORKERS)
    # The group must outlive the model. If DDP's reducer is its last owner, it joins gloo's threads while it holds the
    # interpreter's lock, and they can be waiting for that lock (seen with torch 2.13).
    seconds = _ddp_steps(rank)
    torch.distributed.destroy_process_group()
    return seconds


def _ddp_steps(rank: int) -> float:
    torch.manual_seed(1)
    module, batches, loss_of = make(rank, WORKERS, 1, BATCH)
    model = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs, targets = batches[0]

    def step(index: int) -> None:
        optimizer.zero_grad(set_to_none=False)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        float(loss.detach())
        optimizer.step()

    return timed(step)


def worker(rank: int, sock: socket.socket, parent: int) -> None:
    """Set up the namespace, then measure on request."""
    namespace.die_with_parent(parent)
    namespace.enter_private_network()
    device = tun.open_tun("wan0", worker_address(rank))
    namespace.set_tcp({"congestion": "reno", "slow_start_after_idle": False})
    torch.set_num_threads(1)
    channel = Channel(sock)
    channel.send({"rank": rank}, fds=[device])
    while (message := channel.recv()) is not None:
        measure = {"ssgd": ours, "ddp": ddp}[message["what"]]
        channel.send({"seconds": measure(rank, message["store"])})


def fork_workers() -> list[Channel]:
    """Fork one process per rank, before torch has run anything in this one."""
    channels, parent = [], os.getpid()
    for rank in range(WORKERS):
        mine, theirs = socket.socketpair()
        if os.fork() == 0:
            mine.close()
            try:
                worker(rank, theirs, parent)
            finally:
                os._exit(0)
        theirs.close()
        channels.append(Channel(mine))
    return channels


def main() -> int:
    """Measure alternately, print every pair, and return the exit code."""
    channels = fork_workers()
    profile = load("lan")
    with closing(RelayEmulator()) as relay, tempfile.TemporaryDirectory() as folder:
        for rank, channel in enumerate(channels):
            channel.recv()
            relay.attach(rank, channel.take_fd())
        relay.apply(build(profile, place(profile, WORKERS, "blocked")))
        ratios = []
        for pair in range(PAIRS):
            seconds = {}
            for what in ("ssgd", "ddp") if pair % 2 == 0 else ("ddp", "ssgd"):
                store = str(Path(folder) / f"{what}-{pair}")
                for channel in channels:
                    channel.send({"what": what, "store": store})
                answers = [channel.recv() for channel in channels]
                seconds[what] = max(float(answer["seconds"]) for answer in answers if answer)
            ratios.append(seconds["ssgd"] / seconds["ddp"])
            print(
                f"pair {pair}: ssgd {seconds['ssgd']:.3f}, ddp {seconds['ddp']:.3f} s per step, ratio {ratios[-1]:.3f}"
            )
    for channel in channels:
        channel.close()
    median = statistics.median(ratios)
    print(
        f"median ratio {median:.3f} (limit {LIMIT:.2f}; {WORKERS} workers, lan, {BUCKET_MB} MiB buckets, "
        f"{CHANNELS} channel, emulated by relay)"
    )
    return int(median > LIMIT)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
