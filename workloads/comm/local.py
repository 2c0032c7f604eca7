"""Replicas in the threads of one process: for tests, oracles and convergence studies, not for timing.

Give each replica a `torch.Generator` of its own: `torch.manual_seed` is global to the process, so that
threads race for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from workloads.comm.base import CommError, Vector

T = TypeVar("T")


@dataclass
class _Slot:
    """The contributions to one all_reduce, by rank; the mean once all are there."""

    given: dict[int, Vector] = field(default_factory=dict)
    mean: Vector | None = None
    error: str = ""
    taken: int = 0


class LocalGroup:
    """The box through which `world_size` replicas exchange vectors.

    Operations are matched by their sequence number, so all ranks issue them in the same order, as with gloo.
    """

    def __init__(self, world_size: int, timeout_s: float = 60.0) -> None:
        self.world_size = world_size
        self.timeout_s = timeout_s
        self.failure = ""
        self.changed = threading.Condition()
        self.slots: dict[int, _Slot] = {}
        self.letters: dict[tuple[int, int, int], Vector] = {}

    def fail(self, reason: str) -> None:
        """Make every present and later wait of the group raise `CommError`."""
        with self.changed:
            self.failure = self.failure or reason
            self.changed.notify_all()

    def give(self, number: int, rank: int, vector: Vector) -> None:
        """Put a copy of `vector` into all_reduce `number`; the last rank to come forms the mean."""
        with self.changed:
            slot = self.slots.setdefault(number, _Slot())
            for other, given in slot.given.items():
                if given.numel() != vector.numel():
                    here, there = vector.numel(), given.numel()
                    sizes = f"rank {rank} gave {here} elements, rank {other} gave {there}"
                    slot.error = f"all_reduce {number}: {sizes}"
                break
            slot.given[rank] = vector.clone()
            if len(slot.given) == self.world_size and not slot.error:
                # In the order of ranks, so that the bits do not depend on who came first.
                slot.mean = slot.given[0]
                for peer in range(1, self.world_size):
                    slot.mean.add_(slot.given[peer])
                slot.mean.mul_(1.0 / self.world_size)
            self.changed.notify_all()

    def take(self, number: int, vector: Vector) -> None:
        """Wait for the mean of all_reduce `number` and copy it into `vector`."""
        with self.changed:
            slot = self.slots[number]
            self.wait_for(lambda: slot.mean is not None or slot.error != "", f"all_reduce {number}")
            if slot.mean is None:
                raise CommError(slot.error)
            vector.copy_(slot.mean)
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

    def all_reduce(self, vector: Vector) -> LocalWork:
        """Replace `vector` by its mean over all ranks: the same bits on each.

        `vector` belongs to the operation: it is NaN until `wait` returns, so that reading it early shows.
        """
        group, number = self.group, self._reduced
        self._reduced += 1
        group.give(number, self.rank, vector)
        slot = group.slots[number]
        vector.mul_(float("nan"))
        return self._issued(lambda: slot.mean is not None or slot.error != "", lambda: group.take(number, vector))

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

    def close(self) -> None:
        """Nothing to release."""

    def _issued(self, ready: Callable[[], bool], take: Callable[[], None]) -> LocalWork:
        self.outstanding += 1
        self.most_outstanding = max(self.most_outstanding, self.outstanding)
        return LocalWork(self, ready, take)


def run_replicas(world_size: int, body: Callable[[LocalComm], T], timeout_s: float = 60.0) -> list[T]:
    """Run `body(comm)` once for each rank, each in a thread; their results in the order of ranks.

    Raises:
        Exception: what the first replica to fail raised; the others are released with a `CommError`.
    """
    group = LocalGroup(world_size, timeout_s)
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
