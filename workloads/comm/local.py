"""Replicas in the threads of one process: for tests, oracles and convergence studies, not for timing.

Give each replica a `torch.Generator` of its own: `torch.manual_seed` is global to the process, so that
threads race for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from wanbench.workloads.comm.base import CommError, Vector
from wanbench.workloads.comm.blocks import Blocks
from wanbench.workloads.comm.exchange import Terms
from wanbench.workloads.comm.memory import AnyWork, MemoryComm, MemoryExchange, MemoryGroup, MemoryWork

T = TypeVar("T")
Lost = Callable[[int, int, int, int], bool]
"""(number of the exchange, sender, receiver, number of the block) -> whether it is lost."""


@dataclass
class _Flight:
    """An operation that ends once all that it `needs` has come, or with an `error`."""

    what: str
    needs: set[Hashable]
    number: int = 0
    rank: int = 0
    nbytes: int = 0
    error: str = ""


@dataclass
class Threads:
    """The fabric of workers that are threads: nothing takes time but waiting for one another.

    There are no deadlines: a peer that does not come fails the operation.

    Attributes:
        world_size: how many. timeout_s: after which a peer does not come.
        lost: which blocks of exchanges do not arrive; by default all do.
    """

    world_size: int
    timeout_s: float = 60.0
    lost: Lost | None = None
    together: threading.Condition = field(default_factory=threading.Condition)
    _failure: str = ""
    _come: set[Hashable] = field(default_factory=set)
    _collectives: dict[int, _Flight] = field(default_factory=dict)

    def fail(self, reason: str) -> None:
        """Make every present and later wait raise `CommError`."""
        with self.together:
            self._failure = self._failure or reason
            self.together.notify_all()

    def now(self) -> int:
        """Nanoseconds of the host."""
        return time.monotonic_ns()

    def sleep(self, rank: int, ns: int) -> None:
        """Really."""
        time.sleep(ns / 1e9)

    def all_reduce(self, rank: int, sequence: int, nbytes: int) -> _Flight:
        """Join an all_reduce. Raises: CommError, here and in all waits for it, if ranks disagree."""
        return self._join("all_reduce", rank, sequence, nbytes)

    def all_gather(self, rank: int, sequence: int, nbytes: int) -> _Flight:
        return self._join("all_gather", rank, sequence, nbytes)

    def _join(self, what: str, rank: int, sequence: int, nbytes: int) -> _Flight:
        name = f"{what} {sequence}"
        with self.together:
            flight = self._collectives.get(sequence)
            if flight is None:
                everyone: set[Hashable] = {(sequence, peer) for peer in range(self.world_size)}
                flight = self._collectives[sequence] = _Flight(name, everyone, nbytes=nbytes)
            if (flight.what, flight.nbytes) != (name, nbytes):
                gave = f"rank {rank} gave {nbytes} bytes to {name}, others {flight.nbytes}"
                flight.error = f"ranks disagree on {flight.what}: {gave}"
            self._came((sequence, rank))
            if flight.error:
                raise CommError(flight.error)
        return flight

    def message(self, src: int, dst: int, number: int, nbytes: int) -> _Flight:
        """A message is there as soon as it is sent."""
        self._came(("message", src, dst, number))
        return _Flight("send", set())

    def expect(self, src: int, dst: int, number: int) -> _Flight:
        """The same message, as its receiver knows it."""
        return _Flight(f"message {number} from rank {src}", {("message", src, dst, number)})

    def exchange(
        self, rank: int, number: int, sends: Mapping[int, tuple[int, int]], expected: Mapping[int, int], terms: Terms
    ) -> _Flight:
        """Join an exchange, which ends when all peers have joined it."""
        for peer in sends:
            self._came(("exchange", rank, peer, number))
        keys: set[Hashable] = {("exchange", peer, rank, number) for peer in expected}
        return _Flight(f"exchange {number}", keys, number, rank)

    def there(self, flight: _Flight, peer: int, cut: Blocks) -> list[bool]:
        """Which blocks are not lost."""
        lost = self.lost
        return [lost is None or not lost(flight.number, peer, flight.rank, block) for block in range(cut.count)]

    def done(self, flight: _Flight, rank: int) -> bool:
        """True if `wait` would return, or raise, at once."""
        return flight.error != "" or flight.needs <= self._come

    def ended(self, flight: _Flight, rank: int) -> None:
        """Not known: threads have no common clock."""

    def wait(self, flight: _Flight, rank: int, until_ns: int | None = None) -> None:
        """Return when the operation has ended, or at `until_ns` if not. Raises: CommError."""
        seconds = self.timeout_s if until_ns is None else max(0.0, (until_ns - self.now()) / 1e9)
        with self.together:
            in_time = self.together.wait_for(lambda: self._failure != "" or self.done(flight, rank), seconds)
        if self._failure or flight.error:
            raise CommError(self._failure or flight.error)
        if not in_time and until_ns is None:
            raise CommError(f"{flight.what}: peers did not come within {self.timeout_s:g} s")

    def _came(self, what: Hashable) -> None:
        with self.together:
            self._come.add(what)
            self.together.notify_all()


class LocalComm(MemoryComm):
    """A `Comm` for one thread, in which reading what is not there shows as NaN.

    Attributes:
        most_outstanding: the largest value that `outstanding` has had.
    """

    def __init__(self, group: MemoryGroup, rank: int) -> None:
        super().__init__(group, rank)
        self.most_outstanding = 0
        self._works: list[MemoryWork] = []

    @property
    def outstanding(self) -> int:
        """Operations issued and not waited for."""
        self._works = [work for work in self._works if not work.waited]
        return len(self._works)

    def all_reduce(self, vector: Vector) -> MemoryWork:
        """As `MemoryComm`; `vector` belongs to the operation: it is NaN until `wait` returns."""
        given = vector.clone()
        vector.mul_(float("nan"))
        return self._collective(self.group.fabric.all_reduce, given, [vector], gather=False)

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> MemoryExchange:
        """As `MemoryComm`; what is lost is NaN in the receiver's vector."""
        for vector in receives.values():
            vector.fill_(float("nan"))
        return super().exchange(sends, receives, terms)

    def _issued(self, work: AnyWork) -> AnyWork:
        self._works.append(work)
        self.most_outstanding = max(self.most_outstanding, self.outstanding)
        return work


def run_replicas(
    world_size: int, body: Callable[[LocalComm], T], timeout_s: float = 60.0, lost: Lost | None = None
) -> list[T]:
    """Run `body(comm)` once for each rank, each in a thread; their results in the order of ranks.

    `lost`: which blocks of exchanges do not arrive; by default all do.

    Raises:
        Exception: what the first replica to fail raised; the others are released with a `CommError`.
    """
    threads = Threads(world_size, timeout_s, lost)
    group = MemoryGroup(world_size, threads)
    results: dict[int, T] = {}
    errors: list[Exception] = []

    def work(rank: int) -> None:
        try:
            results[rank] = body(LocalComm(group, rank))
        except Exception as error:
            errors.append(error)
            threads.fail(f"rank {rank} failed: {error}")

    running = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(world_size)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(world_size)]
