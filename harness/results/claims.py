"""Which process measures which repetition, where any number of processes on any hosts share the folder of a run.

    claims/<repetition>~1/owner     the name of the worker that has it
    claims/<repetition>~2/owner     of the worker that took it over; the highest number counts

A claim is a folder that is prepared under a private name and then renamed, so it never exists without its owner, and
one rename has one winner. The owner is read back, because NFS can report an error to the winner when it repeats a
request whose answer was lost. A claim is taken over by the next number, also by one rename, when its owner is dead. No
claim is removed before its repetition is settled, so an old claim never comes back.

Claims only save work. A repetition is published by the rename of its own folder, which one worker wins; who is late,
because it was taken for dead, discards its own.
"""

from __future__ import annotations

import contextlib
import shutil
from enum import Enum
from pathlib import Path

from wanbench.harness.plan.cell import Cell
from wanbench.harness.results.store import CLAIMS, RunFolder
from wanbench.harness.results.workers import Watch, Worker

TRIES = 2  # an invalid repetition is measured once more, a failed one is not
_OWNER = "owner"


class Answer(Enum):
    """Outcome of asking for a repetition."""

    MINE = "mine"
    ELSEWHERE = "elsewhere"  # a living worker has it; ask again later
    SETTLED = "settled"  # it is finished, or failed


class Claims:
    """The claims of one worker.

    Args:
        watch: judges the others.
        again: whether repetitions that failed before this worker began are tried again.
    """

    def __init__(self, folder: RunFolder, worker: Worker, watch: Watch, *, again: bool = True) -> None:
        self._folder, self._worker, self._watch = folder, worker, watch
        self._place = folder.path / CLAIMS
        self._place.mkdir(exist_ok=True)
        self._private = self._place / f".{worker.name}"
        self._before = folder.tries() if again else {}

    def take(self, cell: Cell, rep: int, host: str | None = None) -> Answer:
        """Claim a repetition, unless it is settled or a living worker has it.

        Args:
            host: as for `RunFolder.is_finished`.
        """
        if self.is_settled(cell, rep, host):
            return Answer.SETTLED
        path = self._path(cell, rep, host)
        highest, owner = _current(path)
        if owner == self._worker.name:
            return Answer.MINE
        if owner is not None and not self._watch.is_dead(owner):
            return Answer.ELSEWHERE
        if not self._renamed(_numbered(path, highest + 1)):
            return Answer.ELSEWHERE  # somebody was faster
        if owner is not None:
            self._watch.bury(owner)
        if self.is_settled(cell, rep, host):  # published, and its claim removed, since it was looked at
            self.release(cell, rep, host)
            return Answer.SETTLED
        return Answer.MINE

    def release(self, cell: Cell, rep: int, host: str | None = None) -> None:
        """Remove the claims of a settled repetition."""
        path = self._path(cell, rep, host)
        for number in range(_current(path)[0], 0, -1):
            shutil.rmtree(_numbered(path, number), ignore_errors=True)

    def is_settled(self, cell: Cell, rep: int, host: str | None = None) -> bool:
        """Whether a repetition is finished, or has failed, or was invalid too often, since this worker began."""
        if self._folder.is_finished(cell, rep, host):
            return True
        before = self._before.get((self._folder.cell_folder(cell).name, rep), 0)
        since = self._folder.failures(cell, rep)[before:]
        return len(since) >= TRIES or any(each["row"]["status"] == "failed" for each in since)

    def close(self) -> None:
        """Give back what this worker has not settled."""
        for path in self._place.glob("*~*"):
            if _owner_of(path) == self._worker.name:
                shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self._private, ignore_errors=True)
        with contextlib.suppress(OSError):  # others have claims there
            self._place.rmdir()

    def _path(self, cell: Cell, rep: int, host: str | None) -> Path:
        return self._place / (f"{cell.key[:16]}-{rep}" + (f"@{host}" if host is not None else ""))

    def _renamed(self, to: Path) -> bool:
        """Whether a prepared claim could be renamed to this path."""
        with contextlib.suppress(FileNotFoundError):  # somebody who ended has just removed the place
            self._private.mkdir(parents=True, exist_ok=True)
            (self._private / _OWNER).write_text(self._worker.name)
        with contextlib.suppress(OSError):  # it exists; or NFS repeated the request
            self._private.rename(to)
        return _owner_of(to) == self._worker.name


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}~{number}")


def _current(path: Path) -> tuple[int, str | None]:
    """The highest number of a claim, 0 if there is none, and its owner."""
    number, owner = 0, None
    while (found := _owner_of(_numbered(path, number + 1))) is not None:
        number, owner = number + 1, found
    return number, owner


def _owner_of(claim: Path) -> str | None:
    try:
        return (claim / _OWNER).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
