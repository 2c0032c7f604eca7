"""What the processes of a program print: to the user as it comes, and into a file each."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from wanbench.harness.rep.program import Program

_GRACE_S = 10.0


class Outputs:
    """A pipe for stdout and one for stderr of each process, copied to ours with a prefix, and to a file."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._stack = ExitStack()
        self._threads: list[threading.Thread] = []
        self._ends: dict[int, list[int]] = {}
        self._lock = threading.Lock()
        width = len(str(program.workers * program.processes - 1))
        for worker in range(program.workers):
            for local in range(program.processes):
                rank = worker * program.processes + local
                prefix = f"[{rank:{width}} {program.sites[worker]}] ".encode()
                log = self._stack.enter_context((folder / f"rank-{rank}.log").open("wb"))
                for ours in (sys.stdout.buffer, sys.stderr.buffer):
                    read, write = os.pipe()
                    self._ends.setdefault(worker, []).append(write)
                    self._threads.append(
                        threading.Thread(target=self._pump, args=(read, prefix, ours, log), daemon=True)
                    )

    def __enter__(self) -> Outputs:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for ends in self._ends.values():
            for end in ends:
                os.close(end)
        for thread in self._threads:
            thread.join(_GRACE_S)
        self._stack.close()

    def take(self, worker: int) -> list[int]:
        """The writing ends for one worker: out and err of its first process, and so on. Still ours to close."""
        return self._ends[worker]

    def _pump(self, read: int, prefix: bytes, ours: BinaryIO, log: BinaryIO) -> None:
        with os.fdopen(read, "rb") as lines:
            for line in lines:
                whole = line if line.endswith(b"\n") else line + b"\n"
                with self._lock, suppress(OSError, ValueError):
                    log.write(line)
                    log.flush()
                    ours.write(prefix + whole)
                    ours.flush()
