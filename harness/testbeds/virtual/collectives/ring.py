"""`ring`: 2(N-1) hops with a piece of 1/N each, in chunks, as `workloads.comm.ring` does.

A rank sends a chunk on as soon as it has received it (Patarasuk and Yuan 2009, in chunks). No rank waits for a
rendezvous, so a hop costs one one-way delay instead of a round trip, and N - 1 slow hops add up only if they follow one
another. While links are full, delays cost nothing but the last hop.
"""

from __future__ import annotations

import numpy as np

from wanbench.harness.testbeds.virtual import Ints
from wanbench.harness.testbeds.virtual.collectives.base import Plan, Round, Rounds
from wanbench.harness.testbeds.virtual.collectives.direct import FRAME_BYTES
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.workloads.comm.blocks import chunk_count


class Ring(Plan):
    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        count = len(self.ranks)
        self._hops, piece = self._cut(count)
        self._chunks = chunk_count(piece)
        self._before, following = np.empty_like(network.ring), np.empty_like(network.ring)
        self._before[network.ring], following[network.ring] = np.roll(network.ring, 1), np.roll(network.ring, -1)
        payload = np.full(count, piece + FRAME_BYTES * self._chunks)
        self._route = Route(network, self.ranks, network.site_of[following], payload)

    def _cut(self, count: int) -> tuple[int, int]:
        """Return (hops of a piece, its bytes)."""
        return 2 * (count - 1), -(-self.nbytes // count)

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        sockets = self.connections("ring", channel, len(self.ranks))
        first = last = ready
        before: Ints = np.zeros_like(ready)  # when the last byte of the hop before has arrived
        for _ in range(self._hops):
            reached, arrival = yield Round(self._route, first, sockets, complete=last, spans=True)
            chunk_ns = np.minimum(self._route.drain_ns // self._chunks, arrival - reached)
            begun = np.minimum(np.maximum(reached, before) + chunk_ns, arrival)
            before = arrival
            first = np.maximum(ready, begun[self._before])
            last = np.maximum(ready, arrival[self._before])
        return last


class RingGather(Ring):
    """The all-gather: N - 1 hops, each forwards the vector of the hop before."""

    def _cut(self, count: int) -> tuple[int, int]:
        return count - 1, self.nbytes
