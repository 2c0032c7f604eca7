"""All workers in one process exchange vectors through its memory.

This module computes the result of an operation. The `Fabric` decides when it ends and how a worker waits for it; there
is one fabric for the simulated clock and one for threads (`workloads.comm.local`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar, cast

from wanbench.workloads.comm.base import CommError, Terms, Vector, Work, nbytes_of
from wanbench.workloads.comm.blocks import Blocks
from wanbench.workloads.comm.work import first_ended

AnyWork = TypeVar("AnyWork", bound="MemoryWork")
_PER_TAG = 1 << 40  # messages of one tag between two ranks


class Fabric(Protocol):
    """The clock and the network between the workers. All times are integer nanoseconds of one clock.

    A flight is the fabric's record of an operation in progress; only the fabric reads it.
    """

    @property
    def together(self) -> AbstractContextManager[object]:
        """Held while an operation is issued and while its result is collected."""

    def now(self) -> int:
        """The time."""

    def sleep(self, rank: int, ns: int) -> None:
        """Let `ns` pass for this worker while others run."""

    def collective(self, rank: int, sequence: int, nbytes: int, *, gathers: bool) -> Any:
        """Join collective number `sequence` for this worker: an all_gather or an all_reduce.

        Raises:
            CommError: sizes differ.
        """

    def message(self, src: int, dst: int, number: int, nbytes: int) -> Any:
        """Send message `number` from `src` to `dst`."""

    def expect(self, src: int, dst: int, number: int) -> Any:
        """Return the same message as the receiver sees it, possibly before it is sent."""

    def exchange(
        self, rank: int, number: int, sends: Mapping[int, tuple[int, int]], expected: Mapping[int, int], terms: Terms
    ) -> Any:
        """Join this worker's exchange `number`.

        Args:
            sends: (datagrams, bytes) to each peer that gets any. expected: datagrams from each peer that sends any.
        """

    def there(self, flight: Any, peer: int, cut: Blocks) -> Sequence[bool]:
        """Return for each block of the vector of `peer` whether it had arrived when the exchange ended."""

    def done(self, flight: Any, rank: int) -> bool:
        """True if `wait` would return at once."""

    def ended(self, flight: Any, rank: int) -> int | None:
        """When the operation ended for this worker; None if that is unknown."""

    def wait(self, flight: Any, rank: int, until_ns: int | None = None) -> None:
        """Let others run until the operation has ended for this worker, or until `until_ns`."""

    def wait_first(self, flights: Sequence[Any], rank: int, until_ns: int | None = None) -> None:
        """Let others run until one of these messages has arrived, or until `until_ns`."""

    def background(self, rank: int, body: Callable[[], None]) -> Any:
        """Run `body` beside a worker, and return the flight that ends with it."""


@dataclass
class _Slot:
    """The contributions to one collective, then its results."""

    contributions: dict[int, Vector] = field(default_factory=dict)
    results: Sequence[Vector] = ()
    collected: int = 0


class MemoryGroup:
    """The vectors that the workers exchange. Operations are matched by their sequence number."""

    def __init__(self, world_size: int, fabric: Fabric) -> None:
        self.world_size, self.fabric = world_size, fabric
        self.slots: dict[int, _Slot] = {}
        self.messages: dict[tuple[int, int, int], Vector] = {}
        self.datagrams: dict[tuple[int, int, int], Vector] = {}
        self.ended: set[tuple[int, int, int]] = set()

    def contribute(self, sequence: int, rank: int, vector: Vector, *, gathers: bool) -> None:
        """Add a contribution. It is read when the last rank contributes, so it must not change until its wait."""
        slot = self.slots.setdefault(sequence, _Slot())
        slot.contributions[rank] = vector
        if len(slot.contributions) < self.world_size:
            return
        first, *rest = (slot.contributions[peer] for peer in range(self.world_size))
        slot.contributions = {}
        if gathers:
            slot.results = [first.clone(), *(other.clone() for other in rest)]
            return
        mean = first.clone()
        for other in rest:  # in the order of ranks, so the bits do not depend on the order of arrival
            mean.add_(other)
        slot.results = [mean.mul_(1.0 / self.world_size)]

    def collect(self, sequence: int, vectors: Sequence[Vector]) -> None:
        """Copy the results into a contributor's vectors: one for a mean, one per rank for a gather."""
        slot = self.slots[sequence]
        for vector, result in zip(vectors, slot.results, strict=True):
            vector.copy_(result)
        slot.collected += 1
        if slot.collected == self.world_size:
            del self.slots[sequence]


class MemoryWork:
    """An operation in progress.

    Args:
        finish: collects the result.

    Attributes:
        waited: True once its `wait` has returned.
    """

    def __init__(self, comm: MemoryComm, flight: Any, finish: Callable[[], None] = lambda: None) -> None:
        self._rank, self._fabric, self.flight, self._finish = comm.rank, comm.group.fabric, flight, finish
        self.waited = False

    def done(self) -> bool:
        """True once `wait` would return at once."""
        return self.waited or self._fabric.done(self.flight, self._rank)

    @property
    def ended_ns(self) -> int | None:
        """When the result arrived; None if that is unknown."""
        return self._fabric.ended(self.flight, self._rank)

    def wait(self) -> None:
        """Let others run until the operation has ended; a second call returns at once.

        Raises:
            CommError: the operation can never end, because a peer does not join or ranks disagree.
        """
        if not self.waited:
            self._fabric.wait(self.flight, self._rank)
            with self._fabric.together:
                self._finish()
            self.waited = True

    def wait_for(self, seconds: float) -> bool:
        """Let others run until the operation has ended, for at most `seconds`; True if it has. Raises: as `wait`."""
        if not self.done():
            self._fabric.wait(self.flight, self._rank, self._fabric.now() + round(seconds * 1e9))
        if self.done():
            self.wait()
        return self.waited


