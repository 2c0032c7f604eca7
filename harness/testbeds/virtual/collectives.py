"""Models of collectives: each describes the messages of an all-reduce or of an all-gather, whose times the simulation
computes. A model is a generator of rounds, vectorised over ranks.

direct         every rank pushes its pieces to all others at once
gloo           the segment protocol of gloo's ring
ring           the textbook ring
hierarchical   inside each site, then across sites
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wanbench.harness.plan.law import GLOO_OPERATIONS_PER_CHANNEL, gloo_rounds
from wanbench.harness.testbeds.virtual import Ints
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import Connections
from wanbench.workloads.comm.blocks import chunk_count

PAIRS = "direct pairs"  # the connections of all operations of `direct`
_FRAME_BYTES = 16  # the header of a chunk on its socket
_NOTE_BYTES = 48
_REDUCED_BYTES_PER_NS = 10  # a segment that a note lets go meanwhile leaves before the next note of two workers


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that leave when they are ready: message i of `route` at `ready[i]`.

    Attributes:
        complete: when the last byte of each message is ready; default is `ready`.
        spans: whether the answer also has the time when the first byte of each message reaches its site.
    """

    route: Route
    ready: Ints
    connections: Connections
    complete: Ints | None = None
    spans: bool = False


# Yields a round and receives the arrival times of its messages; or yields several generators, which then run side by
# side, and receives the list of their results. Returns when each rank has finished.
Rounds = Generator[Round | Sequence[Any], Any, Ints]


class Plan(ABC):
    """An all-reduce of one size between all workers of a network.

    Args:
        network: the network of the workers.
        nbytes: size of the vector on each of them, 1 or more.
    """

    operations_per_channel: ClassVar[int | None] = None  # at a time; None is any number
    paced: ClassVar[bool] = True  # senders keep to their share of the rate
    asks: ClassVar[bool] = False  # a message leaves once its receiver has asked for it

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        self.network, self.nbytes = network, nbytes
        self.ranks: Ints = np.arange(len(network.site_of))

    @classmethod
    def message_slot(cls, network: VirtualNetwork, src: int, dst: int) -> tuple[str, int, int]:
        """The connection of messages from a rank to another: (kind, number of connections, index)."""
        return f"message {src} {dst}", 1, 0

    @abstractmethod
    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """The rounds of one operation.

        Args:
            ready: when each rank joins, shape (ranks,).
            channel: number of the channel; each has its own connections.
        """

    def connections(self, kind: str, channel: int, count: int) -> Connections:
        """The connections of a channel, which plans of all sizes share."""
        return self.network.connections(f"{type(self).__name__} {kind}", channel, count, paced=self.paced)


class Pushes(Plan):
    """A collective whose members push to all others at once.

    A rank's messages to the workers of one site are one message here, so a round has N x sites messages and not N^2.

    Args:
        members: the ranks that take part; default all. Times are in the order of the members.
        pairs: kind of their connections.
    """

    def __init__(self, network: VirtualNetwork, nbytes: int, members: Ints | None = None, pairs: str = PAIRS) -> None:
        super().__init__(network, nbytes)
        members, self._pairs = self.ranks if members is None else members, pairs
        self._site = site = network.site_of[members]
        # Each sender starts with the site after its own, so that no receiver is the first of all senders.
        to = (site[:, None] + np.roll(np.arange(network.sites), -1)[None, :]) % network.sites
        flows = np.bincount(site, minlength=network.sites)[to] - (to == site[:, None])
        used = flows > 0
        # The index of the sender in `members`, the site, and the connections of each message.
        self._member = np.broadcast_to(np.arange(len(members))[:, None], to.shape)[used]
        self._to, self._flows = to[used], flows[used]
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
    """A reduce-scatter and an all-gather, each pushed to all ranks at once, as `workloads.comm.direct` does.

        rank i owns piece i.   i sends piece j of its vector to rank j           (half a round trip)
        rank j averages the N pieces it holds and sends the result to all ranks   (half a round trip)

    The second round begins when the first chunks are averaged.
    """

    def __init__(self, network: VirtualNetwork, nbytes: int, members: Ints | None = None, pairs: str = PAIRS) -> None:
        super().__init__(network, nbytes, members, pairs)
        count = len(self._site)
        pieces = nbytes // count + (np.arange(count) < nbytes % count)
        self._chunks = chunk_count(nbytes // count)
        owned = np.bincount(self._site, weights=pieces, minlength=network.sites).astype(np.int64)
        own, piece = self._to == self._site[self._member], pieces[self._member]
        headers = _FRAME_BYTES * self._chunks
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

    Each rank pushes its whole vector to all others at once, in half a round trip.
    """

    def __init__(self, network: VirtualNetwork, nbytes: int, members: Ints | None = None, pairs: str = PAIRS) -> None:
        super().__init__(network, nbytes, members, pairs)
        self._push = self._route((nbytes + _FRAME_BYTES) * self._flows)

    def rounds(self, ready: Ints, channel: int) -> Rounds:
        sockets = self.network.connections(self._pairs, channel, self._slots)
        arrival = yield Round(self._push, ready[self._member], sockets)
        return np.maximum(ready, self._latest(arrival))


class Gloo(Plan):
    """The segment protocol of gloo's ring all-reduce, as read in gloo/allreduce.cc and measured.

    The vector is cut into S segments of at most 1 MiB. S is at least 2N and a multiple of N. S - S/N segments pass
    around the ring to be reduced, and as many to be gathered. Segment i + 2 is posted when segment i has arrived, so
    two are in flight. A posted segment is sent only after the receiver's "ready" note has arrived, so each hop costs a
    round trip. Notes go against the ring. Two workers have one connection, so a note waits behind the segments that go
    the same way.

    If two segments share a full link, it follows that t is about R (RTT + 2 segment / rate) with R = S - S/N. If the
    link is idle between them, the second is hidden in the first's round trip, and t is close to
    R (RTT + segment / rate).
    """

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
        data, notes = (self.connections(kind, channel, len(self.ranks)) for kind in ("data", "notes"))
        return self._chain(ready, self._hops, data, notes)


class Ring(Plan):
    """2(N-1) hops with a piece of 1/N each, in chunks, as `workloads.comm.ring` does.

    A rank sends a chunk on as soon as it has received it (Patarasuk and Yuan 2009, in chunks). No rank waits for a
    rendezvous, so a hop costs one one-way delay instead of a round trip, and N - 1 slow hops add up only if they follow
    one another. While links are full, delays cost nothing but the last hop.
    """

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        super().__init__(network, nbytes)
        count = len(self.ranks)
        self._hops, piece = self._cut(count)
        self._chunks = chunk_count(piece)
        self._before, following = np.empty_like(network.ring), np.empty_like(network.ring)
        self._before[network.ring], following[network.ring] = np.roll(network.ring, 1), np.roll(network.ring, -1)
        payload = np.full(count, piece + _FRAME_BYTES * self._chunks)
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


class Hierarchical(Plan):
    """Inside each site, then across sites.

    The workers of a site send their vectors to its first worker, which averages them. The first workers of all sites
    exchange the averages as `direct` does, and then distribute the result. So a site's link carries one vector for any
    number of workers. Local links have a delay and no rate limit.
    """

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


COLLECTIVES: Mapping[str, type[Plan]] = {
    "direct": Direct,
    "gloo": Gloo,
    "ring": Ring,
    "hierarchical": Hierarchical,
}

ALL_GATHERS: Mapping[str, type[Plan]] = {"direct": PushGather, "gloo": GlooGather, "ring": RingGather}
