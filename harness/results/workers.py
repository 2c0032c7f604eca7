"""Who measures a run: each process that does has a folder of its own, with a heartbeat and its own journals.

    workers/<name>/
        owner.json      the process, as harness/process/owner.py marks it
        beat            a counter, rewritten every few seconds; removed when the process ends in order
        events.jsonl, digests.jsonl

No file has two writers, because on a network file system appended lines of two hosts can overwrite each other. No two
hosts' clocks are compared: whoever wants to know whether another process lives watches its counter by its own clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wanbench.harness.process import owner

FOLDER = "workers"
BEAT_S = 5.0
MISSED = 3  # heartbeats after which a process counts as dead
_LOOK_S = 0.2
_OWNER, _BEAT = "owner.json", "beat"


class Worker:
    """This process among those that measure a run.

    Args:
        run: the run's folder. beat_s: seconds from one heartbeat to the next, the same for all workers of a run.
    """

    def __init__(self, run: Path, beat_s: float = BEAT_S) -> None:
        self.name = f"{socket.gethostname().partition('.')[0]}-{os.getpid()}-{secrets.token_hex(3)}"
        self.folder = run / FOLDER / self.name
        self._beat_s, self._ended = beat_s, threading.Event()
        self.folder.mkdir(parents=True)
        (self.folder / _OWNER).write_text(json.dumps(owner.mark()))
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
        while not self._ended.wait(self._beat_s):
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
        run: the run's folder. beat_s: as for `Worker`. now: seconds.
    """

    def __init__(self, run: Path, beat_s: float = BEAT_S, now: Callable[[], float] = time.monotonic) -> None:
        self._run, self._patience_s, self._now = run, MISSED * beat_s, now
        self._seen: dict[str, tuple[str | None, float]] = {}

    def is_dead(self, name: str) -> bool:
        """Whether a worker has ended, or has missed its heartbeats since this was first asked."""
        beat = self._beat_of(name)
        if beat is None or _is_gone(self._run / FOLDER / name):
            return True
        before, since = self._seen.get(name, (None, 0.0))
        if beat != before:
            self._seen[name] = beat, self._now()
            return False
        return self._now() - since >= self._patience_s

    def bury(self, name: str) -> None:
        """Note that a worker is dead, so that nobody has to wait for it again. If it lives, its next beat says so."""
        (self._run / FOLDER / name / _BEAT).unlink(missing_ok=True)

    def others(self) -> list[str]:
        """The workers that may live: those that have not ended in order, and have not certainly died."""
        beating = sorted(path.parent.name for path in self._run.glob(f"{FOLDER}/*/{_BEAT}"))
        gone = {name for name in beating if _is_gone(self._run / FOLDER / name)}
        for name in gone:
            self.bury(name)
        return [name for name in beating if name not in gone]

    def living(self) -> list[str]:
        """The workers that live. If any may, this waits for a heartbeat; those that miss theirs are buried."""
        found = self.others()
        first = {name: self._beat_of(name) for name in found}
        end = self._now() + self._patience_s
        while found and self._now() < end:
            beating = [name for name in found if self._beat_of(name) not in {None, first[name]}]
            if beating:
                return beating
            time.sleep(_LOOK_S)
            found = [name for name in self.others() if name in first]
        for name in found:
            self.bury(name)
        return []

    def _beat_of(self, name: str) -> str | None:
        return _text(self._run / FOLDER / name / _BEAT)


def every(run: Path, name: str) -> Iterator[Path]:
    """The journals of this name: that in the run's folder, then those of its workers."""
    yield from (path for path in [run / name, *sorted(run.glob(f"{FOLDER}/*/{name}"))] if path.is_file())


def _is_gone(folder: Path) -> bool:
    """Whether the process has certainly ended: one of this host, which no longer exists."""
    try:
        mark: Any = json.loads((folder / _OWNER).read_text())
        return owner.is_gone(mark)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
    except OSError:
        return ""
