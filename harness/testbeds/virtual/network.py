"""The network of a simulation: up, path and down queues, delay, jitter and loss, and the routes of messages over it.

The model is that of the emulators (`harness.emulators.plan`)::

    up queue of the site -> path queue -> loss -> delay and jitter, order kept -> down queue of the site

with messages instead of packets. A message includes the headers of its packets (52 bytes of IP and TCP each). Between
two workers of one site there is only the site's local delay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wanbench.harness.emulators.plan import TCP_HEADER_BYTES, EmulatedNetwork, payload_bytes
from wanbench.harness.testbeds.virtual import Bools, Ints
from wanbench.harness.testbeds.virtual.bbr import BbrConnections
from wanbench.harness.testbeds.virtual.noise import MessageNoise, PathStreams
from wanbench.harness.testbeds.virtual.queues import QueueStates, Turn
from wanbench.harness.testbeds.virtual.sender import Lost
from wanbench.harness.testbeds.virtual.tcp import NEVER, Connections, Load, Tcp, in_units
from wanbench.workloads.comm.blocks import WIRE_HEADER_BYTES

Spans = Sequence[tuple[int, int | None]]


class Outages:
    """When nothing gets through the directed paths of a network. Path (a, b) has index a x sites + b.

    A packet is lost at the same point as in the emulators: after the path's queue, before its delay. Packets past that
    point arrive. If a part of a message is lost, the message continues with the first retransmission
    (`virtual.sender.attempts`) after the path has healed. Later messages of the connection arrive behind it.

    An outage in one direction does not affect the other: the loss of acknowledgements is not modelled.

    Args:
        paths: number of paths.
    """

    def __init__(self, paths: int) -> None:
        self._of: dict[int, list[tuple[int, int]]] = {}
        self._first, self._last = np.full(paths, NEVER), np.zeros(paths, np.int64)

    def __bool__(self) -> bool:
        return bool(self._of)

    def expect(self, spans: Mapping[int, Spans]) -> None:
        """Set the outages known now: (begin, end) in nanoseconds per path, in order. An end of None is never."""
        self._of = {path: [(begin, NEVER if end is None else end) for begin, end in of] for path, of in spans.items()}
        self._first[:], self._last[:] = NEVER, 0
        for path, of in self._of.items():
            self._first[path], self._last[path] = of[0][0], of[-1][1]

    def lost(self, path: int, times: Ints) -> Bools:
        """Whether packets that reach the end of the path's queue at these times are lost."""
        lost = np.zeros(len(times), np.bool_)
        for begin, end in self._of.get(path, ()):
            lost |= (times >= begin) & (times < end)
        return lost

    def late_ns(
        self, connections: Connections, index: Ints, path: Ints, begin: Ints, end: Ints, packets: Ints, load: Load
    ) -> Ints:
        """How much later each message arrives than without outages.

        Args:
            index: the connection of each message.
            path: its directed path.
            begin, end: when its first and its last byte reach the end of the path's queue.
            packets: number of its packets.
            load: its load on its connection.
        """
        near = np.flatnonzero((begin < self._last[path]) & (end >= self._first[path]))
        late = np.zeros(len(index), np.int64)
        for i in near.tolist():
            spans, first, last = self._of[int(path[i])], int(begin[i]), int(end[i])
            at = next((max(first, dark) for dark, healed in spans if first < healed and last >= dark), None)
            if at is None:
                continue
            lost_share = (last - at) / (last - first) if last > first else 1.0
            rtt, drain = int(load.rtt_ns[i]), int(load.drain_ns[i])
            lost = Lost(at, rtt, rtt + 2 * drain, int(packets[i]), lost_share * float(load.flow_bytes[i]))
            late[i] = min(connections.resume_ns(int(index[i]), lost, spans) - at, NEVER - last)
        return late


_NO_TCP = Tcp(ramp=False)


