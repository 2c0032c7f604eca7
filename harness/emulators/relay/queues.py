"""The relay's model: queues, paths, and the due time of every packet.

Pure: the caller passes the time, in nanoseconds of any monotonic clock, and gets packets back when they are due. All
state is kept as absolute times (when a queue is free again, when a packet is due), computed from exact arrival times.
A late call therefore delays the packets that are due, and none after them.
"""

from __future__ import annotations

import random
from collections import deque
from heapq import heappop, heappush, heapreplace
from itertools import count

from wanbench.harness.emulators.impairments.base import Impairment
from wanbench.harness.emulators.plan import EmulatedNetwork, Link, Queue

_DROPPED = -1.0
_serial = count()


class Port:
    """The connection of a worker: its rank, and the descriptor of its device, or -1 once the device is gone."""

    __slots__ = ("address", "fd", "rank", "routes")

    def __init__(self, rank: int, address: bytes, fd: int) -> None:
        self.rank = rank
        self.address = address
        self.fd = fd
        self.routes: dict[bytes, tuple[DirectedPath, Port]] = {}


Packet = tuple[float, bytes, Port]  # due time in ns, the IP packet, the receiver


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
        unlimited = queue.rate_bytes_per_s is None
        self.ns_per_byte = 0.0 if queue.rate_bytes_per_s is None else 1e9 / queue.rate_bytes_per_s
        if before and before != self.ns_per_byte:
            self.scale *= self.ns_per_byte / before
        # A buffer of B bytes holds B/rate seconds. Comparing times saves a conversion for every packet.
        self.buffer_ns = float("inf") if unlimited else queue.buffer_bytes * self.ns_per_byte

    def departure(self, now: float, nbytes: int) -> float:
        """Return when the last byte of a packet that arrives `now` has left, or a negative number if it is dropped."""
        start = self.busy
        if self.scale != 1.0:
            start = now + (start - now) * self.scale
            self.scale = 1.0
        if start < now:
            start = now
        left = start + nbytes * self.ns_per_byte
        if left - now > self.buffer_ns:
            self.drops += 1
            return _DROPPED
        self.busy = left
        return left


class Stage:
    """Packets that wait in order for their due time. Then they enter a down queue or leave to their worker."""

    __slots__ = ("down", "fifo", "serial")

    def __init__(self) -> None:
        self.fifo: deque[Packet] = deque()
        self.down: Down | None = None
        self.serial = next(_serial)  # breaks ties between equal due times


class Down(Stage):
    """The down queue that all paths into one site share."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = TailDrop(queue)


class DirectedPath(Stage):
    """One directed path: the source site's up queue, its own queue, loss, then the delay with its jitter."""

    __slots__ = ("bytes", "delay", "effects", "last", "lost", "packets", "queue", "rng", "up")

    def __init__(self, link: Link, last: float) -> None:
        super().__init__()
        self.up: TailDrop | None = None
        self.queue = TailDrop(link.queue)
        self.last = last  # the latest due time: nothing overtakes it
        self.rng = random.Random(0)
        self.packets = self.bytes = self.lost = 0
        self.configure(link)

    def configure(self, link: Link) -> None:
        """Set the values for new packets."""
        self.delay = float(link.delay_ns)
        self.effects = [  # the last field first: a lost packet is not delayed
            (impairment.relay, value)
            for impairment, value in reversed(list(link.impairments()))
            if type(impairment).relay is not Impairment.relay
        ]
        self.queue.configure(link.queue)


