"""Workers as greenlets of one thread, and one heap of events in integer nanoseconds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from heapq import heappop, heappush

import torch
from greenlet import GreenletExit, getcurrent, greenlet

from wanbench.harness.testbeds.virtual.tcp import NEVER
from wanbench.workloads.comm.base import CommError

_WORKER, _NETWORK = 0, 1
Key = tuple[int, ...]


class SimulationError(RuntimeError):
    """A worker failed; `rank` says which, and the cause is chained."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank


class Simulation:
    """Time, workers and what is due.

    At equal times all workers go before the network, and network events in the order of their keys. So nothing
    depends on which of several workers runs first, which `shuffle` proves: it draws that order at random.

    Args:
        shuffle: seed of a random order of workers at equal times; None is the order of ranks.
        stopped: ends `run` with `Stopped` when set, from any thread.
        own: called with a rank before that worker goes on, what it returns when it stops: what workers share by
            accident, such as the global random state, can be swapped there.

    Attributes:
        now: nanoseconds. goes_past_never: what is due at `NEVER` or later happens all the same; times have no meaning
            from then on.
    """

    def __init__(
        self,
        *,
        shuffle: int | None = None,
        stopped: threading.Event | None = None,
        own: Callable[[int], Callable[[], None]] | None = None,
    ) -> None:
        self.now = 0
        self.goes_past_never = False
        self._heap: list[tuple[int, int, Key, int, greenlet | Callable[[], None]]] = []
        self._serial = 0
        self._order = None if shuffle is None else random.Random(shuffle)
        self._stopped = stopped or threading.Event()
        self._own = own
        self._ranks: dict[greenlet, int] = {}
        self._hub: greenlet | None = None

    def spawn(self, rank: int, body: Callable[[], None]) -> None:
        """A worker, which begins when `run` does."""
        worker = greenlet(body)
        self._ranks[worker] = rank
        self._push(0, _WORKER, self._tie(rank), worker)

    def at(self, time_ns: int, key: Key, action: Callable[[], None]) -> None:
        """Let the network act at a time, or now if that is past."""
        self._push(max(time_ns, self.now), _NETWORK, key, action)

    def wake(self, time_ns: int, worker: greenlet, rank: int) -> None:
        """Let a parked worker go on at a time, or now if that is past."""
        self._push(max(time_ns, self.now), _WORKER, self._tie(rank), worker)

    def sleep_until(self, time_ns: int, rank: int) -> None:
        """Called by a worker: others run until then."""
        if self._stopped.is_set():
            raise Stopped
        if not self._heap or self._heap[0][0] > time_ns:  # nobody else is due before
            self.now = max(self.now, time_ns)
            return
        self.wake(time_ns, getcurrent(), rank)
        self.park()

    def park(self) -> None:
        """Called by a worker: others run until somebody wakes it."""
        assert self._hub is not None, "only workers of a running simulation can be parked"
        self._hub.switch()

    def run(self) -> None:
        """Until all workers have ended.

        Raises:
            SimulationError: a worker raised, or waits for what never comes.
            Stopped: it was stopped.
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
                    self._resume(action)
                else:
                    action()
            for worker, rank in self._ranks.items():
                if not worker.dead:
                    error = CommError(f"rank {rank} waits for a peer that does not take part")
                    raise SimulationError(rank, str(error)) from error
        finally:
            self._end()

    def _resume(self, worker: greenlet) -> None:
        worker.parent = getcurrent()
        leave = self._own(self._ranks[worker]) if self._own is not None else None
        try:
            worker.switch()
            if leave is not None:
                leave()
        except Stopped:
            raise
        except Exception as error:
            rank = self._ranks[worker]
            raise SimulationError(rank, str(error) or type(error).__name__) from error

    def _end(self) -> None:
        """Unwind workers that did not come to their end."""
        for worker in self._ranks:
            if worker and not worker.dead:
                worker.parent = getcurrent()
                worker.throw(GreenletExit)
        self._ranks.clear()
        self._heap.clear()

    def _tie(self, rank: int) -> Key:
        return (rank,) if self._order is None else (self._order.getrandbits(62), rank)

    def _push(self, time_ns: int, kind: int, key: Key, action: greenlet | Callable[[], None]) -> None:
        self._serial += 1
        heappush(self._heap, (time_ns, kind, key, self._serial, action))


class Stopped(Exception):
    """The simulation was stopped from outside."""


class SwitchError(RuntimeError):
    """A worker would wait where workers that share a thread must not be switched."""


def refuse_inside_autograd() -> None:
    """Torch keeps the state of autograd by thread, and all workers share one: a switch there would corrupt another's.

    Raises:
        SwitchError: inside a backward pass or its hooks, or where gradients are off.
    """
    if torch._C._current_graph_task_id() != -1:
        raise SwitchError("virtual: a worker waits inside a backward pass or its hooks; wait after it")
    if not torch.is_grad_enabled():
        raise SwitchError("virtual: a worker waits inside no_grad; wait before or after it")