class VirtualNetwork:
    """Sites, workers and queues with their current state.

    Args:
        network: the network that an emulator would build.
        seed: seed of jitter and loss; each directed path has its own stream.
        tcp: the modelled features of TCP.
        ring: all ranks in the order of rings; default is that of ranks.
    """

    def __init__(
        self,
        network: EmulatedNetwork,
        *,
        seed: int = 0,
        tcp: Tcp = _NO_TCP,
        ring: Sequence[int] = (),
    ) -> None:
        count = len(network.sites)
        self.sites = count
        self.site_of: Ints = np.array(network.site_of, np.int64)
        self.ring: Ints = np.array(ring or range(len(network.site_of)), np.int64)
        self.tcp, self._seed, self.mtu = tcp, seed, network.mtu
        self.up, self.down = QueueStates(count), QueueStates(count)
        self.path = QueueStates(count * count)
        self.delay = np.zeros(count * count, np.int64)
        self.delay[:: count + 1] = network.local_delay_ns
        self._take(network)
        self.paths = PathStreams(network, seed)
        self.outages = Outages(count * count)
        self.dead = {src * count + dst: [(0, None)] for (src, dst), link in network.links.items() if link.loss >= 1}
        self.outages.expect(self.dead)
        self.version = 0  # counts updates, after which routes are resolved again
        # Of each path: the latest arrival at the down queue, and that of messages which may not be overtaken.
        self._latest, self._held = np.zeros((2, count * count), np.int64)
        self._connections: dict[tuple[str, int], Connections] = {}

    def update(self, network: EmulatedNetwork) -> None:
        """Change the values of the network. Messages in flight keep the old values, and are not overtaken."""
        before = self.delay.copy()
        self._take(network)
        self.paths.update(network)
        shorter = self.delay < before
        self._held[shorter] = self._latest[shorter]
        self.version += 1

    def one_way_ns(self, src: int, dst: int) -> int:
        """The delay of the path from a rank to another."""
        return int(self.delay[self.site_of[src] * self.sites + self.site_of[dst]])

    def in_order(self, link: Ints, end: Ints) -> Ints:
        """Delay arrivals behind messages that left before their path became shorter."""
        end = np.maximum(end, self._held[link])
        np.maximum.at(self._latest, link, end)
        return end

    def _take(self, network: EmulatedNetwork) -> None:
        for site in range(self.sites):
            self.up.set(site, network.up[site])
            self.down.set(site, network.down[site])
        for (src, dst), link in network.links.items():
            index = src * self.sites + dst
            self.delay[index] = link.delay_ns
            self.path.set(index, link.queue)

    def connections(self, kind: str, channel: int, count: int, *, paced: bool = True) -> Connections:
        """The `count` connections of a kind and channel, which are created by the first call.

        `paced`: whether senders keep to their share of the rate, so that no buffer overflows.
        """
        if (kind, channel) not in self._connections:
            make = BbrConnections if self.tcp.congestion == "bbr" else Connections
            self._connections[kind, channel] = make(
                self.tcp,
                count,
                paced=paced,
                seed=self._seed,
                name=("connections", kind, channel),
                mtu=self.mtu,
            )
        return self._connections[kind, channel]


