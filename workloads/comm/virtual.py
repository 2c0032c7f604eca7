"""All workers in one process, on a clock that is computed: a wait switches to another worker.

Waiting and sleeping are the only switch points. Neither may happen inside autograd, its hooks or `no_grad`: torch
keeps their state by thread, and all workers share one. Such a call raises `SwitchError` instead of corrupting another
worker's graph.

What an operation means is decided here, how long it takes by the `Fabric`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from wanbench.workloads.comm.base import CommError, Vector
from wanbench.workloads.comm.blocks import Blocks
from wanbench.workloads.comm.exchange import Terms


class SwitchError(RuntimeError):
    """A worker would wait where workers that share a thread must not be switched."""


class Fabric(Protocol):
    """Time, and what lies between the workers. All times are integer nanoseconds of one clock.

    A flight is an operation under way, as the fabric knows it; nobody else looks into it.
    """

    def now(self) -> int:
        """The time."""
        ...

    def sleep(self, rank: int, ns: int) -> None:
        """Let `ns` pass for this worker; others run meanwhile."""
        ...

    def all_reduce(self, rank: int, sequence: int, nbytes: int) -> Any:
        """This worker joins all_reduce number `sequence`. Raises: CommError, if it brings another size."""
        ...

    def all_gather(self, rank: int, sequence: int, nbytes: int) -> Any:
        """The same for an all_gather; all collectives share one numbering."""
        ...

    def message(self, src: int, dst: int, number: int, nbytes: int) -> Any:
        """Message `number` from `src` to `dst` leaves."""
        ...

    def expect(self, src: int, dst: int, number: int) -> Any:
        """The same message, as its receiver knows it, perhaps before it left."""
        ...

    def exchange(
        self, rank: int, number: int, sends: Mapping[int, tuple[int, int]], expected: Mapping[int, int], terms: Terms
    ) -> Any:
        """This worker joins its exchange `number`.

        Args:
            sends: (datagrams, bytes) to each peer that gets any. expected: datagrams from each peer that sends any.
        """
        ...

    def there(self, flight: Any, peer: int) -> Sequence[bool]:
        """Which datagrams of `peer` had come when the exchange ended."""
        ...

    def done(self, flight: Any, rank: int) -> bool:
        """True if `wait` would return at once."""
        ...

    def ended(self, flight: Any, rank: int) -> int | None:
        """When the operation ended for this worker; None while that is not known."""
        ...

    def wait(self, flight: Any, rank: int, until_ns: int | None = None) -> None:
        """Return when the operation has ended for this worker, or at `until_ns` if not; others run meanwhile."""
        ...


def refuse_inside_autograd() -> None:
    """Raises: SwitchError, inside a backward pass or where gradients are off."""
    if torch._C._current_graph_task_id() != -1:
        raise SwitchError("virtual: a worker waits inside a backward pass or its hooks; wait after it")
    if not torch.is_grad_enabled():
        raise SwitchError("virtual: a worker waits inside no_grad; wait before or after it")


@dataclass
class _Slot:
    """Contributions to one collective; once all are there, their mean or the list of them."""

    given: dict[int, Vector] = field(default_factory=dict)
    mean: Vector | None = None
    gathered: list[Vector] | None = None
    taken: int = 0


class VirtualGroup:
    """What the workers of one simulation exchange. Operations are matched by their sequence number."""

    def __init__(self, world_size: int, fabric: Fabric) -> None:
        self.world_size = world_size
        self.fabric = fabric
        self.slots: dict[int, _Slot] = {}
        self.letters: dict[tuple[int, int, int], Vector] = {}
        self.datagrams: dict[tuple[int, int, int], Vector] = {}
        self.ended: set[tuple[int, int, int]] = set()

    def give(self, sequence: int, rank: int, vector: Vector, *, gather: bool = False) -> None:
        """Contribute. The vector is read when the last rank contributes, so it must stay as it is until its wait."""
        slot = self.slots.setdefault(sequence, _Slot())
        slot.given[rank] = vector
        if len(slot.given) == self.world_size and gather:
            slot.gathered = [slot.given[peer].clone() for peer in range(self.world_size)]
            slot.given.clear()
        elif len(slot.given) == self.world_size:
            # In the order of ranks, so that the bits do not depend on who came last.
            mean = slot.given[0].clone()
            for peer in range(1, self.world_size):
                mean.add_(slot.given[peer])
            slot.mean = mean.mul_(1.0 / self.world_size)
            slot.given.clear()

    def take(self, sequence: int, vectors: Sequence[Vector]) -> None:
        """Copy the result into a contributor's vectors: one for the mean, one a rank of what was gathered."""
        slot = self.slots[sequence]
        result = slot.gathered if slot.mean is None else [slot.mean]
        assert result is not None, "the fabric ends no operation that a rank has not joined"
        for vector, found in zip(vectors, result, strict=True):
            vector.copy_(found)
        slot.taken += 1
        if slot.taken == self.world_size:
            del self.slots[sequence]


