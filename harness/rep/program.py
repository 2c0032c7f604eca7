"""Runs a program of the user's on an emulated network: as torchrun would start it."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.plan import DEVICE, worker_address
from wanbench.harness.testbeds.base import EmulatedSlot, WorkerDied, WorkerHandle
from wanbench.harness.testbeds.player import Player
from wanbench.harness.timeline.kill import Programs
from wanbench.harness.timeline.schedule import Schedule

RENDEZVOUS_PORT = 29500
_POLL_S = 0.1
_GRACE_S = 10.0
# Its user has neither a home there nor a name, which libraries ask for.
_OF_A_CONTAINER = {"HOME": "/tmp", "LOGNAME": "worker"}


@dataclass(frozen=True)
class Program:
    """What to run, and where.

    Attributes:
        argv: the command; `{rank}` and so on are not replaced, the environment says who a process is.
        sites: the site of each worker. processes: for each worker. cwd: working folder of all.
        contained: it meets an image's files and environment instead of this process's.
        gpus: of each worker, as `Group` has them.
        schedule: what changes, from the moment at which the processes are started; None: nothing does.
        environment: beside what torchrun would set.
        steps: where each process tells its steps, `<steps>-<rank>`; None: nobody asks. hook: see `loop.stepping`.
    """

    argv: tuple[str, ...]
    sites: tuple[str, ...]
    processes: int
    cwd: Path
    contained: bool = False
    gpus: tuple[str, ...] = ()
    schedule: Schedule | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: Path | None = None
    hook: bool = False

    @property
    def workers(self) -> int:
        """How many workers."""
        return len(self.sites)

    def ranks(self) -> range:
        """Of all processes."""
        return range(self.workers * self.processes)

    def steps_file(self, rank: int) -> Path:
        """Where a process tells its steps."""
        return Path(f"{self.steps}-{rank}")

    def process(self, worker: int, local: int, run_id: str) -> dict[str, Any]:
        """One process, as `workloads.process.program` takes it."""
        wanted = {"argv": self.argv, "env": self.environment_of(worker, local, run_id)}
        if self.steps is None:
            return wanted
        rank = worker * self.processes + local
        return wanted | {"steps": str(self.steps_file(rank)), "hook": self.hook}

    def environment_of(self, worker: int, local: int, run_id: str) -> dict[str, str]:
        """What torchrun would put into the environment of a process, and where it is on the emulated network.

        On this host it comes with this process's environment, in a container it is added to the image's.
        """
        addresses = [worker_address(rank) for rank in range(self.workers)]
        return {
            **(_OF_A_CONTAINER if self.contained else os.environ),
            **self._visible_gpus(worker),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(RENDEZVOUS_PORT),
            "RANK": str(worker * self.processes + local),
            "LOCAL_RANK": str(local),
            "GROUP_RANK": str(worker),
            "ROLE_RANK": str(worker * self.processes + local),
            "ROLE_NAME": "default",
            "WORLD_SIZE": str(self.workers * self.processes),
            "LOCAL_WORLD_SIZE": str(self.processes),
            "GROUP_WORLD_SIZE": str(self.workers),
            "ROLE_WORLD_SIZE": str(self.workers * self.processes),
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": str(self.schedule.restarts()[worker] if self.schedule else 0),
            "TORCHELASTIC_RUN_ID": run_id,
            "GLOO_SOCKET_IFNAME": DEVICE,
            "NCCL_SOCKET_IFNAME": DEVICE,
            # Else ranks would find each other on one host, and talk through its memory.
            "NCCL_HOSTID": f"{run_id}-{worker}",
            "NCCL_NET": "Socket",
            "TP_SOCKET_IFNAME": DEVICE,
            "WANBENCH_SITE": self.sites[worker],
            "WANBENCH_SITES": ",".join(self.sites),
            "WANBENCH_ADDRESS": addresses[worker],
            "WANBENCH_ADDRESSES": ",".join(addresses),
            **self.environment,
        }

    def _visible_gpus(self, worker: int) -> dict[str, str]:
        """On this host; a container has no others."""
        if not self.gpus or self.contained:
            return {}
        return {"CUDA_VISIBLE_DEVICES": self.gpus[worker % len(self.gpus)]}


@dataclass
class Ended:
    """How it went.

    Attributes:
        code: exit status of the first process that failed, 128 + n after signal n; 0 if none failed.
        failed: that process's rank. late: ranks that were killed because time was up. lasted: seconds of each process.
        finished: counters of each worker's device and TCP, before and after.
        tcp: what was in force. events: what changed.
        done_ns: when a worker did what a timeline asked for, by rank and when that was due.
    """

    code: int = 0
    failed: int | None = None
    lasted: dict[int, float] = field(default_factory=dict)
    late: tuple[int, ...] = ()
    finished: dict[int, dict[str, Any]] = field(default_factory=dict)
    tcp: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    done_ns: dict[tuple[int, int], int] = field(default_factory=dict)


@contextmanager
def caught() -> Iterator[list[int]]:
    """SIGINT and SIGTERM that come meanwhile, in order; for the main thread."""
    received: list[int] = []
    before = {n: signal.signal(n, lambda number, _: received.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def play_timeline(
    schedule: Schedule | None,
    slot: EmulatedSlot,
    handles: Sequence[WorkerHandle],
    ended: Ended,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Callable[[], None]]:
    """Let things change from the call of what this yields on; `say` it, and at the end `ended.events` tell what did.

    Raises:
        EmulatorError: at the end, if a change could not be made.
    """
    if schedule is None:
        yield lambda: None
        return
    player = Player(schedule, slot.emulator, programs=Programs(handles, ended.done_ns), say=say)
    try:
        yield lambda: player.begin(time.monotonic_ns())
    finally:
        ended.events = [event.to_json() for event in player.stop()]
    player.check()


def start(
    program: Program, handles: Sequence[WorkerHandle], door: Path, outputs: Callable[[int], Sequence[int]]
) -> None:
    """Start all processes.

    Args:
        door: the Unix socket of their rendezvous, in a folder that all workers share.
        outputs: of a worker, stdout and stderr of its first process, and so on.

    Raises:
        WorkerDied: a worker ended.
    """
    run_id = uuid.uuid4().hex[:8]
    for worker, handle in enumerate(handles):
        wanted = [program.process(worker, local, run_id) for local in range(program.processes)]
        message = {"cmd": "program", "processes": wanted, "cwd": str(program.cwd), "port": RENDEZVOUS_PORT}
        message |= {"inherit": program.contained}
        message |= {"door": str(door) if program.workers > 1 else None, "host": worker == 0}
        handle.send(message, outputs(worker))


def watch(
    program: Program,
    slot: EmulatedSlot,
    handles: Sequence[WorkerHandle],
    ended: Ended,
    received: Sequence[int] = (),
    limit_s: float = float("inf"),
) -> None:
    """Until all workers have finished. A signal in `received`, or the first failure, ends the others; `limit_s` all.

    Raises:
        WorkerDied, EmulatorError: one of them ended.
    """
    over = time.monotonic() + limit_s
    deadline: float | None = None
    passed_on = 0

    def tell(number: int) -> None:
        for rank, handle in enumerate(handles):
            if rank not in ended.finished:
                with suppress(WorkerDied):
                    handle.send({"cmd": "signal", "number": number})

    while len(ended.finished) < program.workers:
        with suppress(TimeoutError):
            for rank, message in slot.events(program.workers, _POLL_S):
                if _is_first_failure(program, ended, rank, message):
                    if not passed_on:
                        tell(signal.SIGTERM)
                    deadline = time.monotonic() + _GRACE_S
                if len(ended.finished) == program.workers:
                    break
        if len(received) > passed_on:
            passed_on = len(received)
            tell(received[-1] if passed_on == 1 else signal.SIGKILL)  # asked twice
            deadline = deadline or time.monotonic() + _GRACE_S
        if time.monotonic() > over and _note_late(program, ended):
            deadline = over
        if deadline is not None and time.monotonic() > deadline:
            tell(signal.SIGKILL)
            deadline = float("inf")
    if received:
        ended.code = 128 + received[0]


def _note_late(program: Program, ended: Ended) -> bool:
    """Note who has not ended though time is up; False if that is known, or others failed before."""
    if ended.failed is not None or ended.late:
        return False
    ended.late = tuple(rank for rank in program.ranks() if rank not in ended.lasted)
    return True


def _is_first_failure(program: Program, ended: Ended, worker: int, message: Mapping[str, Any]) -> bool:
    """Note what a worker says. Who was killed by the timeline has not failed, and has ended unless it starts again."""
    first, event = worker * program.processes, message["event"]
    if event == "finished":
        ended.finished[worker] = dict(message)
    elif event in ("killed", "restarted"):
        ended.done_ns[worker, message["due_ns"]] = message["at_ns"]
        if event == "killed" and not message["again"]:
            ended.lasted.update({first + process: message["seconds"] for process in message["processes"]})
    elif event == "exited":
        ended.lasted[first + message["process"]] = message["seconds"]
        if message["code"] != 0 and ended.failed is None and not ended.late:
            ended.failed = first + message["process"]
            ended.code = message["code"] if message["code"] > 0 else 128 - message["code"]
            return True
    return False
