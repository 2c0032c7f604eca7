"""All workers in one process, which exchange vectors through its memory.

What an operation means is decided here; when it ends, and how one waits for that, by the `Fabric`: that of a simulated
clock, or of threads (`workloads.comm.local`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from wanbench.workloads.comm.base import CommError, Vector
from wanbench.workloads.comm.blocks import Blocks
from wanbench.workloads.comm.exchange import Terms

AnyWork = TypeVar("AnyWork", bound="MemoryWork")


class Fabric(Protocol):
    """Time, and what lies between the workers. All times are integer nanoseconds of one clock.

    A flight is an operation under way, as the fabric knows it; nobody else looks into it.

    Attributes:
        together: held while an operation is issued and while its result is taken.
    """

    @property
    def together(self) -> AbstractContextManager[object]:
        """See the class."""

    def now(self) -> int:
        """The time."""

    def sleep(self, rank: int, ns: int) -> None:
        """Let `ns` pass for this worker; others run meanwhile."""

    def all_reduce(self, rank: int, sequence: int, nbytes: int) -> Any:
        """This worker joins all_reduce number `sequence`. Raises: CommError, if it brings another size."""

    def all_gather(self, rank: int, sequence: int, nbytes: int) -> Any:
        """The same for an all_gather; all collectives share one numbering."""

    def message(self, src: int, dst: int, number: int, nbytes: int) -> Any:
        """Message `number` from `src` to `dst` leaves."""

    def expect(self, src: int, dst: int, number: int) -> Any:
        """The same message, as its receiver knows it, perhaps before it left."""

    def exchange(
        self, rank: int, number: int, sends: Mapping[int, tuple[int, int]], expected: Mapping[int, int], terms: Terms
    ) -> Any:
        """This worker joins its exchange `number`.

        Args:
            sends: (datagrams, bytes) to each peer that gets any. expected: datagrams from each peer that sends any.
        """

    def there(self, flight: Any, peer: int, cut: Blocks) -> Sequence[bool]:
        """Which blocks of the vector of `peer`, so cut, had come when the exchange ended."""

    def done(self, flight: Any, rank: int) -> bool:
        """True if `wait` would return at once."""

    def ended(self, flight: Any, rank: int) -> int | None:
        """When the operation ended for this worker; None while that is not known."""

    def wait(self, flight: Any, rank: int, until_ns: int | None = None) -> None:
        """Return when the operation has ended for this worker, or at `until_ns` if not; others run meanwhile."""


@dataclass
class _Slot:
    """Contributions to one collective; once all are there, what came of them."""

    given: dict[int, Vector] = field(default_factory=dict)
    results: Sequence[Vector] = ()
    taken: int = 0


class MemoryGroup:
    """What the workers exchange. Operations are matched by their sequence number."""

    def __init__(self, world_size: int, fabric: Fabric) -> None:
        self.world_size = world_size
        self.fabric = fabric
        self.slots: dict[int, _Slot] = {}
        self.letters: dict[tuple[int, int, int], Vector] = {}
        self.datagrams: dict[tuple[int, int, int], Vector] = {}
        self.ended: set[tuple[int, int, int]] = set()

    def give(self, sequence: int, rank: int, vector: Vector, *, gather: bool) -> None:
        """Contribute. The vector is read when the last rank contributes, so it must stay as it is until its wait."""
        slot = self.slots.setdefault(sequence, _Slot())
        slot.given[rank] = vector
        if len(slot.given) < self.world_size:
            return
        first, *others = (slot.given[peer] for peer in range(self.world_size))
        slot.given = {}
        if gather:
            slot.results = [first.clone(), *(other.clone() for other in others)]
            return
        mean = first.clone()
        for other in others:  # in the order of ranks, so that the bits do not depend on who came last
            mean.add_(other)
        slot.results = [mean.mul_(1.0 / self.world_size)]

    def take(self, sequence: int, vectors: Sequence[Vector]) -> None:
        """Copy the result into a contributor's vectors: one for the mean, one a rank of what was gathered."""
        slot = self.slots[sequence]
        for vector, found in zip(vectors, slot.results, strict=True):
            vector.copy_(found)
        slot.taken += 1
        if slot.taken == self.world_size:
            del self.slots[sequence]


class MemoryWork:
    """An operation under way.

    Attributes:
        waited: its `wait` has returned.
    """

    def __init__(self, comm: MemoryComm, flight: Any) -> None:
        self._comm = comm
        self._flight = flight
        self.waited = False

    def done(self) -> bool:
        """True once `wait` would return at once."""
        return self.waited or self._comm.group.fabric.done(self._flight, self._comm.rank)

    @property
    def ended_ns(self) -> int | None:
        """When the result was there; None while that is not known."""
        return self._comm.group.fabric.ended(self._flight, self._comm.rank)

    def wait(self) -> None:
        """Let others run until this has ended; a second call returns at once.

        Raises:
            CommError: the operation can never end, because a peer does not take part or ranks disagree.
        """
        if not self.waited:
            fabric = self._comm.group.fabric
            fabric.wait(self._flight, self._comm.rank)
            with fabric.together:
                self._finish()
            self.waited = True

    def wait_for(self, seconds: float) -> bool:
        """Let others run until this has ended, or `seconds` have passed; true if it has. Raises: as `wait`."""
        if not self.done():
            fabric = self._comm.group.fabric
            fabric.wait(self._flight, self._comm.rank, fabric.now() + round(seconds * 1e9))
        if self.done():
            self.wait()
        return self.waited

    def _finish(self) -> None:
        """The result is here."""


