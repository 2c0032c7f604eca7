"""Who takes part, on the simulated clock: the protocol of `workloads.process.regrouping` by its delays.

A killed worker's system closes its connections, so each peer notices after the delay of the path from it. Whoever
notices gives the epoch up, which the others hear after the delay of the path from there. To regroup, a worker calls all
others at once: a living one has heard it after one and a half round trips, a dead one refuses after one. The lowest
living worker decides, once all living workers have called it and all dead ones have refused. It answers each, and the
members connect to each other.

The network can change meanwhile; a living worker that cannot be reached is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from greenlet import getcurrent, greenlet

from wanbench.harness.testbeds.virtual.collectives import PAIRS, Plan, Pushes
from wanbench.harness.testbeds.virtual.datagrams import ExchangeFlight, Waiting
from wanbench.harness.testbeds.virtual.fabric import Flight, SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation, refuse_inside_autograd
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.membership import View
from wanbench.workloads.comm.memory import MemoryComm, MemoryGroup

_RESUME = 8  # at equal times after all messages
_NOTICED, _DECIDED = 9, 10  # the order of events at equal times


class Epochs:
    """The membership of all workers of a simulation.

    Args:
        fabric: makes the fabric of an epoch from its members and its number.

    Attributes:
        epoch: the fabric of the present epoch.
    """

    def __init__(
        self,
        simulation: Simulation,
        network: VirtualNetwork,
        workers: int,
        fabric: Callable[[list[int], int], EpochFabric],
    ) -> None:
        self._simulation, self._network, self._make = simulation, network, fabric
        self._alive = set(range(workers))
        self._asking: dict[int, _Asking] = {}
        self.epoch = fabric(list(range(workers)), 0)
        self._decision = 0  # counts what is scheduled, so that only the latest happens

    # ---------------------------------------------------------------- called by the timeline

    def kill(self, rank: int) -> bool:
        """End a worker, and let its peers notice. Return whether it was alive."""
        if rank not in self._alive:
            return False
        self._simulation.kill(rank)
        self.leave(rank)
        self._tell(rank, f"rank {rank} closed the connection")
        return True

    def revive(self, rank: int) -> bool:
        """Let a dead worker take part again, once it asks. Return whether it was dead."""
        if rank in self._alive:
            return False
        self._alive.add(rank)
        return True

    def _tell(self, source: int, reason: str) -> None:
        """Let the members of the epoch hear from one worker that it is over."""
        for rank in self.epoch.members:
            self._hear(rank, self._simulation.now + self._network.one_way_ns(source, rank), reason)

    def _hear(self, rank: int, at_ns: int, reason: str) -> None:
        epoch = self.epoch
        self._simulation.at(at_ns, (_NOTICED, rank), lambda: self._notice(epoch, rank, reason))

    def _notice(self, epoch: EpochFabric, rank: int, reason: str) -> None:
        """A member hears that its epoch is over. It tells the others, some of which can hear it from here first."""
        part = epoch is self.epoch and rank in epoch.members and rank in self._alive
        if part and not epoch.has_ended(rank):
            epoch.end(rank, reason)
            self._tell(rank, reason)

    # ---------------------------------------------------------------- called by workers

    def view(self, rank: int, steps: Sequence[int | None]) -> View:
        """The present epoch, as one of its members sees it."""
        epoch = self.epoch
        return View(
            epoch.number, tuple(epoch.members), tuple(steps), MemoryComm(epoch.group, epoch.members.index(rank))
        )

    def regroup(self, rank: int, steps: int | None) -> View:
        """End the epoch, and return the next one, once its members agree."""
        if rank in self.epoch.members:
            self._notice(self.epoch, rank, "the membership changes")
        self._asking[rank] = asking = _Asking(steps, getcurrent(), self._joined_ns(rank))
        if steps is None:
            self._announce(rank, asking.joined_ns)
        self._decide()
        self._simulation.park()
        assert asking.view is not None, "it was woken with one"
        return asking.view

    def leave(self, rank: int) -> None:
        """Go on without a worker. Those that were about to join it try the next one."""
        if rank not in self._alive:  # a killed worker closes its membership, too
            return
        chosen = rank == min(self._alive)
        self._alive.remove(rank)
        self._asking.pop(rank, None)
        if chosen and self._alive:
            for other, asking in self._asking.items():
                asking.joined_ns = self._joined_ns(other)
        self._decide()

    # ---------------------------------------------------------------- the protocol

    def _announce(self, rank: int, joined_ns: int) -> None:
        """A worker that returns ends the epoch: for the one that decides, or, if it is that itself, for all others."""
        chosen = min(self._alive)
        for other in self.epoch.members if rank == chosen else [chosen]:
            asked = self._simulation.now + self._round_trip_ns(rank, other) + self._network.one_way_ns(rank, other)
            self._hear(other, asked if rank == chosen else joined_ns, f"rank {rank} returns")

    def _joined_ns(self, rank: int) -> int:
        """When the lowest living worker has heard that `rank` asks, or knows who is dead, if it begins now."""
        now, chosen = self._simulation.now, min(self._alive)
        if rank == chosen:
            dead = set(range(len(self._network.site_of))) - self._alive
            return now + max((self._round_trip_ns(rank, other) for other in dead), default=0)
        return now + self._round_trip_ns(rank, chosen) + self._network.one_way_ns(rank, chosen)

    def _round_trip_ns(self, a: int, b: int) -> int:
        return self._network.one_way_ns(a, b) + self._network.one_way_ns(b, a)

    def _decide(self) -> None:
        """Begin the next epoch as soon as every living worker has asked for it."""
        if not self._alive or any(rank not in self._asking for rank in self._alive):
            return
        self._decision += 1
        at, decision = max(self._asking[rank].joined_ns for rank in self._alive), self._decision
        self._simulation.at(at, (_DECIDED,), lambda: self._begin_next(decision))

    def _begin_next(self, decision: int) -> None:
        if decision != self._decision or any(rank not in self._asking for rank in self._alive):
            return  # a worker was lost or has come back meanwhile
        members = sorted(self._alive)
        steps = [self._asking[rank].steps for rank in members]
        self.epoch = self._make(members, self.epoch.number + 1)
        for rank, at in self._connected_ns(members).items():
            asking = self._asking.pop(rank)
            asking.view = self.view(rank, steps)
            self._simulation.wake(at, asking.worker, rank)

    def _connected_ns(self, members: Sequence[int]) -> dict[int, int]:
        """When each member is connected to all others: the higher rank connects, once it knows the members."""
        told = {rank: self._simulation.now + self._network.one_way_ns(members[0], rank) for rank in members}
        told[members[0]] = self._simulation.now
        ready = dict(told)
        for low in members:
            for high in members:
                if low < high:
                    open_ns = told[high] + self._round_trip_ns(high, low)
                    ready[high] = max(ready[high], open_ns)
                    ready[low] = max(ready[low], open_ns + self._network.one_way_ns(high, low))
        return ready


@dataclass
class _Asking:
    """A worker in `regroup`. `joined_ns` is when the one that decides has heard it."""

    steps: int | None
    worker: greenlet
    joined_ns: int
    view: View | None = None


class VirtualMembership:
    """One worker's `Membership`."""

    def __init__(self, epochs: Epochs, rank: int) -> None:
        self._epochs, self._rank = epochs, rank

    def changes(self) -> bool:
        return self._epochs.epoch.has_ended(self._rank)

    def regroup(self, steps: int | None) -> View:
        return self._epochs.regroup(self._rank, steps)

    def close(self) -> None:
        self._epochs.leave(self._rank)


