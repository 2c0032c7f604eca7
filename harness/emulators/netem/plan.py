"""The kernel objects that the netem emulator needs, as plain data. Pure, and light to import.

Every queue of the model is the egress of one router. So each has its own buffer, in bytes, and its own counters:

    worker -- site router --up--> paths --path--> delays --delay, jitter, loss--> downs --down--> site router -- worker
                          shared by        a class per source site,                  shared by
                          the site         at each router towards a site             the site

Every rate and its buffer are an htb class with a bfifo, even on the last hop before the delay: if netem queued there
as well, it would count small packets like large ones. The `rate` of netem then puts the packets on the wire one after
another, as a line does, and keeps their order under jitter. Packets within a site pass only its router. Nothing is
shaped at the sender: a worker's device has no queue, and every packet has wire size before it reaches one.
"""

import hashlib
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from wanbench.harness.emulators.impairments import us
from wanbench.harness.emulators.plan import (
    DEVICE,
    UNLIMITED,
    EmulatedNetwork,
    Link,
    Queue,
    slowest,
    worker_address,
)
from wanbench.workloads.process.namespace import OUTSIDE_TABLE

GATEWAY = "169.254.0.1"  # the other end of every link; it never answers, because neighbours are static
NETWORK = "10.99.0.0/16"
ROUTER_SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.rp_filter": "0",  # packets arrive and leave through different devices
    "net.ipv4.conf.default.rp_filter": "0",
}
ONLY_LOCAL_IPV6 = {"net.ipv6.conf.default.disable_ipv6": "1"}  # of workers: devices made from now on
NO_IPV6 = {"net.ipv6.conf.all.disable_ipv6": "1"} | ONLY_LOCAL_IPV6
_ETHERNET_HEADER_BYTES = 14  # which htb counts in a quantum
UNSHAPED = 2**32 - 1  # bytes/s: 34 Gbit/s, more than a processor forwards
_NO_BUFFER_LIMIT = 2**30
_BURST_S = 0.002  # of line rate: a timer this late does not reduce the rate
# The rate in bytes/s of a netem without a line rate. Without a rate, jitter or a shorter delay would reorder packets.
# At this rate a packet takes less than a nanosecond, so no packet waits for a timer.
ORDERED = 10**13
_SMALLEST_PACKET = 40
_BURST_PACKETS = 1000
_LINE_S = 1.0  # a delay line holds at least this much, so a change to a shorter delay drops no packet in flight
_LINE_CEILING = 10**10 // 8  # bytes/s of a path without a rate
_SIGMAS = 4
_FREE = Link(0, 0, 0.0, UNLIMITED)
_MINOR, _LEAF = 0x10, 0x100  # first numbers of the sites' classes and leaves


@dataclass(frozen=True, slots=True)
class End:
    """A network device in a network namespace."""

    namespace: str
    device: str

    def __str__(self) -> str:
        return f"{self.namespace}: {self.device}"


@dataclass(frozen=True, slots=True)
class Router:
    """A namespace that forwards IPv4, without IPv6 and without a filter on source addresses."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Worker:
    """The namespace of a worker."""

    namespace: str
    rank: int


@dataclass(frozen=True, slots=True)
class Veth:
    """Two devices joined by a cable, with this MTU, offloads off, and static neighbour entries."""

    number: int
    a: End
    b: End
    mtu: int

    def mac(self, end: End) -> str:
        """The hardware address of one end."""
        digits = f"02{self.number:08x}{'01' if end == self.a else '02'}"
        return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a worker."""

    at: End
    address: str


@dataclass(frozen=True, slots=True)
class Route:
    """Packets to `to` leave through this device. Without a device they are dropped. `table` 254 is the main one."""

    namespace: str
    to: str
    device: str | None
    table: int = 254


@dataclass(frozen=True, slots=True)
class Root:
    """An htb that counts IP bytes. Packets without a filter enter class `default`, or no class if it is 0."""

    at: End
    default: int


@dataclass(frozen=True, slots=True)
class From:
    """A filter that sends packets from this address to this class."""

    at: End
    address: str
    minor: int


