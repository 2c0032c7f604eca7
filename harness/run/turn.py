"""One emulated measurement at a time on a host: others would disturb it, also simulations.

Workers of a run can be in namespaces and containers that cannot see each other, but they see the run's folder and run
on one kernel. So they lock a file in that folder that is named after this boot of the kernel. The kernel drops the lock
when its holder ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wanbench.harness.errors import Interrupted
from wanbench.harness.results import workers

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LOOK_S = 0.2


class Turn:
    """The turn of this process on its host, among those that measure one run.

    Args:
        path: the file or folder that is locked, made by `place`. stopped: ends the waiting. say: prints one line.
    """

    def __init__(self, path: Path, stopped: threading.Event, say: Callable[[str], None]) -> None:
        self._path, self._stopped, self._say = path, stopped, say

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Wait until no other process emulates, or with `alone` until none measures. Raises: Interrupted."""
        # NFS locks a file exclusively only if it is open for writing.
        file = os.open(self._path, os.O_RDONLY if self._path.is_dir() else os.O_RDWR)
        try:
            how = (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB
            if not _locked(file, how):
                self._say("waiting: another process of this run measures on this host, and would be disturbed")
                while not _locked(file, how):
                    if self._stopped.is_set():
                        raise Interrupted("interrupted while waiting for the host; the same command continues")
                    time.sleep(_LOOK_S)
            yield
        finally:
            os.close(file)


def place(run: Path) -> Path:
    """The file in a run's folder that the processes of this host lock."""
    path = run / workers.FOLDER / f".host-{_BOOT.read_text().strip()}"
    path.touch()
    return path


def _locked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
