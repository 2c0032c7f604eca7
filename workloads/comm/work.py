"""An operation in progress, which an I/O thread completes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from wanbench.workloads.comm.base import CommError

Ended = Callable[[str | None], None]


class DirectWork:
    """An operation of `direct` or `hierarchical`. The mesh's I/O thread completes it.

    Args:
        name: what messages call it.
        timeout_s: the limit of `wait`.
        late: returns the ranks that it waits for.
    """

    def __init__(self, name: str, timeout_s: float, late: Callable[[], Sequence[int]] = tuple) -> None:
        self.name = name
        self.source: int | None = None  # of a message, the rank that sent it
        self.timeout_s, self._late = timeout_s, late
        self._event = threading.Event()
        self._error: str | None = None
        self._lock = threading.Lock()
        self._then: list[Ended] = []
        self.ended_ns: int | None = None

    def overdue(self, limit_s: float | None = None) -> str:
        """Say that it took too long, and which ranks it waits for."""
        late = ", ".join(map(str, self.late()))
        waits = f"; it waits for rank{'s' * (',' in late)} {late}" if late else ""
        limit_s = self.timeout_s if limit_s is None else limit_s
        return f"direct: {self.name} did not end within its timeout of {limit_s:g} s{waits}"

    def late(self) -> Sequence[int]:
        """The ranks that this waits for, as far as known."""
        return self._late()

    def done(self) -> bool:
        """True once `wait` would return, or raise, at once."""
        return self._event.is_set()

    def wait(self, limit_s: float | None = None) -> None:
        """Block until finished.

        Args:
            limit_s: the limit; default: the one of the constructor.

        Raises:
            CommError: a peer is gone, or the operation took too long.
        """
        limit_s = self.timeout_s if limit_s is None else limit_s
        if not self._event.wait(limit_s):
            overdue = self.overdue(limit_s)
            if not self._event.is_set():  # otherwise a peer has just said why
                raise CommError(overdue)
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
                self._then.append(callback)
                return
        callback(self._error)

    def complete(self, error: str | None = None) -> None:
        """End the operation. Only the I/O thread calls this."""
        with self._lock:
            self._error = error
            self.ended_ns = time.monotonic_ns()
            self._event.set()
            callbacks, self._then = self._then, []  # they refer to whoever refers to this
        for callback in callbacks:
            callback(error)
