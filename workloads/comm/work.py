"""An operation in progress, which an I/O thread completes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from wanbench.workloads.comm.base import CommError

Ended = Callable[[str | None], None]


class DirectWork:
    """An operation of `direct` or `hierarchical`. The mesh's I/O thread completes it."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.name = name
        self._timeout_s = timeout_s
        self._event = threading.Event()
        self._error: str | None = None
        self._lock = threading.Lock()
        self._then: Ended | None = None
        self.ended_ns: int | None = None

    def done(self) -> bool:
        """True once `wait` would return, or raise, at once."""
        return self._event.is_set()

    def wait(self) -> None:
        """Block until finished. Raises: CommError if a peer is gone or the operation took too long."""
        if not self._event.wait(self._timeout_s):
            raise CommError(f"direct: {self.name} took longer than {self._timeout_s:g} s")
        if self._error is not None:
            raise CommError(f"direct: {self.name} failed: {self._error}")

    def wait_for(self, seconds: float) -> bool:
        if self._event.wait(seconds):
            self.wait()
        return self._event.is_set()

    def then(self, callback: Ended) -> None:
        """Call `callback` with the reason of a failure, or None, when this ends: in the I/O thread, or at once."""
        with self._lock:
            if not self._event.is_set():
                self._then = callback
                return
        callback(self._error)

    def complete(self, error: str | None = None) -> None:
        """End the operation. Only the I/O thread calls this."""
        with self._lock:
            self._error = error
            self.ended_ns = time.monotonic_ns()
            self._event.set()
            callback = self._then
        if callback is not None:
            callback(error)
