"""`hierarchical`: inside each site, then across sites.

The workers of a site send their vectors to its first worker, which averages them. The first workers of all sites
exchange the averages as `direct` does, and then distribute the result. So a site's link carries one vector for any
number of workers. Local links have a delay and no rate limit.
"""

from __future__ import annotations

import numpy as np

from wanbench.harness.testbeds.virtual import Ints
from wanbench.harness.testbeds.virtual.collectives.base import Plan, Rounds
from wanbench.harness.testbeds.virtual.collectives.direct import Direct
from wanbench.harness.testbeds.virtual.network import VirtualNetwork


class Hierarchical(Plan):
    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        _, leaders, self._site = np.unique(network.site_of, return_index=True, return_inverse=True)
        self._by_site = np.argsort(self._site, kind="stable")
        self._starts = np.flatnonzero(np.r_[True, np.diff(self._site[self._by_site]) != 0])
        self._across = Direct(network, nbytes, leaders) if len(leaders) > 1 else None
        local = network.delay[:: network.sites + 1][network.site_of].copy()
        local[leaders] = 0
        self._local = local

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        collected = np.maximum.reduceat((ready + self._local)[self._by_site], self._starts)
        if self._across is not None:
            collected = yield from self._across.rounds(collected, channel)
        return collected[self._site] + self._local
