"""`halving-doubling`: recursive halving, then recursive doubling (Thakur, Rabenseifner and Gropp 2005).

In round k, ranks whose numbers differ in bit k exchange data: first half of the vector, then a quarter, and so on.
Then the rounds run in reverse. This takes 2 log2 N one-way trips. Neighbours exchange first, so the largest messages
stay within sites if ranks are placed in blocks. If N is no power of two, each rank beyond the largest power of two
first sends its vector to another rank, and gets the result at the end.
"""

from __future__ import annotations

import numpy as np

from wanbench.harness.testbeds.virtual.collectives.base import Plan, Round, Rounds
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.queues import Ints
from wanbench.harness.testbeds.virtual.tcp import Connections


class HalvingDoubling(Plan):
    """See the module."""

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        count = len(self.ranks)
        levels = count.bit_length() - 1
        self._core = 1 << levels
        core, extra = self.ranks[: self._core], self.ranks[self._core :]
        self._partners = [core ^ (1 << level) for level in range(levels)]
        site = network.site_of
        self._exchanges = [
            Route(network, core, site[partner], np.full(self._core, -(-nbytes // (2 << level))), index=core)
            for level, partner in enumerate(self._partners)
        ]
        self._fold = self._unfold = None
        if len(extra):
            whole = np.full(len(extra), nbytes)
            host = extra - self._core
            self._fold = Route(network, extra, site[host], whole, index=extra)
            self._unfold = Route(network, host, site[extra], whole, index=host)

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """The rounds of one operation."""
        ready = ready.copy()
        extra = len(self.ranks) - self._core
        if self._fold is not None:
            arrival = yield Round(self._fold, ready[self._core :], self._sockets("fold", channel))
            ready[:extra] = np.maximum(ready[:extra], arrival)
        mine = ready[: self._core]
        levels = list(range(len(self._exchanges)))
        for level in (*levels, *reversed(levels)):
            arrival = yield Round(self._exchanges[level], mine, self._sockets(f"level {level}", channel))
            mine = np.maximum(mine, arrival[self._partners[level]])
        ready[: self._core] = mine
        if self._unfold is not None:
            arrival = yield Round(self._unfold, mine[:extra], self._sockets("fold", channel))
            ready[self._core :] = np.maximum(ready[self._core :], arrival)
        return ready

    def _sockets(self, kind: str, channel: int) -> Connections:
        return self.connections(kind, channel, len(self.ranks))
