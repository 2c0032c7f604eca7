"""Ranks in processes of their own, of which one can be killed or stopped during an operation."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

import torch
from collectives import COLLECTIVES, NUMEL

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.loop.job import Job
from wanbench.workloads.process.training import join

# At this rate an operation of the victim takes four to eight seconds, much longer than until a busy host stops it; the
# others are as fast as they can.
_VICTIMS_BYTES_PER_S = 1e5
_UNPACED_SEGMENTS = 12  # the kernel paces a connection after its first ten, which on loopback can have 64 KB each
_ANSWER_S = 60.0
_JOB = Job(0, 1, 0, {}, {}, "ssgd", {}, "direct", 1, 0, 1, 0, 1, 0, 0, 0, 0, timeout_s=30.0, rendezvous="")


@dataclass(frozen=True)
class Outcome:
    """What a rank met.

    Attributes:
        error: of its operation; empty if it succeeded.
        seconds: from the begin to the end of the operation.
        left: threads, descriptors and children that it has after closing, and did not have before.
    """

    error: str
    seconds: float
    left: list[str]


def _resources() -> set[str]:
    descriptors = {f"{fd}: {os.readlink(f'/proc/self/fd/{fd}')}" for fd in os.listdir("/proc/self/fd") if _exists(fd)}
    return descriptors | {f"thread {thread.name}" for thread in threading.enumerate()}


def _exists(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def _run(rank: int, collective: str, rendezvous: str, limit_s: float, pipe: Connection) -> None:
    torch.set_num_threads(1)
    what, before = COLLECTIVES[collective], _resources()
    size = len(what.site_of)
    job = replace(_JOB, rank=rank, world_size=size, site_of=what.site_of, collective=what.name, rendezvous=rendezvous)
    job = replace(job, ring=tuple(range(size)))
    if rank == what.victim:
        job = replace(job, paces=[(_VICTIMS_BYTES_PER_S, _VICTIMS_BYTES_PER_S)] * size)
    comm: Any = join(replace(job, one_shot_bytes=what.one_shot_bytes), "127.0.0.1", "lo")
    for _ in range(_UNPACED_SEGMENTS):
        for work in what.begin(comm, torch.ones(2 * size)):
            work.wait()
    comm.timeout_s = limit_s
    pipe.send("ready")
    while pipe.recv() == "go":  # nobody leaves before all have met their end
        began, error = time.monotonic(), ""
        try:
            for work in what.begin(comm, torch.ones(NUMEL)):
                work.wait()
        except CommError as failed:
            error = str(failed)
        seconds = time.monotonic() - began
        pipe.send(error)
    comm.close()
    pipe.send(Outcome(error, seconds, sorted(_resources() - before)))


class Ranks:
    """The processes of one operation."""

    def __init__(self, collective: str, rendezvous: str, limit_s: float) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["pytest", "torch", "collectives", "failing_ranks"])
        self.processes: list[ForkServerProcess] = []
        self._pipes: list[Connection] = []
        for rank in range(len(COLLECTIVES[collective].site_of)):
            here, there = self._context.Pipe()
            arguments = (rank, collective, rendezvous, limit_s, there)
            process = self._context.Process(target=_run, args=arguments, daemon=True)
            process.start()
            there.close()
            self.processes.append(process)
            self._pipes.append(here)

    def say(self, ranks: list[int], word: str) -> None:
        """Let ranks go on."""
        for rank in ranks:
            self._pipes[rank].send(word)

    def hear(self, ranks: list[int]) -> list[Any]:
        """What each of these ranks says next."""
        assert all(self._pipes[rank].poll(_ANSWER_S) for rank in ranks), "a rank hangs"
        return [self._pipes[rank].recv() for rank in ranks]

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Kill, stop or continue a rank."""
        pid = self.processes[rank].pid
        assert pid is not None
        os.kill(pid, number)

    def close(self) -> None:
        """End what is left of them."""
        for process, pipe in zip(self.processes, self._pipes, strict=True):
            process.kill()
            process.join()
            process.close()
            pipe.close()


@contextmanager
def ranks(collective: str, rendezvous: str, limit_s: float) -> Iterator[Ranks]:
    """Yield ranks that are connected, and begin when they are told to."""
    made = Ranks(collective, rendezvous, limit_s)
    try:
        made.hear(list(range(len(made.processes))))
        yield made
    finally:
        made.close()
