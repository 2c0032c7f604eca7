"""The relay's model of a network: it takes packets and segments from workers, and returns them when they are due.

A packet passes queues with a rate and a buffer, and a path with a delay. Pure: the caller passes the time, in
nanoseconds of any monotonic clock. All state is kept as absolute times (when a queue is free again, when a packet is
due), computed from exact arrival times. A late call therefore delays the packets that are due, and none after them.

A segment of several packets keeps the times of its first and its last packet at each place, so it occupies the queues
one after another as its packets would. It is due with its last packet.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from heapq import heappop, heappush, heapreplace
from itertools import count, islice

from wanbench.harness.emulators.impairments import Impairment
from wanbench.harness.emulators.plan import NO_NETWORK, UNLIMITED, EmulatedNetwork, Link, Queue
from wanbench.harness.emulators.relay.segment import VIRTIO_BYTES, Segment

_DESTINATION = slice(VIRTIO_BYTES + 16, VIRTIO_BYTES + 20)
_serial = count()


class TailDrop:
    """A first-in first-out queue with a constant rate. Packets that do not fit into its buffer are dropped."""

    __slots__ = ("buffer_ns", "busy", "drops", "ns_per_byte", "scale")

    def __init__(self, queue: Queue) -> None:
        self.busy = 0.0  # when the last byte accepted so far will have left
        self.drops = 0
        self.ns_per_byte = 0.0
        self.scale = 1.0  # factor on the backlog's remaining time, applied by the next packet
        self.configure(queue)

    def configure(self, queue: Queue) -> None:
        """Set the rate and buffer for new packets.

        Packets already queued keep their due times and their order. New packets queue behind their bytes.
        """
        before = self.ns_per_byte
        self.ns_per_byte = 0.0 if queue.rate_bytes_per_s is None else 1e9 / queue.rate_bytes_per_s
        if before and before != self.ns_per_byte:
            self.scale *= self.ns_per_byte / before
        # A buffer of B bytes holds B/rate seconds. Comparing times saves a conversion for every packet.
        self.buffer_ns = queue.buffer_bytes * self.ns_per_byte if self.ns_per_byte else float("inf")

    def admit(self, segment: Segment) -> bool:
        """Move a segment to the end of the queue, when its packets have left. Return false if not all of them fit."""
        first, last, ns = segment.first, segment.last, self.ns_per_byte
        start = self.busy
        if self.scale != 1.0:
            start = first + (start - first) * self.scale
            self.scale = 1.0
        if start < first:
            start = first
        if segment.packets == 1:
            departure = start + segment.nbytes * ns
            if departure - first > self.buffer_ns:
                self.busy = start
                return False
            self.busy = segment.first = segment.last = departure
            return True
        head_left = start + segment.head * ns
        departure = max(start + segment.nbytes * ns, last + segment.tail * ns)
        if segment.tail < segment.head:  # a short last packet can have to wait for the one before it
            departure = max(departure, segment.at(segment.packets - 2) + (segment.head + segment.tail) * ns)
        # The backlog grows or shrinks evenly while the packets arrive, so it is largest at one of the ends.
        if departure - last > self.buffer_ns or head_left - first > self.buffer_ns:
            self.busy = start
            return False
        segment.first, segment.last = head_left, departure
        self.busy = departure
        return True

    def admit_some(self, segment: Segment) -> Iterable[Segment]:
        """Return the packets that fit, as few segments, at the end of the queue. The others are dropped."""
        if segment.packets == 1:
            self.drops += 1
            return ()
        departures: list[float] = []
        lost: list[int] = []
        for index in range(segment.packets):
            nbytes = segment.tail if index == segment.packets - 1 else segment.head
            arrival = segment.at(index)
            due = max(self.busy, arrival) + nbytes * self.ns_per_byte
            if due - arrival <= self.buffer_ns:
                self.busy = due
                departures.append(due)
            else:
                lost.append(index)
        self.drops += len(lost)
        leaving, pieces = iter(departures), list(segment.without(lost))
        for piece in pieces:
            dues = list(islice(leaving, piece.packets))
            piece.first, piece.last = dues[0], dues[-1]
        return pieces

    def through(self, segment: Segment) -> Iterable[Segment]:
        """Return the packets that pass, at the end of the queue."""
        return (segment,) if self.admit(segment) else self.admit_some(segment)


class Stage:
    """Packets that wait in order for their time. Then they enter a down queue or leave to their worker.

    A segment leaves as a whole, with its last packet. It enters a queue with its first packet, because the packets
    from other sites arrive between its own.
    """

    __slots__ = ("down", "fifo", "serial")

    def __init__(self) -> None:
        self.fifo: deque[Segment] = deque()  # each is due when its last packet is
        self.down: Down | None = None
        self.serial = next(_serial)  # breaks ties between equal due times

    def next_time(self) -> float:
        """When the first segment leaves or enters its queue."""
        return self.fifo[0].last if self.down is None else self.fifo[0].first


class Down(Stage):
    """The down queue that all paths into one site share.

    Attributes:
        margin: bytes that can arrive between the packets of one segment: a segment of every path.
    """

    __slots__ = ("margin", "queue")

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = TailDrop(queue)
        self.margin = 0.0

    def nearly_full(self, segment: Segment) -> bool:
        """Whether a segment can be more than fits, so that the order of its packets among others decides."""
        queue = self.queue
        backlog = queue.busy - segment.first + (segment.nbytes + self.margin) * queue.ns_per_byte
        return segment.packets > 1 and backlog > queue.buffer_ns


class DirectedPath(Stage):
    """One directed path: the source site's up queue, its own queue, loss, then the delay with its jitter."""

    __slots__ = (
        "bytes",
        "delay",
        "delays",
        "fate",
        "last",
        "longest",
        "lost",
        "packets",
        "passes",
        "queue",
        "rng",
        "up",
    )

    def __init__(self, link: Link, last: float) -> None:
        super().__init__()
        self.up: TailDrop | None = None
        self.queue = TailDrop(link.queue)
        self.last = last  # the latest due time: nothing overtakes it
        self.rng = random.Random(0)
        self.packets = self.bytes = self.lost = 0
        self.longest = float("inf")  # IP bytes of a segment
        self.fate: Link | None = None  # what decides which packets pass
        self.configure(link)

    def restart(self, seed: str) -> None:
        """Restart the random numbers."""
        self.rng = random.Random(seed)
        if self.fate is not None:
            self._decide(self.fate)

    def configure(self, link: Link) -> None:
        """Set the values for new packets."""
        self.delay = float(link.delay_ns)
        self.delays = [
            (impairment.delayed, value)
            for impairment, value in link.impairments()
            if type(impairment).delayed is not Impairment.delayed
        ]
        self.queue.configure(link.queue)
        fate = replace(link, delay_ns=0, jitter_ns=0, queue=UNLIMITED)
        if fate != self.fate:
            self._decide(fate)

    def _decide(self, fate: Link) -> None:
        self.fate = fate
        passes = (impairment.passing(fate, self.rng) for impairment, _ in fate.impairments())
        self.passes = [passing for passing in passes if passing is not None]

    def survivors(self, segment: Segment) -> Iterable[Segment]:
        """Return the packets that go on, as few segments. Those that do not are lost."""
        survivors = [segment]
        for passing in self.passes:
            passed = [piece for whole in survivors for piece in passing(whole)]
            if passed != survivors:
                self.lost += max(0, sum(s.packets for s in survivors) - sum(s.packets for s in passed))
                survivors = passed
        return survivors

    def send(self, segment: Segment) -> None:
        """Delay a segment. Nothing overtakes the one before it."""
        delay = self.delay
        for delayed, value in self.delays:
            # Its last packet cannot overtake those before it, which leave within `span`.
            delay = delayed(value, self.rng, delay, segment.packets, segment.last - segment.first)
        due = max(self.last, segment.last + delay)
        segment.first += due - segment.last
        segment.last = self.last = due
        self.packets += segment.packets
        self.bytes += segment.nbytes
        self.fifo.append(segment)


