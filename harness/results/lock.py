"""The lock of a run's folder: one process prepares it, then any number may measure.

It spares users a mistake, such as --fresh while another process measures. Correctness does not depend on it: a network
file system may have no locks, or only those of its own host.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from wanbench.harness.errors import HostError
from wanbench.harness.process.owner import locked

_FILE = ".lock"
_PATIENCE_S = 5.0  # while another process prepares the folder
_LOOK_S = 0.1


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Report in one line that nothing can be written in the folder of a run. Raises: HostError."""
    try:
        yield
    except OSError as error:
        raise HostError(
            f"{folder}: cannot write results here ({error.strerror}); choose another folder with --out"
        ) from None


class RunLock:
    """Hold the folder of a run.

    Attributes:
        joined: whether others measure here already.

    Args:
        folder: the run's folder, which is made. alone: whether nobody else may measure.

    Raises:
        HostError: on entry, another process holds it, or it is read-only.
    """

    def __init__(self, folder: Path, *, alone: bool = True) -> None:
        self._folder, self._alone = folder, alone
        self._file: IO[str]
        self.joined = False

    def __enter__(self) -> RunLock:
        with writable(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = (self._folder / _FILE).open("a+")  # NFS shares a lock only if the file is open for reading
        if not self._taken():
            self._file.close()
            raise HostError(f"{self._folder}: another `wanbench run` is writing here; wait for it, or use --out")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def share(self) -> None:
        """Let others measure too."""
        locked(self._file, fcntl.LOCK_SH)

    def is_last(self) -> bool:
        """Whether nobody else measures here any more; then nobody can begin. Without locks, always."""
        return locked(self._file, fcntl.LOCK_EX)

    def _taken(self) -> bool:
        """Take the lock alone, or join those who measure."""
        until = time.monotonic() + (0.0 if self._alone else _PATIENCE_S)
        while True:
            if locked(self._file, fcntl.LOCK_EX):
                return True
            if not self._alone and locked(self._file, fcntl.LOCK_SH):
                self.joined = True
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_S)
