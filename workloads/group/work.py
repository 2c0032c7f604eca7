"""An operation in progress, as torch sees it, and the watchdog that ends those that take too long."""

import heapq
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
from torch.distributed import Work
from torch.futures import Future

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.work import DirectWork


class GroupWork(Work):
    """One or more operations that end together, with the last of them.

    Args:
        parts: the operations.
        outputs: the tensors that they fill, for the future.
        finish: called once when all have succeeded, before anybody sees that they have ended.
    """

    def __init__(
        self, parts: Sequence[DirectWork], outputs: Sequence[torch.Tensor], finish: Callable[[], None]
    ) -> None:
        super().__init__()
        self.parts, self._outputs, self._finish = parts, list(outputs), finish
        self._lock = threading.Lock()
        self._running = len(parts)
        self._ended = threading.Event()
        self._error: CommError | None = None
        self._inner: Future[list[torch.Tensor]] | None = None
        self._future: Future[list[torch.Tensor]] | None = None
        for part in parts:
            part.then(self._part_ended)
        if not parts:
            self._end()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Block until finished. Raises: CommError: a peer is gone or late, or ranks disagree."""
        limit_s = timeout.total_seconds() if timeout > timedelta(0) else None
        for part in self.parts:
            part.wait(limit_s)
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        """Return a future of the output tensors."""
        with self._lock:
            if self._future is None:
                self._inner = Future()
                # `set_exception` deceives C++, which would take the exception for the tensors; a callback that raises
                # does not.
                self._future = self._inner.then(lambda inner: inner.value())
                if self._ended.is_set():
                    self._settle(self._inner)
                else:
                    watch(self)
            return self._future

    @property
    def limit_s(self) -> float:
        """The time limit of the operation."""
        return max((part.timeout_s for part in self.parts), default=0.0)

    def expire(self) -> None:
        """Give up, because nobody calls `wait`, which would notice that the time limit has passed."""
        for part in self.parts:
            if not part.done():
                part.expire()
                return

    getFuture = get_future

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Whether it has ended without an error."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> CommError | None:
        """The error with which it ended."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The output tensors."""
        return self._outputs

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def source_rank(self) -> int:
        """The rank in the group that sent the message. Raises: CommError: it is not a message that has arrived."""
        source = self.parts[0].source if self.parts else None
        if source is None:
            raise CommError("wan: only a message that has arrived has a source")
        return source

    _source_rank = source_rank

    def _part_ended(self, error: str | None) -> None:
        """End with the last part, for until then they fill tensors; with the error of the first that failed."""
        with self._lock:
            self._running -= 1
            if error is not None and self._error is None:
                self._error = CommError(f"wan: {error}")
            if self._running:
                return
        self._end()

    def _end(self) -> None:
        if self._error is None:
            try:
                self._finish()
            except Exception as error:  # nobody may wait forever
                self._error = CommError(f"wan: {error}")
        with self._lock:
            self._ended.set()
            future = self._inner
            self._finish = lambda: None  # it refers to copies of the tensors
        if future is not None:
            # A callback can wait for a later operation, so it must not run in the thread that ends operations.
            threading.Thread(target=self._settle, args=(future,), name="wan future", daemon=True).start()

    def _settle(self, future: Future[list[torch.Tensor]]) -> None:
        if self._error is None:
            future.set_result(self._outputs)
        else:
            future.set_exception(self._error)  # type: ignore[arg-type]  # the stub is wrong


# ---------------------------------------------------------------- the watchdog

# Nobody may call `wait` of an operation whose future is waited for, and a wait for a future has no time limit.

_lock = threading.Condition()
_watched: list[tuple[float, int, weakref.ref[GroupWork]]] = []  # a heap by deadline
_thread: threading.Thread | None = None


def watch(operation: GroupWork) -> None:
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


def _has_ended(operation: GroupWork | None) -> bool:
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
