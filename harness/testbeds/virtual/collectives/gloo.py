"""`gloo`: the segment protocol of gloo's ring all-reduce, as read in gloo/allreduce.cc and measured.

The vector is cut into S segments of at most 1 MiB. S is at least 2N and a multiple of N. S - S/N segments pass around
the ring to be reduced, and as many to be gathered. Segment i + 2 is posted when segment i has arrived, so two are in
flight. A posted segment is sent only after the receiver's "ready" note has arrived, so each hop costs a round trip.
Notes go against the ring. Two workers have one connection, so a note waits behind the segments that go the same way.

If two segments share a full link, it follows that t is about R (RTT + 2 segment / rate) with R = S - S/N. If the link
is idle between them, the second is hidden in the first's round trip, and t is close to R (RTT + segment / rate).
"""

from __future__ import annotations

import numpy as np

from wanbench.harness.plan.law import GLOO_OPERATIONS_PER_CHANNEL, gloo_rounds
from wanbench.harness.testbeds.virtual import Ints
from wanbench.harness.testbeds.virtual.collectives.base import Plan, Round, Rounds
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import Connections

_NOTE_BYTES = 48
_REDUCED_BYTES_PER_NS = 10  # a segment that a note lets go meanwhile leaves before the next note of two workers


class Gloo(Plan):
    operations_per_channel = GLOO_OPERATIONS_PER_CHANNEL
    paced, asks = False, True

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        count = len(self.ranks)
        self._hops, segment = self._cut(count)
        self._reducing_ns = segment // _REDUCED_BYTES_PER_NS if count == 2 else 0
        self._data = Route(network, self.ranks, np.roll(network.site_of, -1), np.full(count, segment))
        self._notes = Route(network, self.ranks, np.roll(network.site_of, 1), np.full(count, _NOTE_BYTES))

    def _cut(self, count: int) -> tuple[int, int]:
        """Return (hops of all segments of one half of the operation, bytes of each)."""
        hops = gloo_rounds(count, self.nbytes)
        return hops, -(-self.nbytes // (hops * count // (count - 1)))

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        count = len(self.ranks)
        data = self.connections("data", channel, count)
        notes = data if count == 2 else self.connections("notes", channel, count)
        for _ in ("reduce-scatter", "all-gather"):
            even = self._chain(ready, -(-self._hops // 2), data, notes)
            odd = self._chain(ready, self._hops // 2, data, notes)
            ready = np.maximum(*(yield [even, odd]))
        return ready

    def _chain(self, posted: Ints, hops: int, data: Connections, notes: Connections) -> Rounds:
        """Run this many hops one after another, for every other segment."""
        for _ in range(hops):
            noted = yield Round(self._notes, posted, notes)
            begin = np.maximum(posted, np.roll(noted, -1))
            arrival = yield Round(self._data, begin, data)
            posted = np.maximum(begin, np.roll(arrival, 1)) + self._reducing_ns
        return posted


class GlooGather(Gloo):
    """The all-gather: a ring of N - 1 hops, each of which waits for the receiver's "ready" note (as measured)."""

    def _cut(self, count: int) -> tuple[int, int]:
        return count - 1, self.nbytes

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        count = len(self.ranks)
        return self._chain(ready, self._hops, *(self.connections(kind, channel, count) for kind in ("data", "notes")))