@dataclass(frozen=True, slots=True)
class Class:
    """An htb class: rate (also its ceil) in bytes/s; in bytes, burst (also its cburst) and quantum, one packet."""

    at: End
    minor: int
    path: str
    rate: int
    burst: int
    quantum: int


@dataclass(frozen=True, slots=True)
class Fifo:
    """The bfifo of a class. `limit` is its buffer in bytes."""

    at: End
    minor: int
    path: str
    limit: int


@dataclass(frozen=True, slots=True)
class Netem:
    """The netem of a class: the impairments of a link, without its queue.

    `limit` is in packets, and large enough that netem never drops a packet: full queues drop before the delay.
    `seed` is None if nothing is random.
    """

    at: End
    minor: int
    path: str
    link: Link
    rate: int
    limit: int
    seed: int | None


Step = Router | Worker | Veth | Address | Route | Root | From
Shape = Class | Fifo | Netem


_DESCRIBED: Mapping[type[Step], str] = {
    Router: "{.namespace}",
    Worker: "{.namespace}",
    Veth: "{0.a} to {0.b}",
    Address: "{0.at}: address {0.address}",
    Route: "{0.namespace}: route to {0.to}",
    Root: "{.at}: htb",
    From: "{0.at}: u32 filter for {0.address}",
}


def described(step: Step) -> str:
    """A step as readable text, for messages."""
    return _DESCRIBED[type(step)].format(step)


def steps_of(network: EmulatedNetwork) -> tuple[Step, ...]:
    """Return everything that depends only on the placement: routers, cables, routes and filters."""
    sites, cables = range(len(network.sites)), count(1)
    return (
        *(Router(stage) for stage in ("paths", "delays", "downs")),
        *(Router(_site(network, site)) for site in sites),
        *(step for rank in range(network.workers) for step in _worker(network, rank, cables)),
        *(step for site in sites for step in _site_cables(network, site, cables)),
        *_routes(network),
        *_classifiers(network),
    )


def up_device(network: EmulatedNetwork, site: int) -> End:
    """The device of a site's `up` queue."""
    return End(_site(network, site), "uplink")


def path_device(site: int) -> End:
    """The device of the queues of all paths into a site."""
    return End("paths", f"to{site}")


def delay_device(site: int) -> End:
    """The device that delays and loses the packets of all paths into a site."""
    return End("delays", f"to{site}")


def down_device(site: int) -> End:
    """The device of a site's `down` queue."""
    return End("downs", f"to{site}")


def worker_device(network: EmulatedNetwork, rank: int) -> End:
    """The last device on the path to a worker."""
    return End(_site(network, network.site_of[rank]), f"w{rank}")


def minor_of(site: int) -> int:
    """The class of packets from this site, on devices with a class per source site."""
    return _MINOR + site


def leaf_of(minor: int) -> int:
    """The handle of the qdisc below a class."""
    return (_LEAF + minor) << 16


ONLY, LOCAL = 1, 2  # classes on all other devices: all packets; packets within the site


def _site(network: EmulatedNetwork, site: int) -> str:
    """The namespace of a site: its name, or its number where that is no word, too long, or itself a number."""
    name = network.sites[site]
    return f"site-{name}" if re.fullmatch(r"(?!\d+$)[A-Za-z0-9._-]{1,100}", name) else f"site-{site}"


def _worker(network: EmulatedNetwork, rank: int, cables: Iterator[int]) -> Iterator[Step]:
    own = End(f"worker-{rank}", DEVICE)
    yield Worker(own.namespace, rank)
    yield Veth(next(cables), worker_device(network, rank), own, network.mtu)
    yield Address(own, worker_address(rank))
    yield Route(own.namespace, NETWORK, own.device)
    yield Route(own.namespace, "0.0.0.0/0", own.device, OUTSIDE_TABLE)


