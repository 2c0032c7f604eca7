"""The simulation kernel: workers as greenlets of one thread, and one heap of events in integer nanoseconds."""

import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from heapq import heappop, heappush

import torch
from greenlet import GreenletExit, getcurrent, greenlet

from wanbench.harness.testbeds.base import WorkerDied
from wanbench.harness.testbeds.virtual.tcp import NEVER
from wanbench.workloads.comm.base import CommError

_WORKER, _NETWORK, _BESIDE = 0, 1, 2
Key = tuple[int, ...]


class Simulation:
    """The clock, the workers and the pending events.

    At equal times all workers run before the network, and network events run in the order of their keys. What runs
    beside a worker comes last: it sees all messages of that time. So no result depends on the order of the workers,
    which tests prove with `shuffle`: it draws that order at random.

    Args:
        shuffle: seed of a random order of workers at equal times; None is the order of ranks.
        stopped: ends `run` with `Stopped` when any thread sets it.
        enter: the context in which the worker of this rank runs until it pauses. It can swap state that workers share
            by accident, such as the global random state.

    Attributes:
        now: the time in nanoseconds.
        goes_past_never: whether events due at `NEVER` or later happen; times have no meaning from then on.
    """

    def __init__(
        self,
        *,
        shuffle: int | None = None,
        stopped: threading.Event | None = None,
        enter: Callable[[int], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.now = 0
        self.goes_past_never = False
        self._heap: list[tuple[int, int, Key, int, greenlet | Callable[[], None]]] = []
        self._serial = 0
        self._order = None if shuffle is None else random.Random(shuffle)
        self._stopped = stopped or threading.Event()
        self._enter = enter
        self._workers: dict[greenlet, tuple[int, int]] = {}  # whether each runs beside a worker, and its rank
        self._hub: greenlet | None = None

    def spawn(self, rank: int, body: Callable[[], None], *, beside: bool = False) -> None:
        """Add a worker, which begins now, or when `run` does; or run `body` beside a worker."""
        worker = greenlet(body)
        self._workers[worker] = _BESIDE if beside else _WORKER, rank
        self.wake(self.now, worker, rank)

    def kill(self, rank: int) -> None:
        """End a worker where it is, from an action of the network."""
        for worker in [worker for worker, (_, of) in self._workers.items() if of == rank]:
            del self._workers[worker]
            worker.parent = getcurrent()
            worker.throw(GreenletExit)

    def at(self, time_ns: int, key: Key, action: Callable[[], None]) -> None:
        """Schedule an action of the network at a time, or now if the time is past."""
        self._push(max(time_ns, self.now), _NETWORK, key, action)

    def wake(self, time_ns: int, worker: greenlet, rank: int) -> None:
        """Resume a parked worker at a time, or now if the time is past."""
        kind, _ = self._workers.get(worker, (_WORKER, rank))
        self._push(max(time_ns, self.now), kind, (rank,) if kind == _BESIDE else self._tie(rank), worker)

    def sleep_until(self, time_ns: int, rank: int) -> None:
        """Pause the calling worker until this time."""
        if self._stopped.is_set():
            raise Stopped
        if not self._heap or self._heap[0][0] > time_ns:  # no other event is due before
            self.now = max(self.now, time_ns)
            return
        self.wake(time_ns, getcurrent(), rank)
        self.park()

    def park(self) -> None:
        """Pause the calling worker until `wake` resumes it."""
        assert self._hub is not None, "only workers of a running simulation can be parked"
        self._hub.switch()

    def run(self) -> None:
        """Run until all workers have ended.

        Raises:
            WorkerDied: a worker raised an error, which is chained, or waits forever for a message.
            Stopped: the simulation was stopped.
        """
        self._hub = getcurrent()
        try:
            while self._heap:
                if self._stopped.is_set():
                    raise Stopped
                time_ns, _, _, _, action = heappop(self._heap)
                if time_ns >= NEVER and not self.goes_past_never:
                    break
                self.now = time_ns
                if isinstance(action, greenlet):
                    if action in self._workers:  # it has not been killed
                        self._resume(action)
                else:
                    action()
            for _, rank in self._workers.values():
                error = CommError(f"rank {rank} waits for a peer that does not take part")
                raise WorkerDied(rank, f": {error}") from error
        finally:
            self._end()

    def _resume(self, worker: greenlet) -> None:
        worker.parent = getcurrent()
        _, rank = self._workers[worker]
        try:
            with self._enter(rank):
                worker.switch()
            if worker.dead:
                del self._workers[worker]
        except Stopped:
            raise
        except SystemExit as end:
            raise WorkerDied(rank, f": sys.exit({end.code!r}) was called") from end
        except Exception as error:
            raise WorkerDied(rank, f": {str(error) or type(error).__name__}") from error

    def _end(self) -> None:
        """Unwind workers that have not ended."""
        for worker in self._workers:
            if worker and not worker.dead:
                worker.parent = getcurrent()
                worker.throw(GreenletExit)
        self._workers.clear()
        self._heap.clear()

    def _tie(self, rank: int) -> Key:
        return (rank,) if self._order is None else (self._order.getrandbits(62), rank)

    def _push(self, time_ns: int, kind: int, key: Key, action: greenlet | Callable[[], None]) -> None:
        self._serial += 1
        heappush(self._heap, (time_ns, kind, key, self._serial, action))


class Stopped(Exception):
    """The simulation was stopped from outside."""


class SwitchError(RuntimeError):
    """A worker would wait at a point where workers that share a thread must not be switched."""


def refuse_inside_autograd() -> None:
    """Refuse to switch workers inside autograd, whose state torch keeps per thread: all workers share one.

    Raises:
        SwitchError: the caller is inside a backward pass or its hooks, or gradients are off.
    """
    if torch._C._current_graph_task_id() != -1:
        raise SwitchError("virtual: a worker waits inside a backward pass or its hooks; wait after it")
    if not torch.is_grad_enabled():
        raise SwitchError("virtual: a worker waits inside no_grad; wait before or after it")
