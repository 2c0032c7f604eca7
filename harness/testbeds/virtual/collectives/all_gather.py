"""All-gathers: every rank ends up with everyone's vector.

=========  =============================================================  ================================
direct     each rank pushes its vector to all others at once              half a round trip
ring       N - 1 hops, each passes on what came with the one before       N - 1 one-way delays
gloo       the same ring; a hop waits for the receiver's "ready" note     N - 1 round trips (as measured)
=========  =============================================================  ================================

Either way each link carries N - 1 vectors.
"""

from __future__ import annotations

import numpy as np

from wanbench.harness.plan.law import GLOO_OPERATIONS_PER_CHANNEL
from wanbench.harness.testbeds.virtual.collectives.base import Plan, Round, Rounds
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.queues import Ints

_FRAME_BYTES = 16
_NOTE_BYTES = 48


class PushGather(Plan):
    """As `workloads.comm.direct` does it. What a rank sends to the workers of one site is one message here."""

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        count, sites = len(self.ranks), network.sites
        site = network.site_of
        workers = np.bincount(site, minlength=sites)
        # Everyone begins behind itself, so that no receiver is everyone's first.
        to = (site[:, None] + np.roll(np.arange(sites), -1)[None, :]) % sites
        flows = workers[to] - (to == site[:, None])
        wanted = flows > 0
        self._src = np.broadcast_to(self.ranks[:, None], to.shape)[wanted]
        to, flows = to[wanted], flows[wanted]
        self._slots = count * sites
        payload = (nbytes + _FRAME_BYTES) * flows
        self._route = Route(network, self._src, to, payload, index=self._src * sites + to, flows=flows)
        self._to = to

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """See `Plan.rounds`."""
        arrival = yield Round(self._route, ready[self._src], self.connections("pairs", channel, self._slots))
        latest = np.zeros(self.network.sites, np.int64)
        np.maximum.at(latest, self._to, arrival)
        return np.maximum(ready, latest[self.network.site_of])


class RingGather(Plan):
    """See the module."""

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        payload = np.full(len(self.ranks), nbytes)
        self._route = Route(network, self.ranks, np.roll(network.site_of, -1), payload)

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """See `Plan.rounds`."""
        count = len(self.ranks)
        sockets = self.connections("ring", channel, count)
        for _ in range(count - 1):
            arrival = yield Round(self._route, ready, sockets)
            ready = np.maximum(ready, np.roll(arrival, 1))
        return ready


class GlooGather(RingGather):
    """See the module."""

    operations_per_channel = GLOO_OPERATIONS_PER_CHANNEL

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        notes = np.full(len(self.ranks), _NOTE_BYTES)
        self._notes = Route(network, self.ranks, np.roll(network.site_of, 1), notes)

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """See `Plan.rounds`."""
        count = len(self.ranks)
        data, notes = self.connections("data", channel, count), self.connections("notes", channel, count)
        for _ in range(count - 1):
            noted = yield Round(self._notes, ready, notes)
            begin = np.maximum(ready, np.roll(noted, -1))
            arrival = yield Round(self._route, begin, data)
            ready = np.maximum(begin, np.roll(arrival, 1))
        return ready
