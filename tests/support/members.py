"""Members of a group that can be killed: processes with an address each, on loopback, which do what a test says."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from joined_ranks import _JOB

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.loop.job import Job

WAIT_S = 60.0
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["torch", "members"])
_networks = count(os.getpid() * 16)


def _serve(pipe: Connection, job: Job, address: str) -> None:
    import torch

    from wanbench.workloads.process.training import membership

    torch.set_num_threads(1)
    before = _held()
    member, comm = membership(job, address), None
    while True:
        what, *arguments = pipe.recv()
        try:
            if what in ("first", "regroup"):
                view = getattr(member, what)(*arguments)
                comm, answer = view.comm, (view.epoch, list(view.members), list(view.steps))
            elif what == "mean":
                vector = torch.full((1000,), float(job.rank))
                comm.all_reduce(vector).wait()
                answer = vector.unique().item()
            elif what == "changes":
                answer = member.changes()
            else:
                member.close()
                answer = before, _held()
        except CommError as error:
            answer = error
        pipe.send(answer)


def _held() -> tuple[list[str], int]:
    return sorted(thread.name for thread in threading.enumerate()), len(os.listdir("/proc/self/fd"))


class Member:
    """One process."""

    def __init__(self, job: Job, address: str) -> None:
        self.rank, self._job, self.address = job.rank, job, address
        self.start()

    def start(self) -> None:
        self._pipe, theirs = _processes.Pipe()
        self._process = _processes.Process(target=_serve, args=(theirs, self._job, self.address), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, what: str, *arguments: object) -> None:
        self._pipe.send((what, *arguments))

    def end(self) -> Any:
        """The answer to what was begun."""
        assert self._pipe.poll(WAIT_S), f"rank {self.rank} does not answer"
        return self._pipe.recv()

    def do(self, what: str, *arguments: object) -> Any:
        self.begin(what, *arguments)
        return self.end()

    def stop(self) -> None:
        """Stop it, and return when none of its threads runs: until the first has taken the signal, the others do."""
        os.kill(self._process.pid, signal.SIGSTOP)
        until(lambda: set(self._states()) == {"T"})

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def _states(self) -> Iterator[str]:
        for stat in Path(f"/proc/{self._process.pid}/task").glob("*/stat"):
            yield stat.read_text().rpartition(")")[2].split()[0]

    def kill(self) -> None:
        self._process.kill()
        self._process.join(WAIT_S)
        self._pipe.close()


class Members:
    """All of them, which have joined."""

    def __init__(self, ranks: int, folder: Path, deadline_s: float) -> None:
        network = next(_networks)
        host = f"127.{1 + network // 256 % 254}.{network % 256}"
        job = replace(_JOB, world_size=ranks, rendezvous=str(folder / "group"), deadline_s=deadline_s, timeout_s=WAIT_S)
        self._all = [Member(replace(job, rank=rank), f"{host}.{rank + 1}") for rank in range(ranks)]
        assert self.do("first") == [(0, list(range(ranks)), [0] * ranks)] * ranks

    def __getitem__(self, rank: int) -> Member:
        return self._all[rank]

    def do(self, what: str, *arguments: object, by: Sequence[int] | None = None) -> list[Any]:
        """Let these ranks, or all, do the same at the same time."""
        chosen = self._all if by is None else [self._all[rank] for rank in by]
        for member in chosen:
            member.begin(what, *arguments)
        return [member.end() for member in chosen]

    def close(self) -> None:
        for member in self._all:
            with suppress(OSError, ValueError):
                member.kill()


@contextmanager
def members(ranks: int, folder: Path, deadline_s: float = 5.0) -> Iterator[Members]:
    """Yield processes that have joined; kill them at the end."""
    made = Members(ranks, folder, deadline_s)
    try:
        yield made
    finally:
        made.close()


def until(condition: Any) -> None:
    """Wait until it holds."""
    limit = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)