def _site_cables(network: EmulatedNetwork, site: int, cables: Iterator[int]) -> Iterator[Step]:
    yield Veth(next(cables), up_device(network, site), End("paths", f"from{site}"), network.mtu)
    yield Veth(next(cables), path_device(site), End("delays", f"from{site}"), network.mtu)
    yield Veth(next(cables), delay_device(site), End("downs", f"from{site}"), network.mtu)
    yield Veth(next(cables), down_device(site), End(_site(network, site), "downlink"), network.mtu)


def _routes(network: EmulatedNetwork) -> Iterator[Step]:
    for rank, site in enumerate(network.site_of):
        address, last = f"{worker_address(rank)}/32", worker_device(network, rank)
        for device in (last, path_device(site), delay_device(site), down_device(site)):
            yield Route(device.namespace, address, device.device)
    for site in range(len(network.sites)):
        out = up_device(network, site)
        yield Route(out.namespace, NETWORK, out.device)
    yield Route("paths", NETWORK, None)


def _classifiers(network: EmulatedNetwork) -> Iterator[Step]:
    for site in range(len(network.sites)):
        yield Root(up_device(network, site), ONLY)
        yield Root(down_device(site), ONLY)
        for device in (path_device(site), delay_device(site)):
            yield Root(device, 0)
            for rank, origin in enumerate(network.site_of):
                if origin != site:
                    yield From(device, worker_address(rank), minor_of(origin))
    for rank, site in enumerate(network.site_of):
        device = worker_device(network, rank)
        yield Root(device, ONLY)
        for peer, origin in enumerate(network.site_of):
            if peer != rank and origin == site:
                yield From(device, worker_address(peer), LOCAL)


def shapes(network: EmulatedNetwork, seed: int = 0) -> Iterator[Shape]:
    """Yield every class and leaf with its values. Equal placements have the same ones, so values change in place."""
    for site, name in enumerate(network.sites):
        yield from _queue(up_device(network, site), ONLY, f"up of {name}", network.up[site], network.mtu)
        yield from _queue(down_device(site), ONLY, f"down of {name}", network.down[site], network.mtu)
    for (src, dst), link in sorted(network.links.items()):
        path = f"{network.sites[src]} -> {network.sites[dst]}"
        yield from _queue(path_device(dst), minor_of(src), path, link.queue, network.mtu)
        line = slowest(network.up[src], link.queue)
        delays = delay_device(dst)
        yield _class(delays, minor_of(src), path, UNSHAPED, network.mtu)
        yield _netem(delays, minor_of(src), path, link, line, _seed(seed, network.sites[src], network.sites[dst]))
    for rank, site in enumerate(network.site_of):
        device, name = worker_device(network, rank), network.sites[site]
        yield _class(device, ONLY, f"to worker {rank}", UNSHAPED, network.mtu)
        yield _netem(device, ONLY, f"to worker {rank}", _FREE, network.down[site].rate_bytes_per_s)
        yield _class(device, LOCAL, f"inside {name}", UNSHAPED, network.mtu)
        yield _netem(device, LOCAL, f"inside {name}", network.link(site, site), None)


def _queue(at: End, minor: int, path: str, queue: Queue, mtu: int) -> Iterator[Shape]:
    rate, limit = UNSHAPED, _NO_BUFFER_LIMIT
    if queue.rate_bytes_per_s is not None:
        rate, limit = max(1, round(queue.rate_bytes_per_s)), queue.buffer_bytes
    yield _class(at, minor, path, rate, mtu)
    yield Fifo(at, minor, path, limit)


def _class(at: End, minor: int, path: str, rate: int, mtu: int) -> Class:
    return Class(at, minor, path, rate, max(mtu, math.ceil(rate * _BURST_S)), mtu + _ETHERNET_HEADER_BYTES)


def _netem(at: End, minor: int, path: str, link: Link, line: float | None, seed: int | None = None) -> Netem:
    rate = ORDERED if line is None else max(1, round(line))
    is_random = any(impairment.is_random for impairment, _ in link.impairments())
    limit = line_packets(link.delay_ns, link.jitter_ns, line)
    return Netem(at, minor, path, link, rate, limit, seed if is_random else None)


