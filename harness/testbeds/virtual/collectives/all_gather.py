"""All-gathers: every rank gets the vectors of all ranks.

=========  =============================================================  ================================
direct     each rank pushes its vector to all others at once              half a round trip
ring       N - 1 hops, each forwards the vector of the hop before         N - 1 one-way delays
gloo       the same ring; a hop waits for the receiver's "ready" note     N - 1 round trips (as measured)
=========  =============================================================  ================================

In all three, each link carries N - 1 vectors.
"""

from __future__ import annotations

import numpy as np

from wanbench.harness.testbeds.virtual.collectives.base import Plan, Round, Rounds
from wanbench.harness.testbeds.virtual.collectives.direct import FRAME_BYTES, PAIRS, pushed
from wanbench.harness.testbeds.virtual.collectives.gloo import Gloo
from wanbench.harness.testbeds.virtual.collectives.ring import Ring
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.queues import Ints


class PushGather(Plan):
    """The all-gather of `workloads.comm.direct`, and its one-shot all-reduce, in which each rank averages all vectors.

    A rank's messages to the workers of one site are one message here.

    Args:
        members, pairs: see `Direct`.
    """

    def __init__(self, network: VirtualNetwork, nbytes: int, members: Ints | None = None, pairs: str = PAIRS) -> None:
        super().__init__(network, nbytes)
        members, self._pairs = self.ranks if members is None else members, pairs
        self._member, to, flows = pushed(network, members)
        self._slots = len(self.ranks) * network.sites
        payload, src = (nbytes + FRAME_BYTES) * flows, members[self._member]
        self._route = Route(network, src, to, payload, index=src * network.sites + to, flows=flows)
        self._to, self._site = to, network.site_of[members]

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """The rounds of one operation."""
        sockets = self.network.connections(self._pairs, channel, self._slots)
        arrival = yield Round(self._route, ready[self._member], sockets)
        latest = np.zeros(self.network.sites, np.int64)
        np.maximum.at(latest, self._to, arrival)
        return np.maximum(ready, latest[self._site])


class RingGather(Ring):
    """See the module."""

    def _cut(self, count: int) -> tuple[int, int]:
        return count - 1, self.nbytes


class GlooGather(Gloo):
    """See the module."""

    def _cut(self, count: int) -> tuple[int, int]:
        return count - 1, self.nbytes

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """The rounds of one operation."""
        count = len(self.ranks)
        return self._chain(ready, self._hops, *(self.connections(kind, channel, count) for kind in ("data", "notes")))
