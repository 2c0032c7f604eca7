"""`direct`: a reduce-scatter and an all-gather, each pushed to all ranks at once, as `workloads.comm.direct` does.

    rank i owns piece i.   i sends piece j of its vector to rank j           (half a round trip)
    rank j averages the N pieces it holds and sends the result to all ranks   (half a round trip)

The second round begins when the first chunks are averaged. A rank's messages to the workers of one site are one message
here, so a round has N x sites messages and not N^2.

Its all-gather pushes each rank's whole vector to all others at once, in half a round trip.
"""

from __future__ import annotations

import numpy as np

from wanbench.harness.testbeds.virtual import Ints
from wanbench.harness.testbeds.virtual.collectives.base import Plan, Round, Rounds
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.workloads.comm.blocks import chunk_count

PAIRS = "direct pairs"  # the connections of all operations of `direct`
FRAME_BYTES = 16  # the header of a chunk on its socket


class Pushes(Plan):
    """A collective whose members push to all others at once.

    Args:
        members: the ranks that take part; default all. Times are in the order of the members.
        pairs: kind of their connections.
    """

    def __init__(self, network: VirtualNetwork, nbytes: int, members: Ints | None = None, pairs: str = PAIRS) -> None:
        super().__init__(network, nbytes)
        members, self._pairs = self.ranks if members is None else members, pairs
        self._site = network.site_of[members]
        self._member, self._to, self._flows = pushed(network, members)
        self._src = members[self._member]
        self._slots = len(self.ranks) * network.sites
        self._by_site = np.argsort(self._to, kind="stable")
        self._starts = np.flatnonzero(np.r_[True, np.diff(self._to[self._by_site]) != 0])
        self._reached = self._to[self._by_site][self._starts]

    def _route(self, payload: Ints) -> Route:
        """One message of each member to each site, of this many bytes."""
        index = self._src * self.network.sites + self._to
        return Route(self.network, self._src, self._to, payload, index=index, flows=self._flows)

    def _latest(self, arrival: Ints) -> Ints:
        """When the last message to each member's site has arrived."""
        latest = np.zeros(self.network.sites, np.int64)
        latest[self._reached] = np.maximum.reduceat(arrival[self._by_site], self._starts)
        return latest[self._site]


class Direct(Pushes):
    """A reduce-scatter and an all-gather."""

    def __init__(self, network: VirtualNetwork, nbytes: int, members: Ints | None = None, pairs: str = PAIRS) -> None:
        super().__init__(network, nbytes, members, pairs)
        count = len(self._site)
        pieces = nbytes // count + (np.arange(count) < nbytes % count)
        self._chunks = chunk_count(nbytes // count)
        owned = np.bincount(self._site, weights=pieces, minlength=network.sites).astype(np.int64)
        own, piece = self._to == self._site[self._member], pieces[self._member]
        headers = FRAME_BYTES * self._chunks
        self._scatter = self._route(owned[self._to] - np.where(own, piece, 0) + headers * self._flows)
        self._gather = self._route((piece + headers) * self._flows)

    @classmethod
    def message_slot(cls, network: VirtualNetwork, src: int, dst: int) -> tuple[str, int, int]:
        """The connection of messages: one of those of the all-reduce, which have been warmed up."""
        return PAIRS, len(network.site_of) * network.sites, src * network.sites + int(network.site_of[dst])

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        sockets = self.network.connections(self._pairs, channel, self._slots)
        reached, arrival = yield Round(self._scatter, ready[self._member], sockets, spans=True)
        chunk_ns = np.minimum(self._scatter.drain_ns // self._chunks, arrival - reached)
        first = np.maximum(ready, self._latest(reached + chunk_ns))
        reduced = np.maximum(ready, self._latest(arrival))
        last = reduced[self._member] + self._gather.drain_ns // self._chunks  # the last chunk is sent by itself
        arrival = yield Round(self._gather, first[self._member], sockets, complete=last)
        return np.maximum(reduced, self._latest(arrival))


class PushGather(Pushes):
    """The all-gather of `workloads.comm.direct`, and its one-shot all-reduce, in which each rank averages all vectors.

    A rank's messages to the workers of one site are one message here.
    """

    def __init__(self, network: VirtualNetwork, nbytes: int, members: Ints | None = None, pairs: str = PAIRS) -> None:
        super().__init__(network, nbytes, members, pairs)
        self._push = self._route((nbytes + FRAME_BYTES) * self._flows)

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        sockets = self.network.connections(self._pairs, channel, self._slots)
        arrival = yield Round(self._push, ready[self._member], sockets)
        return np.maximum(ready, self._latest(arrival))


def pushed(network: VirtualNetwork, members: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (index of the sender in `members`, site, connections) of each member's messages to all sites."""
    site, sites = network.site_of[members], network.sites
    # Each sender starts with the site after its own, so that no receiver is the first of all senders.
    to = (site[:, None] + np.roll(np.arange(sites), -1)[None, :]) % sites
    flows = np.bincount(site, minlength=sites)[to] - (to == site[:, None])
    used = flows > 0
    member = np.broadcast_to(np.arange(len(members))[:, None], to.shape)[used]
    return member, to[used], flows[used]