def _positions(mask: Bools) -> Ints | slice:
    """The index of the true elements; numpy is faster with a slice if all are."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


class Stage:
    """The passage of a round's messages through queues of one kind, some of which can be unlimited."""

    def __init__(self, states: QueueStates, queue: Ints, wire_bytes: Ints) -> None:
        cost = states.cost[queue]
        limited = cost > 0
        self._members = _positions(limited)
        self.empty = not limited.any()
        self.service_ns = np.ceil(wire_bytes * cost).astype(np.int64)
        total = np.zeros(len(states.end), np.int64)
        np.add.at(total, queue, self.service_ns)
        self.drain_ns = total[queue]
        # The share of each message that the buffer holds, beside the others of the round.
        self.held = states.buffer_bytes[queue] * cost / np.maximum(self.drain_ns, 1)
        if not self.empty:
            self._turn = Turn(states, queue[self._members], self.service_ns[self._members])

    def serve(self, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return when the first and the last byte of each message leave, given when they arrive."""
        if self.empty:
            return begin, end
        begin, end = begin.copy(), end.copy()
        begin[self._members], served = self._turn.serve(begin[self._members])
        end[self._members] = np.maximum(served, end[self._members])
        return begin, end


@dataclass(frozen=True, slots=True)
class Flying:
    """Messages in flight.

    Attributes:
        begin, end: when the first and the last byte of each message between sites reaches the down queue.
        near: arrival of each message if it stays within a site.
        stalled: whether TCP delayed some messages.
        late: how much later each message between sites arrives because of an outage; None if none is late. In the
            down queue they count at the time without the outage.
    """

    begin: Ints
    end: Ints
    near: Ints
    stalled: bool
    late: Ints | None = None


class Route:
    """A round of messages, resolved to queues once and sent as often as needed.

    Args:
        network: the network of their queues.
        src: sender's rank of each message, shape (messages,). Messages that reach a queue at the same time are served
            in this order.
        site: destination site of each message.
        payload: bytes of each message.
        index: index of each message's connection in those passed to `depart`; default is the index of the message.
        flows: number of connections that share each message: one to a site stands for one to each of its workers.
        datagrams: number of datagrams of each message, if it is not a TCP stream.
    """

    def __init__(
        self,
        network: VirtualNetwork,
        src: Ints,
        site: Ints,
        payload: Ints,
        *,
        index: Ints | None = None,
        flows: Ints | None = None,
        datagrams: Ints | None = None,
    ) -> None:
        self._network = network
        self._messages = (src, site, payload, index, flows, datagrams)
        self._resolve()

    def _resolve(self) -> None:
        """Resolve the messages by the current values of the network."""
        network = self._network
        src, site, payload, index, flows, datagrams = self._messages
        self._version = network.version
        origin = network.site_of[src]
        link = origin * network.sites + site
        self._delay = network.delay[link]
        picked = self._far = _positions(origin != site)
        self._link, self._far_delay = link[picked], self._delay[picked]
        self._index = (np.arange(len(src)) if index is None else index)[picked]
        segments = -(-payload // payload_bytes(network.mtu))
        self._packets = packets = (segments if datagrams is None else datagrams)[picked]
        wire = payload[picked] + (TCP_HEADER_BYTES if datagrams is None else WIRE_HEADER_BYTES) * packets
        self._up = Stage(network.up, origin[picked], wire)
        self._path = Stage(network.path, self._link, wire)
        self._down = Stage(network.down, site[picked], wire)
        stages = (self._up, self._path, self._down)
        drain_ns = np.stack([stage.drain_ns for stage in stages])
        narrowest = drain_ns.argmax(axis=0), np.arange(len(self._link))  # the first of equals
        held = np.where(drain_ns[narrowest] > 0, np.stack([stage.held for stage in stages])[narrowest], np.inf)
        back = site[picked] * network.sites + origin[picked]
        shared = np.ones(len(src)) if flows is None else flows.astype(np.float64)
        self._load = Load(
            flow_bytes=in_units(payload[picked], network.mtu) / shared[picked],
            rtt_ns=self._far_delay + network.delay[back],
            drain_ns=drain_ns[narrowest],
            # An endless buffer holds an empty message, too: of at least one byte.
            buffer_bytes=held * np.maximum(in_units(payload[picked], network.mtu), 1) / shared[picked],
            loss=network.paths.loss[self._link],
        )
        slowest = np.maximum.reduce([stage.service_ns for stage in stages])
        self._noise = MessageNoise(
            network.paths, self._link, self._far_delay, packets, slowest, loses=datagrams is None
        )

    def depart(self, ready: Ints, connections: Connections | None, complete: Ints | None = None) -> Flying:
        """Send the messages when they are ready, through up and path queues and their delay.

        `connections` is their TCP state; None for datagrams. `complete` is when their last bytes are ready.
        """
        complete = ready if complete is None else complete
        if self._version != self._network.version:
            self._resolve()
        near = complete + self._delay
        begin, last = ready[self._far], complete[self._far]
        end = begin
        if not len(begin):
            return Flying(begin, end, near, stalled=False)
        losses, jitter = self._noise.draw()
        again = left = np.zeros_like(begin)
        stalling = connections if self._network.tcp.ramp or losses is not None else None
        if stalling is not None:
            again, left = stalling.stall(self._index, begin, self._load, losses)
        begin, end = self._up.serve(begin, end)
        begin, end = self._path.serve(begin, end)
        # TCP's windows wait while the queues serve other messages.
        end = np.maximum(np.maximum(end, left - again) + again, last)
        late = None
        if connections is not None and self._network.outages:
            late = self._network.outages.late_ns(
                connections, self._index, self._link, begin, end, self._packets, self._load
            )
        end, begin = end + self._far_delay, begin + self._far_delay
        if jitter is not None:
            end = self._network.paths.in_order(self._link, end, jitter)
            begin = np.minimum(begin, end)
        end = self._network.in_order(self._link, end)
        return Flying(begin, end, near, stalling is not None or bool(self._network.outages), late)

    @property
    def shares_down(self) -> bool:
        """Whether the down queues limit the messages, so that those of other rounds can be served first."""
        return not self._down.empty

    def land(self, flying: Flying, connections: Connections) -> Ints:
        """Pass the messages through the down queues. Return when each has fully arrived."""
        _, end = self._down.serve(flying.begin, flying.end)
        if flying.late is not None:
            end = end + flying.late
        if flying.stalled:
            end = connections.in_order(self._index, flying.begin, end)
        return self._with_near(flying, end)

    def reached_ns(self, flying: Flying) -> Ints:
        """When the first byte of each message is at the down queue of its site."""
        return self._with_near(flying, flying.begin)

    def land_span(self, flying: Flying) -> tuple[Ints, Ints]:
        """Pass messages of datagrams through the down queues. Return when their first and last bytes have arrived."""
        begin, end = self._down.serve(flying.begin, flying.end)
        return self._with_near(flying, begin), self._with_near(flying, end)

    def _with_near(self, flying: Flying, far: Ints) -> Ints:
        """Times of the messages between sites, beside the arrival of those within a site."""
        times = flying.near.copy()
        times[self._far] = far
        return times

    @property
    def drain_ns(self) -> Ints:
        """How long the round occupies the busiest queue of each message."""
        if self._version != self._network.version:
            self._resolve()
        drain = np.zeros(len(self._delay), np.int64)
        drain[self._far] = self._load.drain_ns
        return drain

    def left_ns(self, flying: Flying) -> int:
        """When the last byte of the messages between sites had left, with jitter; 0 if there are none."""
        return int((flying.end - self._far_delay).max()) if len(flying.end) else 0
