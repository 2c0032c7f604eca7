"""Which process measures which repetition, where any number of processes on any hosts share the folder of a run.

    claims/<repetition>~1/owner     the name of the worker that has it
    claims/<repetition>~2/owner     of the worker that took it over; the highest number counts
    workers/<name>/                 one for each process that measures
        owner.json                  the process, as harness/process/owner.py marks it
        beat                        a counter, rewritten every few seconds; removed when the process ends in order
        events.jsonl, digests.jsonl

A claim is a folder that is prepared under a private name and then renamed, so it never exists without its owner, and
one rename has one winner. The owner is read back, because NFS can report an error to the winner when it repeats a
request whose answer was lost. A claim is taken over by the next number, also by one rename, when its owner is dead.

Who was taken for dead can go on: it was stopped, or slept. It must neither publish its result nor keep its failure. So
it looks whether it still has the claim, and then renames the folder that it worked in; who took over claimed first, and
then renamed that folder too. Whichever comes first, one of the two sees the other.

No file has two writers, because on a network file system appended lines of two hosts can overwrite each other. No two
hosts' clocks are compared: whoever wants to know whether another process lives watches its counter by its own clock.
"""

import contextlib
import os
import secrets
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from wanbench.harness.plan.cell import Cell
from wanbench.harness.process import owner
from wanbench.harness.results import digests
from wanbench.harness.results.columns import Row
from wanbench.harness.results.store import CLAIMS, RunFolder

TRIES = 2  # an invalid repetition is measured once more, a failed one is not
BEAT_S = 5.0
MISSED = 3  # heartbeats after which a process counts as dead
_LOOK_S = 0.2
_BEAT, _OWNER = "beat", "owner"


class Worker:
    """This process among those that measure a run.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self.name = f"{socket.gethostname().partition('.')[0]}-{os.getpid()}-{secrets.token_hex(3)}"
        self.folder = run / digests.WORKERS / self.name
        self._ended = threading.Event()
        self.folder.mkdir(parents=True)
        owner.write_mark(self.folder)
        self._count(0)
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End in order: no one has to wait for missed heartbeats."""
        self._ended.set()
        self._thread.join()
        (self.folder / _BEAT).unlink(missing_ok=True)

    def _beat(self) -> None:
        beats = 0
        while not self._ended.wait(BEAT_S):
            beats += 1
            with contextlib.suppress(OSError):  # a full disk; the next one may get through
                self._count(beats)

    def _count(self, beats: int) -> None:
        """Rewrite the file in place: on NFS whoever opens it then sees the new content."""
        with open(os.open(self.folder / _BEAT, os.O_WRONLY | os.O_CREAT, 0o644), "w") as file:
            file.write(f"{beats:>12}")


