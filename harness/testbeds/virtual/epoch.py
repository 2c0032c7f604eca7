"""The fabric of one epoch of a membership: it connects only its members, and it can end before its operations do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from greenlet import getcurrent

from wanbench.harness.testbeds.virtual.collectives.all_gather import PushGather
from wanbench.harness.testbeds.virtual.collectives.base import Plan
from wanbench.harness.testbeds.virtual.collectives.direct import PAIRS, Direct
from wanbench.harness.testbeds.virtual.datagrams import ExchangeFlight, Waiting
from wanbench.harness.testbeds.virtual.fabric import Flight, SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation, refuse_inside_autograd
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.workloads.comm.base import CommError

_RESUME = 8  # at equal times after all messages


class EpochFabric(SimulatedFabric):
    """See the module. Ranks are places among the members; the collective is `direct`.

    Args:
        members: the ranks in the simulation. epoch: its number; each has new connections.
        settings: as `SimulatedFabric` takes them.
    """

    def __init__(
        self,
        simulation: Simulation,
        network: VirtualNetwork,
        members: Sequence[int],
        epoch: int,
        channels: int,
        **settings: Any,
    ) -> None:
        super().__init__(simulation, network, "direct", channels, **settings)
        self._members, self._ranks = list(members), len(members)
        self._pairs = PAIRS if not epoch else f"{PAIRS} of epoch {epoch}"
        self._parked: dict[Waiting, None] = {}
        self._over: dict[int, str] = {}

    def end(self, rank: int, reason: str) -> None:
        """End the epoch for a member: all its waits fail, now and later. The first reason is kept."""
        self._over.setdefault(rank, reason)
        for waiting in [each for each in self._parked if each.rank == rank]:
            self._resume(waiting)

    def has_ended(self, rank: int) -> bool:
        """Whether the epoch has ended for a member."""
        return rank in self._over

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
            known = [time_ns for time_ns in (end, until_ns) if time_ns is not None]
            if known:
                self._wake_at(min(known), waiting)
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

    def _worker_of(self, rank: int) -> int:
        return self._members[rank]

    def _wake_at(self, time_ns: int, waiting: Waiting) -> None:
        self._simulation.at(time_ns, (_RESUME, waiting.rank), lambda: self._resume(waiting))

    def _waker(self, rank: int) -> Callable[[], None]:
        waiting = Waiting(rank, getcurrent())
        self._parked[waiting] = None
        return partial(self._resume, waiting)

    def _resume(self, waiting: Waiting) -> None:
        """Wake a worker, unless something else has done so."""
        if waiting in self._parked:
            del self._parked[waiting]
            self._simulation.wake(self._simulation.now, waiting.worker, waiting.rank)

    def _plan(self, kind: type[Plan], nbytes: int) -> Plan:
        members = np.array(self._members, np.int64)
        whole = PushGather if kind is PushGather else Direct
        return whole(self._network, nbytes, members, self._pairs)

    def _message_slot(self, src: int, dst: int) -> tuple[str, int, int]:
        _, count, index = super()._message_slot(src, dst)
        return self._pairs, count, index

    def _carry(self, flight: Flight, src: int, dst: int) -> None:
        super()._carry(flight, self._members[src], self._members[dst])