class Switch:
    """All ports and paths of one network. `accept` takes packets from workers, `release` returns those that are due.

    The delay of each packet is drawn from a normal distribution, and is never below zero. Order is kept: a packet is
    due no earlier than the one before it on its path. Under dense traffic this running maximum raises the mean delay
    by up to about three standard deviations, as it does with netem and a rate.
    """

    def __init__(self) -> None:
        self.ports: dict[int, Port] = {}
        self.network: EmulatedNetwork | None = None
        self.paths: dict[tuple[int, int], DirectedPath] = {}  # by site numbers; (a, a) is local
        self.ups: list[TailDrop] = []
        self.downs: list[Down] = []
        self.unknown = self.not_ipv4 = 0
        self._heap: list[tuple[float, int, Stage]] = []  # every stage that is not empty, by its first due time

    # ---------------------------------------------------------------- configuration

    def attach(self, rank: int, address: bytes, fd: int) -> Port:
        """Connect a worker. It replaces the one that had its rank."""
        port = self.ports[rank] = Port(rank, address, fd)
        self._route()
        return port

    def apply(self, network: EmulatedNetwork, seed: int) -> None:
        """Build this network. A path that exists already keeps its packets in flight and their order."""
        before, self.network = self.network, network
        sites = range(len(network.sites))
        if not network.same_places(before):
            # Packets in flight drain through the old paths, and packets on the new ones must not overtake them.
            last = max((path.last for path in self.paths.values()), default=0.0)
            last = max([last, *(down.queue.busy for down in self.downs)])
            self.ups = [TailDrop(queue) for queue in network.up]
            self.downs = [Down(queue) for queue in network.down]
            self.paths = {pair: DirectedPath(link, last) for pair, link in network.links.items()}
            for site in sites:
                self.paths[site, site] = DirectedPath(network.link(site, site), last)
        self._configure(network)
        for (src, dst), path in self.paths.items():
            path.rng = random.Random(f"{seed}:{network.sites[src]}>{network.sites[dst]}")
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
        for pair, link in network.links.items():
            self.paths[pair].configure(link)

    def _route(self) -> None:
        """Resolve every destination address once, so that a packet costs one lookup."""
        if self.network is None:
            return
        site_of = self.network.site_of
        placed = [port for rank, port in self.ports.items() if rank < len(site_of)]
        for port in self.ports.values():
            port.routes = {}
        for port in placed:
            here = site_of[port.rank]
            port.routes = {
                other.address: (self.paths[here, site_of[other.rank]], other) for other in placed if other is not port
            }

    # ---------------------------------------------------------------- counters

    def reset_counters(self) -> None:
        """Set all counters to zero."""
        self.unknown = self.not_ipv4 = 0
        for queue in self._queues():
            queue.drops = 0
        for path in self.paths.values():
            path.packets = path.bytes = path.lost = 0

    def drops(self) -> dict[str, int]:
        """The number of dropped packets by cause."""
        return {
            "up": sum(queue.drops for queue in self.ups),
            "path": sum(path.queue.drops for path in self.paths.values()),
            "down": sum(down.queue.drops for down in self.downs),
            "loss": sum(path.lost for path in self.paths.values()),
            "unknown": self.unknown,
        }

    def path_counters(self) -> list[dict[str, object]]:
        """The fields of `base.PathStats` for every path that carried or dropped a packet."""
        sites = () if self.network is None else self.network.sites
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
        """The fields of `base.SiteStats`."""
        sites = () if self.network is None else self.network.sites
        return [
            {"site": site, "up_dropped": up.drops, "down_dropped": down.queue.drops}
            for site, up, down in zip(sites, self.ups, self.downs, strict=True)
        ]

    def _queues(self) -> list[TailDrop]:
        downs = [down.queue for down in self.downs]
        return [*self.ups, *downs, *(path.queue for path in self.paths.values())]

    # ---------------------------------------------------------------- traffic

    def accept(self, packet: bytes, source: Port, now: float) -> None:
        """Take a packet that `source` sent at time `now`."""
        route = source.routes.get(packet[16:20])
        if route is None:
            if packet[0] >> 4 == 4:
                self.unknown += 1
            else:
                self.not_ipv4 += 1
            return
        path, port = route
        size = len(packet)
        if path.up is not None:
            now = path.up.departure(now, size)
            if now < 0:
                return
        due = path.queue.departure(now, size)
        if due < 0:
            return
        copies = [(path.delay, packet)]
        for relay, value in path.effects:
            copies = relay(value, path.rng, copies)
        if not copies:
            path.lost += 1
        for delay, copy in copies:
            path.packets += 1
            path.bytes += size
            path.last = max(path.last, due + delay)
            if not path.fifo:
                heappush(self._heap, (path.last, path.serial, path))
            path.fifo.append((path.last, copy, port))

    def next_due(self) -> float | None:
        """The time of the next packet for `release`, or None if nothing is in flight."""
        return self._heap[0][0] if self._heap else None

    def release(self, horizon: float, limit: int) -> list[Packet]:
        """Return at most `limit` packets that are due by `horizon`, in the order of their due times."""
        heap = self._heap
        ready: list[Packet] = []
        while heap and len(ready) < limit:
            due, _, stage = heap[0]
            if due > horizon:
                break
            fifo = stage.fifo
            packet = fifo.popleft()
            if fifo:
                heapreplace(heap, (fifo[0][0], stage.serial, stage))
            else:
                heappop(heap)
            down = stage.down
            if down is None:
                ready.append(packet)
                continue
            due = down.queue.departure(due, len(packet[1]))
            if due >= 0:
                if not down.fifo:
                    heappush(heap, (due, down.serial, down))
                elif due < down.fifo[-1][0]:  # packets in front keep the due times of a slower rate
                    due = down.fifo[-1][0]
                down.fifo.append((due, packet[1], packet[2]))
        return ready