def line_packets(delay_ns: int, jitter_ns: int, line: float | None) -> int:
    """The number of packets that a delay line must hold to drop none, even if all are bare acknowledgements.

    Args:
        line: rate in bytes/s at which packets enter; None is unlimited.
    """
    seconds = max(_LINE_S, (delay_ns + _SIGMAS * jitter_ns) / 1e9)
    return math.ceil(seconds * min(line or math.inf, _LINE_CEILING) / _SMALLEST_PACKET) + _BURST_PACKETS


def _seed(seed: int, src: str, dst: str) -> int:
    """The seed of one directed path, so that each draws its own losses."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{src}>{dst}".encode()).digest()[:8])


def commands(network: EmulatedNetwork) -> list[str]:
    """Return the commands in order, one line each. They have no seeds, which old versions of tc do not know."""
    steps = [line for step in steps_of(network) for line in _step_commands(step)]
    return steps + [_shape_command(shape) for shape in shapes(network)]


def _step_commands(step: Step) -> Iterator[str]:
    match step:
        case Router(namespace) | Worker(namespace):
            sysctls = ROUTER_SYSCTLS | NO_IPV6 if isinstance(step, Router) else ONLY_LOCAL_IPV6
            settings = " ".join(f"{name}={value}" for name, value in sysctls.items())
            yield f"ip netns add {namespace}"
            yield f"ip netns exec {namespace} sysctl -qw {settings}"
            yield f"ip -n {namespace} link set lo up"
        case Veth(_, a, b, mtu):
            yield (
                f"ip -n {a.namespace} link add {a.device} address {step.mac(a)} mtu {mtu} type veth"
                f" peer name {b.device} address {step.mac(b)} mtu {mtu} netns {b.namespace}"
            )
            for end, other in ((a, b), (b, a)):
                yield f"ip netns exec {end.namespace} ethtool -K {end.device} tso off gso off gro off"
                yield f"ip -n {end.namespace} link set {end.device} up"
                neighbour = f"{GATEWAY} lladdr {step.mac(other)} dev {end.device} nud permanent"
                yield f"ip -n {end.namespace} neigh replace {neighbour}"
        case Address(at, address):
            yield f"ip -n {at.namespace} addr add {address}/32 dev {at.device}"
        case Route(namespace, to, None):
            yield f"ip -n {namespace} route add blackhole {to}"
        case Route(table=table) if table == OUTSIDE_TABLE:
            return  # it only tells programs their address
        case Route(namespace, to, device):
            yield f"ip -n {namespace} route add {to} via {GATEWAY} dev {device} onlink"
        case Root(at, default):
            yield f"{_tc('qdisc', at)} root handle 1: stab overhead -14 htb default {default:x}"
        case From(at, address, minor):
            match_ = f"u32 match ip src {address}/32"
            yield f"{_tc('filter', at)} parent 1: protocol ip prio 1 {match_} flowid 1:{minor:x}"


def _shape_command(shape: Shape) -> str:
    """The command that sets one class or leaf."""
    parent = f"parent 1:{shape.minor:x} handle {leaf_of(shape.minor) >> 16:x}:"
    match shape:
        case Class(at, minor, _, rate, burst, quantum):
            rates = f"rate {_bit(rate)} ceil {_bit(rate)} burst {burst} cburst {burst} quantum {quantum}"
            return f"{_tc('class', at)} parent 1: classid 1:{minor:x} htb {rates}"
        case Fifo(at, limit=limit):
            return f"{_tc('qdisc', at)} {parent} bfifo limit {limit}"
        case Netem(at, limit=limit, rate=rate):
            delay = f" delay {us(shape.link.delay_ns)}"
            options = "".join(impairment.tc(shape.link) for impairment, _ in shape.link.impairments())
            return f"{_tc('qdisc', at)} {parent} netem limit {limit}{delay}{options} rate {_bit(rate)}"


def _tc(kind: str, at: End) -> str:
    return f"tc -n {shlex.quote(at.namespace)} {kind} add dev {at.device}"


def _bit(bytes_per_s: int) -> str:
    return f"{8 * bytes_per_s}bit"
