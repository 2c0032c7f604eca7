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
    """

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        self._src, to, flows = pushed(network, self.ranks)
        self._slots = len(self.ranks) * network.sites
        payload = (nbytes + FRAME_BYTES) * flows
        self._route = Route(network, self._src, to, payload, index=self._src * network.sites + to, flows=flows)
        self._to = to

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """The rounds of one operation."""
        arrival = yield Round(self._route, ready[self._src], self.network.connections(PAIRS, channel, self._slots))
        latest = np.zeros(self.network.sites, np.int64)
        np.maximum.at(latest, self._to, arrival)
        return np.maximum(ready, latest[self.network.site_of])


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