class VirtualWork:
    """An operation under way."""

    def __init__(self, comm: VirtualComm, flight: Any) -> None:
        self._comm = comm
        self._flight = flight
        self._waited = False

    def done(self) -> bool:
        """True once `wait` would return at once."""
        return self._waited or self._comm.group.fabric.done(self._flight, self._comm.rank)

    @property
    def ended_ns(self) -> int | None:
        """When the result was there; None while that is not known."""
        return self._comm.group.fabric.ended(self._flight, self._comm.rank)

    def wait(self) -> None:
        """Let others run until this has ended; a second call returns at once.

        Raises:
            SwitchError: inside autograd, its hooks or no_grad.
            CommError: the operation can never end, because a peer does not take part.
        """
        if not self._waited:
            refuse_inside_autograd()
            self._comm.group.fabric.wait(self._flight, self._comm.rank)
            self._finish()
            self._waited = True

    def wait_for(self, seconds: float) -> bool:
        """Let others run until this has ended, or `seconds` have passed; true if it has. Raises: as `wait`."""
        if not self.done():
            refuse_inside_autograd()
            fabric = self._comm.group.fabric
            fabric.wait(self._flight, self._comm.rank, fabric.now() + round(seconds * 1e9))
        if self.done():
            self.wait()
        return self._waited

    def _finish(self) -> None:
        """The result is here."""


class _Collective(VirtualWork):
    def __init__(self, comm: VirtualComm, flight: Any, sequence: int, vectors: Sequence[Vector]) -> None:
        super().__init__(comm, flight)
        self._sequence, self._vectors = sequence, vectors

    def _finish(self) -> None:
        self._comm.group.take(self._sequence, self._vectors)


class _Reception(VirtualWork):
    def __init__(self, comm: VirtualComm, flight: Any, key: tuple[int, int, int], vector: Vector) -> None:
        super().__init__(comm, flight)
        self._key, self._vector = key, vector

    def _finish(self) -> None:
        letter = self._comm.group.letters.pop(self._key)
        src, _, number = self._key
        if letter.numel() != self._vector.numel():
            sizes = f"has {letter.numel()} elements, expected {self._vector.numel()}"
            raise CommError(f"message {number} from rank {src} {sizes}")
        self._vector.copy_(letter)


class VirtualExchange(VirtualWork):
    """An exchange under way. See `workloads.comm.exchange.Exchange`."""

    def __init__(
        self, comm: VirtualComm, flight: Any, number: int, receives: Mapping[int, Vector], terms: Terms
    ) -> None:
        super().__init__(comm, flight)
        self._number, self._receives = number, receives
        self._cuts = {
            peer: Blocks(vector.numel(), vector.element_size(), terms.block_bytes) for peer, vector in receives.items()
        }
        self.arrived: dict[int, list[slice]] = {peer: [] for peer in receives}
        self.blocks = (0, 0)

    def _finish(self) -> None:
        expected = there = 0
        for peer, cut in self._cuts.items():
            if not cut.count:
                continue
            blocks = cut.arrived(self._comm.group.fabric.there(self._flight, peer))
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
        for run in runs:
            self._receives[peer][run].copy_(sent[run])


class VirtualComm:
    """A `Comm` for one worker of a simulation.

    Attributes:
        rank, world_size: this worker's place.
    """

    def __init__(self, group: VirtualGroup, rank: int) -> None:
        self.group = group
        self.rank = rank
        self.world_size = group.world_size
        self._reduced = 0
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()
        self._exchanged = 0

    def all_reduce(self, vector: Vector) -> VirtualWork:
        """Replace `vector` by its mean over all ranks: the same bits on each."""
        sequence = self._reduced
        self._reduced += 1
        flight = self.group.fabric.all_reduce(self.rank, sequence, vector.numel() * vector.element_size())
        self.group.give(sequence, self.rank, vector)
        return _Collective(self, flight, sequence, [vector])

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> VirtualWork:
        """Fill `parts` with the vectors of all ranks, in their order."""
        sequence = self._reduced
        self._reduced += 1
        flight = self.group.fabric.all_gather(self.rank, sequence, vector.numel() * vector.element_size())
        self.group.give(sequence, self.rank, vector, gather=True)
        return _Collective(self, flight, sequence, parts)

    def send(self, vector: Vector, dst: int) -> VirtualWork:
        """Send a copy of `vector`; done at once, as where a socket takes it."""
        key = (self.rank, dst, self._sent[dst])
        self._sent[dst] += 1
        self.group.letters[key] = vector.clone()
        flight = self.group.fabric.message(*key, vector.numel() * vector.element_size())
        return VirtualWork(self, flight)

    def recv(self, vector: Vector, src: int) -> VirtualWork:
        """Fill `vector` with the next message from rank `src`."""
        key = (src, self.rank, self._received[src])
        self._received[src] += 1
        return _Reception(self, self.group.fabric.expect(*key), key, vector)

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> VirtualExchange:
        """Send each peer its vector in blocks, of which the network may lose some."""
        number, leaving = self._exchanged, {}
        self._exchanged += 1
        for peer, vector in sends.items():
            cut, key = Blocks(vector.numel(), vector.element_size(), terms.block_bytes), (self.rank, peer, number)
            if cut.count:
                leaving[peer] = cut.datagrams, vector.numel() * vector.element_size()
                if key in self.group.ended:
                    self.group.ended.discard(key)
                else:
                    self.group.datagrams[key] = vector.clone()
        cuts = {peer: Blocks(v.numel(), v.element_size(), terms.block_bytes) for peer, v in receives.items()}
        expected = {peer: cut.datagrams for peer, cut in cuts.items() if cut.count}
        flight = self.group.fabric.exchange(self.rank, number, leaving, expected, terms)
        return VirtualExchange(self, flight, number, receives, terms)

    def close(self) -> None:
        """Nothing to release."""