class MemoryExchange(MemoryWork):
    """An `Exchange` in progress."""

    def __init__(
        self, comm: MemoryComm, flight: Any, number: int, receives: Mapping[int, Vector], cuts: Mapping[int, Blocks]
    ) -> None:
        super().__init__(comm, flight, self._collect)
        self._group, self._number, self._receives, self._cuts = comm.group, number, receives, cuts
        self.arrived: dict[int, list[slice]] = {peer: [] for peer in receives}
        self.blocks = (0, 0)

    def _collect(self) -> None:
        there = {peer: self._fabric.there(self.flight, peer, cut) for peer, cut in self._cuts.items() if cut.count}
        for peer, blocks in there.items():
            self.arrived[peer] = self._cuts[peer].runs(blocks)
            self._copy(peer)
        self.blocks = sum(map(len, there.values())), sum(blocks.count(False) for blocks in there.values())

    def _copy(self, peer: int) -> None:
        key = peer, self._rank, self._number
        sent = self._group.datagrams.pop(key, None)
        if sent is None:  # the peer has not begun this exchange yet; its vector will not be needed
            self._group.ended.add(key)
            return
        _check_size(f"the vector of exchange {self._number} from rank {peer}", sent, self._receives[peer])
        for run in self.arrived[peer]:
            self._receives[peer][run].copy_(sent[run])


class MemoryComm:
    """A `Comm` for one worker of a group.

    Attributes:
        rank: this worker's rank. world_size: number of workers.
    """

    def __init__(self, group: MemoryGroup, rank: int) -> None:
        self.group, self.rank, self.world_size = group, rank, group.world_size
        self._collectives, self._exchanges = count(), count()
        self._sent: dict[tuple[int, int], Iterator[int]] = defaultdict(count)  # by receiver and tag
        self._received: dict[tuple[int, int], Iterator[int]] = defaultdict(count)  # by sender and tag

    def all_reduce(self, vector: Vector) -> MemoryWork:
        """Replace `vector` with its mean over all ranks; all ranks get the same bits."""
        return self._collective(vector, [vector], gathers=False)

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> MemoryWork:
        """Fill `parts` with the vectors of all ranks, in the order of ranks."""
        return self._collective(vector, parts, gathers=True)

    def now(self) -> int:
        """Nanoseconds of the fabric's clock."""
        return self.group.fabric.now()

    def send(self, vector: Vector, dst: int, tag: int = 0) -> MemoryWork:
        """Send a copy of `vector`. Done when the fabric says that the sender has got rid of it."""
        key = (self.rank, dst, tag * _PER_TAG + next(self._sent[dst, tag]))
        self.group.messages[key] = vector.clone()
        return self._issued(MemoryWork(self, self.group.fabric.message(*key, nbytes_of(vector))))

    def recv(self, vector: Vector, src: int, tag: int = 0) -> MemoryWork:
        """Fill `vector` with the next message from rank `src` with this tag."""
        key = (src, self.rank, tag * _PER_TAG + next(self._received[src, tag]))
        return self._issued(MemoryWork(self, self.group.fabric.expect(*key), partial(self._receive, key, vector)))

    def _receive(self, key: tuple[int, int, int], vector: Vector) -> None:
        message = self.group.messages.pop(key)
        _check_size(f"message {key[2]} from rank {key[0]}", message, vector)
        vector.copy_(message)

    def first(self, receives: Mapping[int, Work], until_ns: int | None = None) -> int | None:
        works = {key: cast(MemoryWork, work) for key, work in receives.items()}
        while (key := first_ended(works)) is None:
            if until_ns is not None and self.now() >= until_ns:
                return None
            self.group.fabric.wait_first([work.flight for work in works.values()], self.rank, until_ns)
        return key

    def background(self, body: Callable[[Any], None]) -> MemoryWork:
        return self._issued(MemoryWork(self, self.group.fabric.background(self.rank, lambda: body(self))))

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> MemoryExchange:
        """Send each peer its vector in blocks; blocks can be lost."""
        number, leaving = next(self._exchanges), {}
        for peer, vector in sends.items():
            cut, key = terms.blocks(vector), (self.rank, peer, number)
            if cut.count:
                leaving[peer] = cut.datagrams, nbytes_of(vector)
                if key in self.group.ended:
                    self.group.ended.discard(key)
                else:
                    self.group.datagrams[key] = vector.clone()
        cuts = {peer: terms.blocks(vector) for peer, vector in receives.items()}
        expected = {peer: cut.datagrams for peer, cut in cuts.items() if cut.count}
        flight = self.group.fabric.exchange(self.rank, number, leaving, expected, terms)
        return self._issued(MemoryExchange(self, flight, number, receives, cuts))

    def close(self) -> None:
        """Release nothing."""

    def _collective(self, vector: Vector, into: Sequence[Vector], *, gathers: bool) -> MemoryWork:
        sequence = next(self._collectives)
        with self.group.fabric.together:
            flight = self.group.fabric.collective(self.rank, sequence, nbytes_of(vector), gathers=gathers)
            self.group.contribute(sequence, self.rank, vector, gathers=gathers)
        return self._issued(MemoryWork(self, flight, partial(self.group.collect, sequence, into)))

    def _issued(self, work: AnyWork) -> AnyWork:
        """Return each issued operation; subclasses can record it."""
        return work


def _check_size(name: str, given: Vector, expected: Vector) -> None:
    if given.numel() != expected.numel():
        raise CommError(f"{name} has {given.numel()} elements; expected {expected.numel()}")
