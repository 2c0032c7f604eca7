"""An operation in progress, which an I/O thread completes."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from wanbench.workloads.comm.base import CommError, Work

Ended = Callable[[str | None], None]
_PATIENCE_S, _PATIENCE_SHARE = 1.0, 0.5


class Timed(Work, Protocol):
    """A Work that knows when it ended."""

    @property
    def ended_ns(self) -> int | None:
        """When it ended; None if that is unknown."""


def first_ended(works: Mapping[int, Timed]) -> int | None:
    """Return the key of the operation that ended first, then of the smallest key; None if none has ended."""
    ended = [(work.ended_ns or 0, key) for key, work in works.items() if work.done()]
    return min(ended)[1] if ended else None


class DirectWork:
    """An operation of `direct` or `hierarchical`. The mesh's I/O thread completes it.

    Args:
        name: what messages call it.
        timeout_s: the limit of `wait`.
        late: returns the ranks that it waits for, as far as known. It can first wait for some seconds, at most those of
            its argument, for a rank that knows better.
        give_up: called with the reason when `wait` reaches the limit `timeout_s`. Otherwise this rank would fail alone,
            and the others would blame it.
    """

    def __init__(
        self,
        name: str,
        timeout_s: float,
        late: Callable[[float], Sequence[int]] = lambda patience_s: (),
        give_up: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.name = name
        self.source: int | None = None  # of a message, the rank that sent it
        self.timeout_s, self.late, self._give_up = timeout_s, late, give_up
        self._event = threading.Event()
        self._error: str | None = None
        self._lock = threading.Lock()
        self._then: list[Ended] = []
        self.ended_ns: int | None = None

    def overdue(self, limit_s: float | None = None) -> str:
        """Say that it took too long, and which ranks it waits for."""
        limit_s = self.timeout_s if limit_s is None else limit_s
        late = ", ".join(map(str, self.late(min(_PATIENCE_S, _PATIENCE_SHARE * limit_s))))
        waits = f"; it waits for rank{'s' * (',' in late)} {late}" if late else ""
        return f"direct: {self.name} did not end within its timeout of {limit_s:g} s{waits}"

    def ends_within(self, seconds: float) -> bool:
        """Wait for at most `seconds`; return whether it has ended, with success or not."""
        return self._event.wait(seconds)

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
        if not self._event.wait(self.timeout_s if limit_s is None else limit_s):
            overdue = self.overdue(limit_s)
            if not self._event.is_set():  # otherwise a peer has just said why
                if limit_s is None:
                    self._give_up(overdue)
                raise CommError(overdue)
        if self._error is not None:
            raise CommError(f"direct: {self.name} failed: {self._error}")

    def expire(self) -> None:
        """Give up, because the limit has passed and nobody calls `wait`."""
        overdue = self.overdue()
        if not self._event.is_set():
            self._give_up(overdue)

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
        """End the operation, unless it has ended."""
        with self._lock:
            if self._event.is_set():
                return
            self._error = error
            self.ended_ns = time.monotonic_ns()
            self._event.set()
            callbacks, self._then = self._then, []  # they refer to whoever refers to this
            self.late = lambda patience_s: ()
        for callback in callbacks:
            callback(error)


def when_all(works: Collection[DirectWork], then: Ended) -> None:
    """Call `then` with None when all have succeeded, or with the reason of each failure."""
    lock, running = threading.Lock(), len(works)

    def ended(error: str | None) -> None:
        nonlocal running
        with lock:
            running -= error is None
            last = running == 0
        if error is not None or last:
            then(error)

    for work in works:
        work.then(ended)
    if not works:
        then(None)
