"""Replicas in the threads of one process, for tests, oracles and convergence studies, not for timing.

Give each replica its own `torch.Generator`: `torch.manual_seed` is global to the process, so threads would race for it.
"""

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from wanbench.workloads.comm.base import CommError, Terms, Vector
from wanbench.workloads.comm.blocks import Blocks
from wanbench.workloads.comm.memory import AnyWork, MemoryComm, MemoryExchange, MemoryGroup, MemoryWork

T = TypeVar("T")
Lost = Callable[[int, int, int, int], bool]
"""(number of the exchange, sender, receiver, number of the block) -> True if the block is lost."""


@dataclass
class _Flight:
    """An operation in progress. It ends when all events that it `needs` have happened, or with an `error`."""

    name: str
    needs: set[Hashable]
    number: int = 0
    rank: int = 0
    nbytes: int = 0
    error: str = ""


@dataclass
class Threads:
    """The fabric of workers that are threads. Messages take no time; workers only wait for each other.

    There are no deadlines: if a peer does not join, the operation fails.

    Attributes:
        world_size: number of workers. timeout_s: how long an operation waits for a peer.
        lost: selects the blocks of exchanges that are lost; by default none.
    """

    world_size: int
    timeout_s: float = 60.0
    lost: Lost | None = None
    together: threading.Condition = field(default_factory=threading.Condition)
    _failure: str = ""
    _happened: set[Hashable] = field(default_factory=set)
    _collectives: dict[int, _Flight] = field(default_factory=dict)

    def fail(self, reason: str) -> None:
        """Make every current and later wait raise `CommError`."""
        with self.together:
            self._failure = self._failure or reason
            self.together.notify_all()

    def now(self) -> int:
        """Nanoseconds of the host's clock."""
        return time.monotonic_ns()

    def sleep(self, rank: int, ns: int) -> None:
        """Sleep in real time."""
        time.sleep(ns / 1e9)

    def collective(self, rank: int, sequence: int, nbytes: int, *, gathers: bool) -> _Flight:
        """Join an all_reduce or an all_gather. If ranks disagree, this and all waits for it raise CommError."""
        name = f"{'all_gather' if gathers else 'all_reduce'} {sequence}"
        with self.together:
            flight = self._collectives.get(sequence)
            if flight is None:
                everyone: set[Hashable] = {(sequence, peer) for peer in range(self.world_size)}
                flight = self._collectives[sequence] = _Flight(name, everyone, nbytes=nbytes)
            if (flight.name, flight.nbytes) != (name, nbytes):
                gave = f"rank {rank} gave {nbytes} bytes to {name}, others {flight.nbytes}"
                flight.error = f"ranks disagree on {flight.name}: {gave}"
            self._announce((sequence, rank))
            if flight.error:
                raise CommError(flight.error)
        return flight

    def message(self, src: int, dst: int, number: int, nbytes: int) -> _Flight:
        """Send a message. It arrives at once."""
        self._announce(("message", src, dst, number))
        return _Flight("send", set())

    def expect(self, src: int, dst: int, number: int) -> _Flight:
        """Return the same message as the receiver sees it."""
        return _Flight(f"message {number} from rank {src}", {("message", src, dst, number)})

    def exchange(
        self, rank: int, number: int, sends: Mapping[int, tuple[int, int]], expected: Mapping[int, int], terms: Terms
    ) -> _Flight:
        """Join an exchange. It ends when all peers have joined it."""
        for peer in sends:
            self._announce(("exchange", rank, peer, number))
        keys: set[Hashable] = {("exchange", peer, rank, number) for peer in expected}
        return _Flight(f"exchange {number}", keys, number, rank)

    def there(self, flight: _Flight, peer: int, cut: Blocks) -> list[bool]:
        """Return for each block whether it arrived."""
        lost = self.lost
        return [lost is None or not lost(flight.number, peer, flight.rank, block) for block in range(cut.count)]

    def done(self, flight: _Flight, rank: int) -> bool:
        """True if `wait` would return, or raise, at once."""
        return flight.error != "" or flight.needs <= self._happened

    def ended(self, flight: _Flight, rank: int) -> None:
        """None: the fabric of threads does not record when operations end."""

    def wait(self, flight: _Flight, rank: int, until_ns: int | None = None) -> None:
        """Return when the operation has ended, or at `until_ns`, whichever is first. Raises: CommError."""
        self._wait([flight], rank, until_ns, f"{flight.name}: peers did not join within {self.timeout_s:g} s")

    def wait_first(self, flights: Sequence[_Flight], rank: int, until_ns: int | None = None) -> None:
        """Return when one of the messages has arrived, or at `until_ns`. Raises: CommError."""
        self._wait(flights, rank, until_ns, f"no peer sent a message within {self.timeout_s:g} s")

    def _wait(self, flights: Sequence[_Flight], rank: int, until_ns: int | None, late: str) -> None:
        seconds = self.timeout_s if until_ns is None else max(0.0, (until_ns - self.now()) / 1e9)
        with self.together:
            in_time = self.together.wait_for(
                lambda: self._failure != "" or any(self.done(flight, rank) for flight in flights), seconds
            )
        error = self._failure or next((flight.error for flight in flights if flight.error), "")
        if error or (not in_time and until_ns is None):
            raise CommError(error or late)

    def background(self, rank: int, body: Callable[[], None]) -> _Flight:
        """Run `body` in a thread. Its error fails all waits."""
        end = object()

        def run() -> None:
            try:
                body()
                self._announce(end)
            except Exception as error:
                self.fail(f"the background of rank {rank} failed: {error}")

        threading.Thread(target=run, daemon=True).start()
        return _Flight(f"the background of rank {rank}", {end})

    def _announce(self, event: Hashable) -> None:
        with self.together:
            self._happened.add(event)
            self.together.notify_all()


class LocalComm(MemoryComm):
    """A `Comm` for one thread. Values that have not arrived read as NaN.

    Attributes:
        max_outstanding: the largest value of `outstanding` so far.
    """

    def __init__(self, group: MemoryGroup, rank: int) -> None:
        super().__init__(group, rank)
        self.max_outstanding = 0
        self._works: list[MemoryWork] = []

    @property
    def outstanding(self) -> int:
        """The number of operations that were issued but not waited for."""
        self._works = [work for work in self._works if not work.waited]
        return len(self._works)

    def all_reduce(self, vector: Vector) -> MemoryWork:
        """As in `MemoryComm`; `vector` belongs to the operation and is NaN until `wait` returns."""
        given = vector.clone()
        vector.mul_(float("nan"))
        return self._collective(given, [vector], gathers=False)

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> MemoryExchange:
        """As in `MemoryComm`. Lost blocks are NaN in the receiver's vector."""
        for vector in receives.values():
            vector.fill_(float("nan"))
        return super().exchange(sends, receives, terms)

    def _issued(self, work: AnyWork) -> AnyWork:
        self._works.append(work)
        self.max_outstanding = max(self.max_outstanding, self.outstanding)
        return work


def run_replicas(
    world_size: int, body: Callable[[LocalComm], T], timeout_s: float = 60.0, lost: Lost | None = None
) -> list[T]:
    """Run `body(comm)` once per rank, each in its own thread; return the results in the order of ranks.

    `lost` selects the blocks of exchanges that are lost; by default none.

    Raises:
        Exception: the exception of the first replica that failed; the others are released with a `CommError`.
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
