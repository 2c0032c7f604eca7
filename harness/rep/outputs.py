"""What the processes of a program print: into files of their own, and to a user who looks on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_GRACE_S = 10.0

# Of a worker: descriptors for out and err of its first process, and so on. They stay ours to close.
Ends = Callable[[int], Sequence[int]]


def log(folder: Path, rank: int, stream: str) -> Path:
    """Where `kept` puts what a process prints."""
    return folder / f"rank-{rank}.{stream}.log"


@contextmanager
def kept(sites: Sequence[str], processes: int, folder: Path) -> Iterator[Ends]:
    """A file for stdout and one for stderr of every process.

    Args:
        sites: of each worker. processes: of each worker.
    """
    opened: list[list[int]] = []
    try:
        for worker in range(len(sites)):
            opened.append([])
            for rank in range(worker * processes, (worker + 1) * processes):
                for stream in ("out", "err"):
                    path = log(folder, rank, stream)
                    opened[-1].append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))
        yield opened.__getitem__
    finally:
        for descriptor in (fd for worker in opened for fd in worker):
            os.close(descriptor)


@contextmanager
def copied(sites: Sequence[str], processes: int, folder: Path) -> Iterator[Ends]:
    """A file for each process; its lines are copied to our stdout and stderr as they come, with rank and site."""
    ends: dict[int, list[int]] = {}
    threads: list[threading.Thread] = []
    lock = threading.Lock()
    width = len(str(len(sites) * processes - 1))
    with ExitStack() as logs:
        for rank in range(len(sites) * processes):
            worker = rank // processes
            prefix = f"[{rank:{width}} {sites[worker]}] ".encode()
            file = logs.enter_context((folder / f"rank-{rank}.log").open("wb"))
            for ours in (sys.stdout.buffer, sys.stderr.buffer):
                read, write = os.pipe()
                ends.setdefault(worker, []).append(write)
                threads.append(threading.Thread(target=_pump, args=(read, prefix, ours, file, lock), daemon=True))
                threads[-1].start()
        try:
            yield ends.__getitem__
        finally:
            for end in (end for of_worker in ends.values() for end in of_worker):
                os.close(end)
            for thread in threads:
                thread.join(_GRACE_S)


def _pump(read: int, prefix: bytes, ours: BinaryIO, file: BinaryIO, lock: threading.Lock) -> None:
    with os.fdopen(read, "rb") as lines:
        for line in lines:
            whole = line if line.endswith(b"\n") else line + b"\n"
            with lock, suppress(OSError, ValueError):
                file.write(line)
                file.flush()
                ours.write(prefix + whole)
                ours.flush()
