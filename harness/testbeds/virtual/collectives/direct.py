"""`direct`: a reduce-scatter and an all-gather, each pushed to all ranks at once, as `workloads.comm.direct` does.

    rank i owns piece i.   i sends piece j of its vector to rank j           (half a round trip)
    rank j averages the N pieces it holds and sends the result to all ranks   (half a round trip)

The second round begins when the first chunks are averaged. A rank's messages to the workers of one site are one message
here, so a round has N x sites messages and not N^2.

Its all-gather pushes each rank's whole vector to all others at once, in half a round trip.
"""

from __future__ import annotations

import numpy as np

from wanbench.harness.testbeds.virtual.collectives.base import Plan, Round, Rounds
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.queues import Ints
from wanbench.workloads.comm.blocks import chunk_count

PAIRS = "direct pairs"  # the connections of all operations of `direct`
FRAME_BYTES = 16  # the header of a chunk on its socket


class Direct(Plan):
    """See the module.

    Args:
        members: the ranks that take part; default all. Times are in the order of the members.
        pairs: kind of their connections.
    """

    def __init__(self, network: VirtualNetwork, nbytes: int, members: Ints | None = None, pairs: str = PAIRS) -> None:
        super().__init__(network, nbytes)
        self._pairs = pairs
        members = self.ranks if members is None else members
        count, sites = len(members), network.sites
        site = network.site_of[members]
        pieces = nbytes // count + (np.arange(count) < nbytes % count)
        self._chunks = chunk_count(nbytes // count)
        owned = np.bincount(site, weights=pieces, minlength=sites).astype(np.int64)
        self._member, to, flows = pushed(network, members)
        self._site = site
        src, own = members[self._member], to == site[self._member]
        scattered = owned[to] - np.where(own, pieces[self._member], 0) + FRAME_BYTES * self._chunks * flows
        gathered = (pieces[self._member] + FRAME_BYTES * self._chunks) * flows
        index = src * sites + to
        self._slots = len(self.ranks) * sites
        self._scatter = Route(network, src, to, scattered, index=index, flows=flows)
        self._gather = Route(network, src, to, gathered, index=index, flows=flows)
        self._by_site = np.argsort(to, kind="stable")
        self._starts = np.flatnonzero(np.r_[True, np.diff(to[self._by_site]) != 0])
        self._reached = to[self._by_site][self._starts]

    @classmethod
    def message_slot(cls, network: VirtualNetwork, src: int, dst: int) -> tuple[str, int, int]:
        """See `Plan`: messages take the connections of the all-reduce, which have been warmed up."""
        return PAIRS, len(network.site_of) * network.sites, src * network.sites + int(network.site_of[dst])

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """The rounds of one operation."""
        sockets = self.network.connections(self._pairs, channel, self._slots)
        reached, arrival = yield Round(self._scatter, ready[self._member], sockets, spans=True)
        chunk_ns = np.minimum(self._scatter.drain_ns // self._chunks, arrival - reached)
        first = np.maximum(ready, self._latest(reached + chunk_ns))
        reduced = np.maximum(ready, self._latest(arrival))
        last = reduced[self._member] + self._gather.drain_ns // self._chunks  # the last chunk is sent by itself
        arrival = yield Round(self._gather, first[self._member], sockets, complete=last)
        return np.maximum(reduced, self._latest(arrival))

    def _latest(self, arrival: Ints) -> Ints:
        """When the last message to each member's site has arrived."""
        latest = np.zeros(self.network.sites, np.int64)
        latest[self._reached] = np.maximum.reduceat(arrival[self._by_site], self._starts)
        return latest[self._site]


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


def pushed(network: VirtualNetwork, members: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (index of the sender in `members`, site, connections) of each member's messages to all sites."""
    site, sites = network.site_of[members], network.sites
    # Each sender starts with the site after its own, so that no receiver is the first of all senders.
    to = (site[:, None] + np.roll(np.arange(sites), -1)[None, :]) % sites
    flows = np.bincount(site, minlength=sites)[to] - (to == site[:, None])
    used = flows > 0
    member = np.broadcast_to(np.arange(len(members))[:, None], to.shape)[used]
    return member, to[used], flows[used]
