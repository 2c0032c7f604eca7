"""Ends operations that take too long although nobody calls their `wait`: a wait for a future has no time limit."""

from __future__ import annotations

import heapq
import threading
import time
import weakref
from typing import Protocol


class Limited(Protocol):
    """An operation with a time limit."""

    @property
    def limit_s(self) -> float:
        """The limit."""

    def is_completed(self) -> bool:
        """Whether it has ended."""

    def expire(self) -> None:
        """End it."""


_lock = threading.Condition()
_watched: list[tuple[float, int, weakref.ref[Limited]]] = []  # a heap by deadline
_thread: threading.Thread | None = None


def watch(operation: Limited) -> None:
    """Let an operation expire when its limit has passed, unless it has ended."""
    global _thread  # one for all groups of this process
    with _lock:
        while _watched and _has_ended(_watched[0][2]()):
            heapq.heappop(_watched)
        heapq.heappush(_watched, (time.monotonic() + operation.limit_s, id(operation), weakref.ref(operation)))
        if _thread is None:
            _thread = threading.Thread(target=_serve, name="wan watchdog", daemon=True)
            _thread.start()
        elif _watched[0][1] == id(operation):
            _lock.notify()


def _has_ended(operation: Limited | None) -> bool:
    return operation is None or operation.is_completed()


def _serve() -> None:
    while True:
        with _lock:
            while not _watched or _watched[0][0] > time.monotonic():
                _lock.wait(_watched[0][0] - time.monotonic() if _watched else None)
            operation = heapq.heappop(_watched)[2]()
        if operation is not None and not operation.is_completed():
            operation.expire()
        del operation