class Watch:
    """Judges whether the other workers of a run live.

    Args:
        run: the run's folder. now: seconds.
    """

    def __init__(self, run: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._workers, self._now = run / digests.WORKERS, now
        self._seen: dict[str, tuple[str | None, float]] = {}

    def is_dead(self, name: str) -> bool:
        """Whether a worker has ended, or has missed its heartbeats since this was first asked."""
        beat = self._beat_of(name)
        if beat is None or owner.has_left(self._workers / name):
            return True
        before, since = self._seen.get(name, (None, 0.0))
        if beat != before:
            self._seen[name] = beat, self._now()
            return False
        return self._now() - since >= MISSED * BEAT_S

    def bury(self, name: str) -> None:
        """Note that a worker is dead, so that nobody has to wait for it again. If it lives, its next beat says so."""
        (self._workers / name / _BEAT).unlink(missing_ok=True)

    def candidates(self) -> list[str]:
        """The workers that may live: those that have not ended in order, and have not certainly died."""
        beating = sorted(path.parent.name for path in self._workers.glob(f"*/{_BEAT}"))
        gone = {name for name in beating if owner.has_left(self._workers / name)}
        for name in gone:
            self.bury(name)
        return [name for name in beating if name not in gone]

    def living(self) -> list[str]:
        """The workers that live. If any may, this waits for a heartbeat; those that miss theirs are buried."""
        names = self.candidates()
        first = {name: self._beat_of(name) for name in names}
        end = self._now() + MISSED * BEAT_S
        while names and self._now() < end:
            beating = [name for name in names if self._beat_of(name) not in {None, first[name]}]
            if beating:
                return beating
            time.sleep(_LOOK_S)
            names = [name for name in self.candidates() if name in first]
        for name in names:
            self.bury(name)
        return []

    def _beat_of(self, name: str) -> str | None:
        """The counter; None if the worker has ended, and empty if it cannot be read just now."""
        try:
            return (self._workers / name / _BEAT).read_text()
        except FileNotFoundError:
            return None
        except OSError:
            return ""


class Answer(Enum):
    """Outcome of asking for a repetition."""

    MINE = "mine"
    ELSEWHERE = "elsewhere"  # a living worker has it; ask again later
    SETTLED = "settled"  # it is finished, or failed


class SharedRun(RunFolder):
    """The folder of a run, for one worker that measures there.

    Args:
        watch: judges the others.
        again: whether repetitions that failed before this worker began are tried again.
    """

    def __init__(self, path: Path, watch: Watch, *, again: bool = True) -> None:
        super().__init__(path)
        self._worker, self._watch = Worker(path), watch
        self.journals, self._part = self._worker.folder, f"{self._worker.name}.part"
        self._claims = path / CLAIMS
        self._claims.mkdir(exist_ok=True)
        self._private = self._claims / f".{self._worker.name}"
        self._before = self.tries() if again else Counter()

    def take(self, cell: Cell, rep: int, host: str | None = None) -> Answer:
        """Claim a repetition, unless it is settled or a living worker has it.

        Args:
            host: as for `is_finished`.
        """
        if self.is_settled(cell, rep, host):
            return Answer.SETTLED
        claim = self._claim(cell, rep, host)
        number, name = self._current(claim)
        if name == self._worker.name:
            return Answer.MINE
        if name is not None and not self._watch.is_dead(name):
            return Answer.ELSEWHERE
        if not self._renamed(_numbered(claim, number + 1)):
            return Answer.ELSEWHERE  # somebody was faster
        if name is not None:
            self._watch.bury(name)
            self._take_part(cell, rep, name)
        if self.is_settled(cell, rep, host):  # published, and its claim removed, since it was looked at
            self.release(cell, rep, host)
            return Answer.SETTLED
        return Answer.MINE

    def has(self, cell: Cell, rep: int, host: str | None = None) -> bool:
        """Whether a repetition that this worker took is still its own: nobody has taken it over, or settled it."""
        return self._current(self._claim(cell, rep, host))[1] == self._worker.name

    def release(self, cell: Cell, rep: int, host: str | None = None) -> None:
        """Give back a repetition that this worker has; one that is not settled can then be taken again."""
        claim = self._claim(cell, rep, host)
        number, name = self._current(claim)
        if name == self._worker.name:
            _remove(claim, number)

    def is_settled(self, cell: Cell, rep: int, host: str | None = None) -> bool:
        """Whether a repetition is finished, or has failed, or was invalid too often, since this worker began."""
        if self.is_finished(cell, rep, host):
            return True
        since = self.failures(cell, rep)[self._before[self.cell_folder(cell).name, rep] :]
        return len(since) >= TRIES or any(failure["status"] == "failed" for failure in since)

    def finish(self, cell: Cell, rep: int, part: Path, row: Row, host: str | None = None) -> Path | None:
        """As `RunFolder.finish`. None also if another worker has taken the repetition over."""
        return self._unless_late(partial(super().finish, cell, rep, part, row, host), cell, rep, part, host)

    def fail(self, cell: Cell, rep: int, part: Path, error: dict[str, Any], host: str | None = None) -> Path | None:
        """As `RunFolder.fail`. None if another worker has taken the repetition over."""
        return self._unless_late(partial(super().fail, cell, rep, part, error), cell, rep, part, host)

    def close(self) -> None:
        """Give back what this worker has not settled, and end."""
        for path in self._claims.glob("*~*"):
            if _owner_of(path) == self._worker.name:
                stem, _, number = path.name.rpartition("~")
                _remove(path.with_name(stem), int(number))
        shutil.rmtree(self._private, ignore_errors=True)
        with contextlib.suppress(OSError):  # others have claims there
            self._claims.rmdir()
        self._worker.close()

    def _unless_late(
        self, keep: Callable[[], Path | None], cell: Cell, rep: int, part: Path, host: str | None
    ) -> Path | None:
        with contextlib.suppress(FileNotFoundError):  # who took it over has renamed the part
            if self.has(cell, rep, host):
                return keep()
        shutil.rmtree(part, ignore_errors=True)
        return None

    def _take_part(self, cell: Cell, rep: int, name: str) -> None:
        """Rename the folder in which a worker measures a repetition, so that it can publish nothing, and remove it."""
        part = self.cell_folder(cell) / f"rep-{rep}.{name}.part"
        taken = part.with_name(f"rep-{rep}.{name}.{self._part}")
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(part.rename(taken), ignore_errors=True)

    def _claim(self, cell: Cell, rep: int, host: str | None) -> Path:
        return self._claims / (f"{cell.key[:16]}-{rep}" + (f"@{host}" if host is not None else ""))

    def _current(self, claim: Path) -> tuple[int, str | None]:
        """The highest number of a claim, 0 if there is none, and its owner."""
        with contextlib.suppress(FileNotFoundError):  # somebody who ended has just removed the place
            names = (name.rpartition("~") for name in os.listdir(self._claims))
            number = max((int(number) for stem, _, number in names if stem == claim.name), default=0)
            return number, _owner_of(_numbered(claim, number))
        return 0, None

    def _renamed(self, to: Path) -> bool:
        """Whether a prepared claim could be renamed to this path."""
        with contextlib.suppress(FileNotFoundError):  # somebody who ended has just removed the place
            self._private.mkdir(parents=True, exist_ok=True)
            (self._private / _OWNER).write_text(self._worker.name)
        with contextlib.suppress(OSError):  # it exists; or NFS repeated the request
            self._private.rename(to)
        return _owner_of(to) == self._worker.name


def sweep(run: Path) -> None:
    """Remove what interrupted processes left half-written in a run's folder, without that of others that may live."""
    living = Watch(run).candidates()
    if not living:
        shutil.rmtree(run / CLAIMS, ignore_errors=True)
    for pattern in (".*.part", "figures/.*.part", "cells/*/.*.part") if not living else ():
        for path in run.glob(pattern):
            path.unlink(missing_ok=True)
    for path in run.glob("cells/*/rep-*.part"):
        if not any(path.name.endswith(f".{name}.part") for name in living):
            shutil.rmtree(path, ignore_errors=True)
    journal = run / digests.FILE
    if journal.exists() and journal.read_bytes()[-1:] not in (b"", b"\n"):
        with journal.open("ab") as handle:  # after a full disk; the next digest starts its own line
            handle.write(b"\n")


def _numbered(claim: Path, number: int) -> Path:
    return claim.with_name(f"{claim.name}~{number}")


def _remove(claim: Path, last: int) -> None:
    """Remove the claims up to this number, the oldest first, so that no old one counts again."""
    for number in range(1, last + 1):
        shutil.rmtree(_numbered(claim, number), ignore_errors=True)


def _owner_of(claim: Path) -> str | None:
    try:
        return (claim / _OWNER).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
