"""`ring`: the textbook ring (Patarasuk and Yuan 2009), 2(N-1) hops with a chunk of 1/N each.

A rank forwards a chunk as soon as it has received it. No rank waits for a rendezvous, so a hop costs one one-way delay
instead of a round trip, and N - 1 slow hops add up only if they follow one another.
"""

from __future__ import annotations

import numpy as np

from wanbench.harness.testbeds.virtual.collectives.base import Plan, Round, Rounds
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.queues import Ints


class Ring(Plan):
    """See the module."""

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        count = len(self.ranks)
        self._hops, chunk = self._cut(count)
        self._route = Route(network, self.ranks, np.roll(network.site_of, -1), np.full(count, chunk))

    def _cut(self, count: int) -> tuple[int, int]:
        """Return (hops of a chunk, its bytes)."""
        return 2 * (count - 1), -(-self.nbytes // count)

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """The rounds of one operation."""
        sockets = self.connections("ring", channel, len(self.ranks))
        for _ in range(self._hops):
            arrival = yield Round(self._route, ready, sockets)
            ready = np.maximum(ready, np.roll(arrival, 1))
        return ready