class _Collective(MemoryWork):
    def __init__(self, comm: MemoryComm, flight: Any, sequence: int, vectors: Sequence[Vector]) -> None:
        super().__init__(comm, flight)
        self._sequence, self._vectors = sequence, vectors

    def _finish(self) -> None:
        self._comm.group.take(self._sequence, self._vectors)


class _Reception(MemoryWork):
    def __init__(self, comm: MemoryComm, flight: Any, key: tuple[int, int, int], vector: Vector) -> None:
        super().__init__(comm, flight)
        self._key, self._vector = key, vector

    def _finish(self) -> None:
        letter = self._comm.group.letters.pop(self._key)
        src, _, number = self._key
        _check_size(f"message {number} from rank {src}", letter, self._vector)
        self._vector.copy_(letter)


class MemoryExchange(MemoryWork):
    """An exchange under way. See `workloads.comm.exchange.Exchange`."""

    def __init__(
        self, comm: MemoryComm, flight: Any, number: int, receives: Mapping[int, Vector], cuts: Mapping[int, Blocks]
    ) -> None:
        super().__init__(comm, flight)
        self._number, self._receives, self._cuts = number, receives, cuts
        self.arrived: dict[int, list[slice]] = {peer: [] for peer in receives}
        self.blocks = (0, 0)

    def _finish(self) -> None:
        expected = there = 0
        for peer, cut in self._cuts.items():
            if not cut.count:
                continue
            blocks = self._comm.group.fabric.there(self._flight, peer, cut)
            expected, there = expected + cut.count, there + blocks.count(True)
            self.arrived[peer] = cut.runs(blocks)
            self._copy(peer, self.arrived[peer])
        self.blocks = expected, expected - there

    def _copy(self, peer: int, runs: Sequence[slice]) -> None:
        group, key = self._comm.group, (peer, self._comm.rank, self._number)
        sent = group.datagrams.pop(key, None)
        if sent is None:  # the peer has not come that far, and will send to nobody
            group.ended.add(key)
            return
        _check_size(f"the vector of exchange {self._number} from rank {peer}", sent, self._receives[peer])
        for run in runs:
            self._receives[peer][run].copy_(sent[run])


class MemoryComm:
    """A `Comm` for one worker of a group.

    Attributes:
        rank, world_size: this worker's place.
    """

    def __init__(self, group: MemoryGroup, rank: int) -> None:
        self.group = group
        self.rank = rank
        self.world_size = group.world_size
        self._collectives = 0
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()
        self._exchanged = 0

    def all_reduce(self, vector: Vector) -> MemoryWork:
        """Replace `vector` by its mean over all ranks: the same bits on each."""
        return self._collective(self.group.fabric.all_reduce, vector, [vector], gather=False)

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> MemoryWork:
        """Fill `parts` with the vectors of all ranks, in their order."""
        return self._collective(self.group.fabric.all_gather, vector, parts, gather=True)

    def send(self, vector: Vector, dst: int) -> MemoryWork:
        """Send a copy of `vector`; done at once, as where a socket takes it."""
        key = (self.rank, dst, self._sent[dst])
        self._sent[dst] += 1
        self.group.letters[key] = vector.clone()
        return self._issued(MemoryWork(self, self.group.fabric.message(*key, _nbytes(vector))))

    def recv(self, vector: Vector, src: int) -> MemoryWork:
        """Fill `vector` with the next message from rank `src`."""
        key = (src, self.rank, self._received[src])
        self._received[src] += 1
        return self._issued(_Reception(self, self.group.fabric.expect(*key), key, vector))

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> MemoryExchange:
        """Send each peer its vector in blocks, some of which may be lost."""
        number, leaving = self._exchanged, {}
        self._exchanged += 1
        for peer, vector in sends.items():
            cut, key = _cut(vector, terms), (self.rank, peer, number)
            if cut.count:
                leaving[peer] = cut.datagrams, _nbytes(vector)
                if key in self.group.ended:
                    self.group.ended.discard(key)
                else:
                    self.group.datagrams[key] = vector.clone()
        cuts = {peer: _cut(vector, terms) for peer, vector in receives.items()}
        expected = {peer: cut.datagrams for peer, cut in cuts.items() if cut.count}
        flight = self.group.fabric.exchange(self.rank, number, leaving, expected, terms)
        return self._issued(MemoryExchange(self, flight, number, receives, cuts))

    def close(self) -> None:
        """Nothing to release."""

    def _collective(
        self, join: Callable[[int, int, int], Any], vector: Vector, into: Sequence[Vector], *, gather: bool
    ) -> MemoryWork:
        sequence = self._collectives
        self._collectives += 1
        with self.group.fabric.together:
            flight = join(self.rank, sequence, _nbytes(vector))
            self.group.give(sequence, self.rank, vector, gather=gather)
        return self._issued(_Collective(self, flight, sequence, into))

    def _issued(self, work: AnyWork) -> AnyWork:
        """Every operation passes here."""
        return work


def _nbytes(vector: Vector) -> int:
    return vector.numel() * vector.element_size()


def _cut(vector: Vector, terms: Terms) -> Blocks:
    return Blocks(vector.numel(), vector.element_size(), terms.block_bytes)


def _check_size(what: str, found: Vector, wanted: Vector) -> None:
    if found.numel() != wanted.numel():
        raise CommError(f"{what} has {found.numel()} elements, expected {wanted.numel()}")
