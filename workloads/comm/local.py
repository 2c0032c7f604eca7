"""Replicas in the threads of one process: for tests, oracles and convergence studies, not for timing.

Give each replica a `torch.Generator` of its own: `torch.manual_seed` is global to the process, so that
threads race for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from wanbench.workloads.comm.base import CommError, Vector
from wanbench.workloads.comm.blocks import Blocks
from wanbench.workloads.comm.exchange import Terms

T = TypeVar("T")
Lost = Callable[[int, int, int, int], bool]
"""(number of the exchange, sender, receiver, number of the block) -> whether it is lost."""


@dataclass
class _Slot:
    """The contributions to one collective, by rank; once all are there, it is complete."""

    given: dict[int, Vector] = field(default_factory=dict)
    mean: Vector | None = None  # of an all_reduce
    complete: bool = False
    error: str = ""
    taken: int = 0


class LocalGroup:
    """The box through which `world_size` replicas exchange vectors.

    Operations are matched by their sequence number, so all ranks issue them in the same order, as with gloo.
    """

    def __init__(self, world_size: int, timeout_s: float = 60.0, lost: Lost | None = None) -> None:
        self.world_size = world_size
        self.timeout_s = timeout_s
        self.lost = lost
        self.failure = ""
        self.changed = threading.Condition()
        self.slots: dict[int, _Slot] = {}
        self.letters: dict[tuple[int, int, int], Vector] = {}
        self.datagrams: dict[tuple[int, int, int], Vector] = {}

    def fail(self, reason: str) -> None:
        """Make every present and later wait of the group raise `CommError`."""
        with self.changed:
            self.failure = self.failure or reason
            self.changed.notify_all()

    def give(self, number: int, rank: int, vector: Vector, what: str = "all_reduce") -> None:
        """Put a copy of `vector` into collective `number`; the last rank to come completes it."""
        with self.changed:
            slot = self.slots.setdefault(number, _Slot())
            for other, given in slot.given.items():
                if given.numel() != vector.numel():
                    here, there = vector.numel(), given.numel()
                    sizes = f"rank {rank} gave {here} elements, rank {other} gave {there}"
                    slot.error = f"{what} {number}: {sizes}"
                break
            slot.given[rank] = vector.clone()
            if len(slot.given) == self.world_size and not slot.error:
                slot.complete = True
                if what == "all_reduce":
                    # In the order of ranks, so that the bits do not depend on who came first.
                    slot.mean = slot.given[0]
                    for peer in range(1, self.world_size):
                        slot.mean.add_(slot.given[peer])
                    slot.mean.mul_(1.0 / self.world_size)
            self.changed.notify_all()

    def take(self, number: int, copy: Callable[[_Slot], None], what: str) -> None:
        """Wait until collective `number` is complete, then `copy` what it brought."""
        with self.changed:
            slot = self.slots[number]
            self.wait_for(lambda: slot.complete or slot.error != "", f"{what} {number}")
            if slot.error:
                raise CommError(slot.error)
            copy(slot)
            slot.taken += 1
            if slot.taken == self.world_size:
                del self.slots[number]

    def wait_for(self, ready: Callable[[], bool], what: str) -> None:
        """Wait, holding the lock, until `ready`, the group fails, or the time is up."""
        in_time = self.changed.wait_for(lambda: ready() or self.failure != "", self.timeout_s)
        if self.failure:
            raise CommError(self.failure)
        if not in_time:
            raise CommError(f"{what}: peers did not come within {self.timeout_s:g} s")


@dataclass
class LocalWork:
    """An operation under way: `ready` never blocks, `take` does."""

    comm: LocalComm
    ready: Callable[[], bool]
    take: Callable[[], None]
    waited: bool = False

    def done(self) -> bool:
        """True once `wait` would return at once."""
        return self.waited or self.ready()

    def wait(self) -> None:
        """Block until the result is in the vector; a second call returns at once.

        Raises:
            CommError: sizes differ, a peer failed, or the time is up.
        """
        if not self.waited:
            self.take()
            self.waited = True
            self.comm.outstanding -= 1

    def wait_for(self, seconds: float) -> bool:
        """As `wait`, but no longer than `seconds`; true if the result is there. Raises: CommError as `wait`."""
        changed = self.comm.group.changed
        with changed:
            changed.wait_for(self.done, seconds)
        if self.done():
            self.wait()
        return self.waited


class LocalExchange(LocalWork):
    """An exchange of which the group decides what is lost. See `workloads.comm.exchange.Exchange`.

    What is lost is NaN in the receiver's vector, so that using it shows. There is no clock, so there are no deadlines:
    a peer that does not come fails the exchange.
    """

    def __init__(self, comm: LocalComm, number: int, receives: Mapping[int, Vector], terms: Terms) -> None:
        group = comm.group
        keys = {peer: (peer, comm.rank, number) for peer, vector in receives.items() if vector.numel()}
        self.arrived: dict[int, list[slice]] = {peer: [] for peer in receives}
        self.blocks = (0, 0)

        def ready() -> bool:
            return all(key in group.datagrams for key in keys.values())

        def take() -> None:
            with group.changed:
                group.wait_for(ready, f"exchange {number}")
                found = {peer: group.datagrams.pop(key) for peer, key in keys.items()}
            for peer, vector in found.items():
                self._take(group.lost, keys[peer], vector, receives[peer], terms)

        super().__init__(comm, ready, take)

    def _take(self, lost: Lost | None, key: tuple[int, int, int], sent: Vector, into: Vector, terms: Terms) -> None:
        peer, rank, number = key
        if sent.numel() != into.numel():
            sizes = f"has {sent.numel()} elements, expected {into.numel()}"
            raise CommError(f"exchange {number}: the vector from rank {peer} {sizes}")
        cut = Blocks(into.numel(), into.element_size(), terms.block_bytes)
        there = [lost is None or not lost(number, peer, rank, block) for block in range(cut.count)]
        into.fill_(float("nan"))
        for run in cut.runs(there):
            into[run].copy_(sent[run])
        self.arrived[peer] = cut.runs(there)
        self.blocks = self.blocks[0] + cut.count, self.blocks[1] + there.count(False)


class LocalComm:
    """A `Comm` for one thread of a `LocalGroup`.

    Attributes:
        rank, world_size: this replica's place.
        outstanding: operations issued and not waited for.
        most_outstanding: the largest value that `outstanding` has had.
    """

    def __init__(self, group: LocalGroup, rank: int) -> None:
        self.group = group
        self.rank = rank
        self.world_size = group.world_size
        self.outstanding = 0
        self.most_outstanding = 0
        self._reduced = 0
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()
        self._exchanged = 0

    def all_reduce(self, vector: Vector) -> LocalWork:
        """Replace `vector` by its mean over all ranks: the same bits on each.

        `vector` belongs to the operation: it is NaN until `wait` returns, so that reading it early shows.
        """
        group, number = self.group, self._reduced
        self._reduced += 1
        group.give(number, self.rank, vector)
        slot = group.slots[number]
        vector.mul_(float("nan"))

        def copy(complete: _Slot) -> None:
            assert complete.mean is not None, "a complete all_reduce has a mean"
            vector.copy_(complete.mean)

        return self._issued(lambda: slot.complete or slot.error != "", lambda: group.take(number, copy, "all_reduce"))

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> LocalWork:
        """Fill `parts` with the vectors of all ranks, in their order."""
        group, number = self.group, self._reduced
        self._reduced += 1
        group.give(number, self.rank, vector, "all_gather")
        slot = group.slots[number]

        def copy(complete: _Slot) -> None:
            for rank, part in enumerate(parts):
                part.copy_(complete.given[rank])

        return self._issued(lambda: slot.complete or slot.error != "", lambda: group.take(number, copy, "all_gather"))

    def send(self, vector: Vector, dst: int) -> LocalWork:
        """Send a copy of `vector` to rank `dst`."""
        key = (self.rank, dst, self._sent[dst])
        self._sent[dst] += 1
        with self.group.changed:
            self.group.letters[key] = vector.clone()
            self.group.changed.notify_all()
        return self._issued(lambda: True, lambda: None)

    def recv(self, vector: Vector, src: int) -> LocalWork:
        """Fill `vector` with the next message from rank `src`."""
        group, key = self.group, (src, self.rank, self._received[src])
        self._received[src] += 1

        def take() -> None:
            with group.changed:
                group.wait_for(lambda: key in group.letters, f"message {key[2]} from rank {src}")
                letter = group.letters.pop(key)
            if letter.numel() != vector.numel():
                sizes = f"has {letter.numel()} elements, expected {vector.numel()}"
                raise CommError(f"message {key[2]} from rank {src} {sizes}")
            vector.copy_(letter)

        return self._issued(lambda: key in group.letters, take)

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> LocalExchange:
        """Send each peer its vector in blocks; the group's `lost` says which do not arrive."""
        group, number = self.group, self._exchanged
        self._exchanged += 1
        with group.changed:
            for peer, vector in sends.items():
                if vector.numel():
                    group.datagrams[self.rank, peer, number] = vector.clone()
            group.changed.notify_all()
        self._count_one()
        return LocalExchange(self, number, receives, terms)

    def close(self) -> None:
        """Nothing to release."""

    def _issued(self, ready: Callable[[], bool], take: Callable[[], None]) -> LocalWork:
        self._count_one()
        return LocalWork(self, ready, take)

    def _count_one(self) -> None:
        self.outstanding += 1
        self.most_outstanding = max(self.most_outstanding, self.outstanding)


def run_replicas(
    world_size: int, body: Callable[[LocalComm], T], timeout_s: float = 60.0, lost: Lost | None = None
) -> list[T]:
    """Run `body(comm)` once for each rank, each in a thread; their results in the order of ranks.

    `lost`: which blocks of exchanges do not arrive; by default all do.

    Raises:
        Exception: what the first replica to fail raised; the others are released with a `CommError`.
    """
    group = LocalGroup(world_size, timeout_s, lost)
    results: dict[int, T] = {}
    errors: list[Exception] = []

    def work(rank: int) -> None:
        try:
            results[rank] = body(LocalComm(group, rank))
        except Exception as error:
            errors.append(error)
            group.fail(f"rank {rank} failed: {error}")

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(world_size)]