class Port:
    """The connection of a worker.

    Attributes:
        fd: the descriptor of its device, or -1 once the device is gone.
        segments: whether the device has segmentation offload.
        sent: IP bytes that the worker sent.
    """

    __slots__ = ("address", "fd", "rank", "routes", "segments", "sent")

    def __init__(self, rank: int, address: bytes, fd: int, *, segments: bool) -> None:
        self.rank = rank
        self.address = address
        self.fd = fd
        self.segments = segments
        self.sent = 0
        self.routes: dict[bytes, tuple[DirectedPath, Port]] = {}


class Switch:
    """All ports and paths of one network. `accept` takes packets from workers, `release` returns those that are due.

    The delay of each packet is drawn from a normal distribution, and is never below zero. Order is kept: a packet is
    due no earlier than the one before it on its path. Under dense traffic this running maximum raises the mean delay
    by up to about three standard deviations, as it does with netem and a rate.
    """

    def __init__(self) -> None:
        self.ports: dict[int, Port] = {}
        self.network = NO_NETWORK
        self.paths: dict[tuple[int, int], DirectedPath] = {}  # by site numbers; (a, a) is local
        self.ups: list[TailDrop] = []
        self.downs: list[Down] = []
        self.unknown = self.idle = self.not_ipv4 = 0
        self._addresses: set[bytes] = set()
        self._heap: list[tuple[float, int, Stage]] = []  # every stage that is not empty, by its first due time

    # ---------------------------------------------------------------- configuration

    def attach(self, rank: int, address: bytes, fd: int, *, segments: bool = True) -> Port:
        """Connect a worker. It replaces the one that had its rank."""
        port = self.ports[rank] = Port(rank, address, fd, segments=segments)
        self._route()
        return port

    def apply(self, network: EmulatedNetwork, seed: int) -> None:
        """Build this network. A path that exists already keeps its packets in flight and their order."""
        before, self.network = self.network, network
        sites = range(len(network.sites))
        if not network.same_places(before):
            # Packets in flight drain through the old paths, and packets on the new ones must not overtake them.
            last = max([0.0, *(path.last for path in self.paths.values()), *(down.queue.busy for down in self.downs)])
            self.ups = [TailDrop(queue) for queue in network.up]
            self.downs = [Down(queue) for queue in network.down]
            self.paths = {pair: DirectedPath(link, last) for pair, link in network.links.items()}
            for site in sites:
                self.paths[site, site] = DirectedPath(network.link(site, site), last)
        self._configure(network)
        for (src, dst), path in self.paths.items():
            path.restart(f"{seed}:{network.sites[src]}>{network.sites[dst]}")
            if src != dst:
                path.up, path.down = self.ups[src], self.downs[dst]
        self._route()

    def update(self, network: EmulatedNetwork) -> None:
        """Change the values of the network. The random numbers of the paths continue.

        Raises:
            ValueError: the sites or workers differ.
        """
        if not network.same_places(self.network):
            raise ValueError("the sites or workers differ from the applied network")
        self.network = network
        self._configure(network)

    def _configure(self, network: EmulatedNetwork) -> None:
        for site in range(len(network.sites)):
            self.ups[site].configure(network.up[site])
            self.downs[site].queue.configure(network.down[site])
            self.paths[site, site].configure(network.link(site, site))
        for (src, dst), link in network.links.items():
            path = self.paths[src, dst]
            path.configure(link)
            path.longest = network.longest_segment(src, dst)
        for dst, down in enumerate(self.downs):
            down.margin = sum(network.longest_segment(*pair) for pair in network.links if pair[1] == dst)

    def _route(self) -> None:
        """Resolve every destination address once, so that a packet costs one lookup."""
        self._addresses = {port.address for port in self.ports.values()}
        site_of = self.network.site_of
        placed = [port for rank, port in self.ports.items() if rank < len(site_of)]
        for port in self.ports.values():
            port.routes = {}
        for port in placed:
            port.routes = {
                other.address: (self.paths[site_of[port.rank], site_of[other.rank]], other)
                for other in placed
                if other is not port
            }

    # ---------------------------------------------------------------- counters

    def reset_counters(self) -> None:
        """Set all counters to zero."""
        self.unknown = self.idle = self.not_ipv4 = 0
        for port in self.ports.values():
            port.sent = 0
        for queue in (*self.ups, *(down.queue for down in self.downs)):
            queue.drops = 0
        for path in self.paths.values():
            path.packets = path.bytes = path.lost = path.queue.drops = 0

    def drops(self) -> dict[str, int]:
        """The number of dropped packets by cause."""
        return {
            "up": sum(queue.drops for queue in self.ups),
            "path": sum(path.queue.drops for path in self.paths.values()),
            "down": sum(down.queue.drops for down in self.downs),
            "loss": sum(path.lost for path in self.paths.values()),
            "unknown": self.unknown,
            "idle": self.idle,
        }

    def path_counters(self) -> list[dict[str, object]]:
        """What `emulator.EmulatorStats` has of every path that carried or dropped a packet."""
        sites = self.network.sites
        return [
            {
                "src": sites[src],
                "dst": sites[dst],
                "packets": path.packets,
                "bytes": path.bytes,
                "dropped": path.queue.drops,
                "lost": path.lost,
            }
            for (src, dst), path in sorted(self.paths.items())
            if path.packets or path.queue.drops or path.lost
        ]

    def site_counters(self) -> list[dict[str, object]]:
        """What `emulator.EmulatorStats` has of every site."""
        sites = self.network.sites
        return [
            {"site": site, "up_dropped": up.drops, "down_dropped": down.queue.drops}
            for site, up, down in zip(sites, self.ups, self.downs, strict=True)
        ]

    # ---------------------------------------------------------------- traffic

    def accept(self, data: bytes, source: Port, now: float) -> None:
        """Take a packet or segment, with its virtio header, that `source` sent at time `now`."""
        route = source.routes.get(data[_DESTINATION])
        if route is None:
            self._unrouted(data)
            return
        path, port = route
        whole = Segment(data, port, now)
        source.sent += whole.nbytes
        if whole.nbytes <= path.longest or whole.packets == 1:
            self._enter(whole, path)
        else:
            for chunk in whole.chunks(max(1, int(path.longest // whole.head))):
                self._enter(chunk, path)

    def _enter(self, segment: Segment, path: DirectedPath) -> None:
        for sent in (segment,) if path.up is None else path.up.through(segment):
            # An unlimited queue holds nothing, and the path keeps the order.
            for queued in path.queue.through(sent) if path.queue.ns_per_byte else (sent,):
                for survivor in path.survivors(queued):
                    waiting = bool(path.fifo)
                    path.send(survivor)
                    if not waiting:
                        heappush(self._heap, (path.next_time(), path.serial, path))

    def _unrouted(self, data: bytes) -> None:
        """Count a packet without a path."""
        if data[VIRTIO_BYTES] >> 4 != 4:
            self.not_ipv4 += 1
        elif data[_DESTINATION] in self._addresses:
            self.idle += 1
        else:
            self.unknown += 1

    def next_due(self) -> float | None:
        """The time of the next packet for `release`, or None if nothing is in flight."""
        return self._heap[0][0] if self._heap else None

    def release(self, horizon: float, limit: int, nbytes: float = float("inf")) -> list[Segment]:
        """Return segments that are due by `horizon`, in the order of their due times: `limit`, or about `nbytes`."""
        heap = self._heap
        ready: list[Segment] = []
        while heap and len(ready) < limit and nbytes > 0:
            due, _, stage = heap[0]
            if due > horizon:
                break
            fifo, down = stage.fifo, stage.down
            segment = fifo.popleft()
            if down is not None and down.nearly_full(segment):
                fifo.extendleft(reversed(list(segment.chunks(1))))
                segment = fifo.popleft()
            if fifo:
                heapreplace(heap, (stage.next_time(), stage.serial, stage))
            else:
                heappop(heap)
            if down is None:
                ready.append(segment)
                nbytes -= segment.nbytes
                continue
            for passed in down.queue.through(segment):
                if not down.fifo:
                    heappush(heap, (passed.last, down.serial, down))
                elif passed.last < down.fifo[-1].last:  # packets in front keep the due times of a slower rate
                    passed.last = down.fifo[-1].last
                down.fifo.append(passed)
        return ready
