"""The relay's model of a network: it takes packets and segments from workers, and returns them when they are due.

Pure, like its queues and paths (`queues.py`).
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.emulators.relay.queues import DirectedPath, Down, Stage, TailDrop
from wanbench.harness.emulators.relay.segment import VIRTIO_BYTES, Segment

_DESTINATION = slice(VIRTIO_BYTES + 16, VIRTIO_BYTES + 20)


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
        self.network: EmulatedNetwork | None = None
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
            last = max((path.last for path in self.paths.values()), default=0.0)
            last = max([last, *(down.queue.busy for down in self.downs)])
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
        self.unknown = self.idle = self.not_ipv4 = 0
        for port in self.ports.values():
            port.sent = 0
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
            "idle": self.idle,
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