class EpochFabric(SimulatedFabric):
    """The fabric of one epoch: it connects only its members, and it can end before its operations do.

    A rank is an index among the members; the collective is `direct`.

    Args:
        members: their ranks in the simulation. number: of the epoch; each has new connections.
        settings: the other keywords of `SimulatedFabric`.

    Attributes:
        group: the vectors that the members exchange.
    """

    def __init__(
        self,
        simulation: Simulation,
        network: VirtualNetwork,
        channels: int,
        settings: Mapping[str, Any],
        members: list[int],
        number: int,
    ) -> None:
        super().__init__(simulation, network, "direct", channels, **settings)
        self.members = members
        self.number, self.group = number, MemoryGroup(len(members), self)
        self._pairs = PAIRS if not number else f"{PAIRS} of epoch {number}"
        self._over: dict[int, str] = {}

    def end(self, worker: int, reason: str) -> None:
        """End the epoch for a member: all its waits fail, now and later. The first reason is kept."""
        rank = self.members.index(worker)
        self._over.setdefault(rank, reason)
        for waiting in [parked for parked in self._parked if parked.rank == rank]:
            self._resume(waiting)

    def has_ended(self, worker: int) -> bool:
        """Whether the epoch has ended for a member."""
        return self.members.index(worker) in self._over

    def done(self, flight: Flight | ExchangeFlight, rank: int) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return rank in self._over or super().done(flight, rank)

    def wait(self, flight: Flight | ExchangeFlight, rank: int, until_ns: int | None = None) -> None:
        """As `SimulatedFabric.wait`. Raises: CommError, if the epoch ends."""
        refuse_inside_autograd()
        if rank not in self._over and not super().done(flight, rank):
            waiting = Waiting(rank, getcurrent(), until_ns)
            self._parked[waiting] = None
            end = flight.end_for(rank)
            if end is None:
                flight.waiting.append(waiting)
            times = [time_ns for time_ns in (end, until_ns) if time_ns is not None]
            if times:
                self._wake_at(min(times), waiting)
            self._simulation.park()
        if rank in self._over:
            raise CommError(self._over[rank])

    def wait_first(self, flights: Sequence[Flight], rank: int, until_ns: int | None = None) -> None:
        """As `SimulatedFabric.wait_first`. Raises: CommError, if the epoch ends."""
        if rank not in self._over:
            super().wait_first(flights, rank, until_ns)
        if rank in self._over:
            raise CommError(self._over[rank])

    def background(self, rank: int, body: Callable[[], None]) -> Flight:
        """As `SimulatedFabric.background`. The end of the epoch ends it."""

        def until_the_end() -> None:
            try:
                body()
            except CommError:
                if rank not in self._over:
                    raise

        return super().background(rank, until_the_end)

    def _wake_at(self, time_ns: int, waiting: Waiting) -> None:
        self._simulation.at(time_ns, (_RESUME, waiting.rank), lambda: self._resume(waiting))

    def _plan(self, kind: type[Plan], nbytes: int) -> Plan:
        pushes = cast(type[Pushes], kind)  # the collective is `direct`
        return pushes(self._network, nbytes, np.array(self.members, np.int64), self._pairs)
