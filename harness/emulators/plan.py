"""The network that an emulator builds, made from a profile and a placement. Pure, and light to import.

The topology is a star of stars. A packet from a worker of site A to a worker of site B passes

    up queue of A  ->  path queue A->B  ->  loss  ->  delay and jitter, order kept  ->  down queue of B

and a packet between two workers of one site passes that site's local delay only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wanbench.harness.emulators.impairments import Delay, Impairment, Jitter, Loss, LossBurst, Rate
from wanbench.workloads.comm.blocks import MTU
from wanbench.workloads.process.namespace import BUFFER_BYTES

if TYPE_CHECKING:  # the relay process imports this module and must start fast
    from wanbench.netprofiles import units
    from wanbench.netprofiles.profile import Profile

DEVICE = "wan0"
TCP_HEADER_BYTES = 52  # IPv4 20, TCP 20, timestamps 12
_LARGEST_BUFFER_BYTES = (1 << 31) - 1

_SEGMENT_PAYLOAD_BYTES = 1 << 16  # of the longest segment that a kernel makes

# On a network without delay, a buffer of one round trip would be empty, yet TCP sends bursts of up to 64 kB
# (44 packets of 1500 bytes), and N-1 peers can do so at once. 50 ms of line rate, and at least 64 such packets, hold
# such a burst without loss. Even cheap routers hold more.
_FLOOR_SECONDS = 0.050
_FLOOR_BYTES = 64 * MTU

# How long a segment lasts: this share of the round trip, within these limits in ns.
_SEGMENT_SHARE, _SEGMENT_NS = 0.01, (250_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Queue:
    """A drop-tail queue. A rate of None is unlimited: the queue is always empty, and its buffer has no effect."""

    rate_bytes_per_s: float | None
    buffer_bytes: int


UNLIMITED = Queue(None, 0)


@dataclass(frozen=True, slots=True)
class Link:
    """One directed path: one-way delay, its standard deviation, loss per packet in [0, 1], its queue, and the mean
    number of packets lost in a row; 0 if each is lost independently.

    To add an impairment, add a field with a default at the end, under the name that `netprofiles` uses in JSON.
    """

    delay_ns: int = field(metadata={"impairment": Delay()})
    jitter_ns: int = field(metadata={"impairment": Jitter()})
    loss: float = field(metadata={"impairment": Loss()})
    queue: Queue = field(metadata={"impairment": Rate()})
    loss_burst: float = field(default=0.0, metadata={"impairment": LossBurst()})

    def impairments(self) -> Iterator[tuple[Impairment, Any]]:
        """Yield each impairment that this link has, with its value."""
        values = ((impairment, getattr(self, name)) for name, impairment in IMPAIRMENTS.items())
        return ((impairment, value) for impairment, value in values if value)

    def to_json(self) -> dict[str, Any]:
        """Return plain data. Fields added since the first runs are left out if they are zero, which keeps old keys."""
        added = [item.name for item in dataclasses.fields(self) if item.default is not dataclasses.MISSING]
        return {name: value for name, value in dataclasses.asdict(self).items() if value or name not in added}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Link:
        """Build a link from the output of `to_json`."""
        return cls(**{**data, "queue": Queue(**data["queue"])})


IMPAIRMENTS: Mapping[str, Impairment] = {item.name: item.metadata["impairment"] for item in dataclasses.fields(Link)}
"""The impairments by the name of their field in `Link`, in its order."""


@dataclass(frozen=True)
class EmulatedNetwork:
    """The network that an emulator builds. Sites are numbered as in `sites`, workers by rank.

    Attributes:
        sites: names of the sites that have a worker.
        site_of: the site number of every rank.
        up, down: the queue that a site's workers share to (and from) all other sites.
        local_delay_ns: one-way delay between two workers of the site.
        links: the directed path between every ordered pair of different sites.
        mtu: bytes of the largest IP packet.
    """

    sites: tuple[str, ...]
    site_of: tuple[int, ...]
    up: tuple[Queue, ...]
    down: tuple[Queue, ...]
    local_delay_ns: tuple[int, ...]
    links: Mapping[tuple[int, int], Link]
    mtu: int = MTU

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.site_of)

    def link(self, src: int, dst: int) -> Link:
        """The directed path between two sites, or the local link of one site."""
        return self.links[src, dst] if src != dst else Link(self.local_delay_ns[src], 0, 0.0, UNLIMITED)

    def queues(self, src: int, dst: int) -> tuple[Queue, ...]:
        """The queues with a rate between two sites, in the order that a packet passes them; none inside a site."""
        passed = (self.up[src], self.links[src, dst].queue, self.down[dst]) if src != dst else ()
        return tuple(queue for queue in passed if queue.rate_bytes_per_s is not None)

    def rate(self, src: int, dst: int) -> float | None:
        """The rate in bytes/s that one flow can reach; None is unlimited."""
        return slowest(*self.queues(src, dst))

    @property
    def socket_buffer_bytes(self) -> int:
        """The largest socket buffer of workers (`buffer_that_holds`)."""
        filled = [
            (self.rate(src, dst) or 0.0) * (link.delay_ns + self.links[dst, src].delay_ns) / 1e9
            for (src, dst), link in self.links.items()
        ]
        return buffer_that_holds(max(filled, default=0.0))

    @property
    def segment_bytes(self) -> int:
        """IP bytes of the longest segment that a kernel makes, with the headers of all its packets."""
        return math.ceil(_SEGMENT_PAYLOAD_BYTES / payload_bytes(self.mtu)) * self.mtu

    def longest_segment(self, src: int, dst: int) -> float:
        """The IP bytes of the longest segment that an emulator moves together between two sites.

        A receiver gets a segment when its last packet is due, so it must not last long at the rate of its path. A
        single packet always passes.
        """
        rate = self.rate(src, dst)
        if rate is None:
            return self.segment_bytes
        round_trip_ns = self.links[src, dst].delay_ns + self.links[dst, src].delay_ns
        lasts_ns = min(max(_SEGMENT_SHARE * round_trip_ns, _SEGMENT_NS[0]), _SEGMENT_NS[1])
        return min(rate * lasts_ns / 1e9, self.segment_bytes)

    def same_places(self, other: EmulatedNetwork) -> bool:
        """Whether both networks have the same sites, workers and MTU, with any paths between them."""
        return (self.sites, self.site_of, self.mtu) == (other.sites, other.site_of, other.mtu)

    @property
    def loses(self) -> bool:
        """Whether a path loses packets."""
        return any(link.loss for link in self.links.values())

    def without_loss(self) -> EmulatedNetwork:
        """The same network, but no path loses packets: for forming groups, and for what is not measured."""
        return dataclasses.replace(
            self, links={pair: dataclasses.replace(link, loss=0.0) for pair, link in self.links.items()}
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data, in a fixed order. `EmulatedNetwork.from_json` is the inverse."""
        return {
            "sites": list(self.sites),
            "site_of": list(self.site_of),
            "up": [dataclasses.asdict(queue) for queue in self.up],
            "down": [dataclasses.asdict(queue) for queue in self.down],
            "local_delay_ns": list(self.local_delay_ns),
            "links": [
                {"src": src, "dst": dst, "link": link.to_json()} for (src, dst), link in sorted(self.links.items())
            ],
            **({} if self.mtu == MTU else {"mtu": self.mtu}),  # networks without it keep their keys
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EmulatedNetwork:
        """Build a network from the output of `to_json`."""
        return cls(
            sites=tuple(data["sites"]),
            site_of=tuple(data["site_of"]),
            up=tuple(Queue(**queue) for queue in data["up"]),
            down=tuple(Queue(**queue) for queue in data["down"]),
            local_delay_ns=tuple(data["local_delay_ns"]),
            links={(item["src"], item["dst"]): Link.from_json(item["link"]) for item in data["links"]},
            mtu=data.get("mtu", MTU),
        )

    def key(self) -> str:
        """The sha256 of the canonical JSON. Equal networks have equal keys, so one probe serves them all."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


NO_NETWORK = EmulatedNetwork((), (), (), (), (), {})
"""What an emulator has built before the first command to do so."""


def payload_bytes(mtu: int) -> int:
    """The TCP payload of a full packet."""
    return mtu - TCP_HEADER_BYTES


def payload_share(mtu: int) -> float:
    """The share of TCP's payload in the bytes of full packets."""
    return payload_bytes(mtu) / mtu


def buffer_that_holds(filled_bytes: float) -> int:
    """The largest socket buffer: four times what fills the path, so that it limits no connection.

    Half of it is TCP's window. At least `BUFFER_BYTES`; at most what Linux takes, which makes a window of 1 GiB.
    """
    return min(max(BUFFER_BYTES, math.ceil(4 * filled_bytes)), _LARGEST_BUFFER_BYTES)


def worker_address(rank: int) -> str:
    """The IPv4 address of a worker on the emulated network, which is one /16 with 64,000 of them."""
    return f"10.99.{rank // 250}.{rank % 250 + 1}"


def build(profile: Profile, placement: Sequence[str], mtu: int = MTU) -> EmulatedNetwork:
    """Build the network with worker `rank` at site `placement[rank]`.

    A queue without a stated buffer holds one round trip at its rate, the usual rule for router buffers. The `up` and
    `down` queues of a site use the site's longest round trip. No buffer is below 50 ms or 96 kB.

    Raises:
        ProfileError: the profile does not have a site of the placement.
    """
    placed = [profile.site(name).name for name in placement]  # a name can be a region code
    sites = tuple(site.name for site in profile.sites if site.name in set(placed))
    number = {name: index for index, name in enumerate(sites)}
    round_trip_s = {(a, b): profile.rtt(a, b).seconds for a in sites for b in sites if a != b}
    longest = {a: max((round_trip_s[a, b] for b in sites if b != a), default=0.0) for a in sites}
    at = [profile.site(name) for name in sites]
    links = {}
    for (a, b), seconds in round_trip_s.items():
        path = profile.path(a, b)
        plain: dict[str, Any] = {
            impairment.plain: value.plain
            for impairment, value in path.values()
            if value and impairment.plain in IMPAIRMENTS
        }
        links[number[a], number[b]] = Link(path.delay.ns, queue=_queue(path.rate, seconds, path.buffer), **plain)
    return EmulatedNetwork(
        sites=sites,
        site_of=tuple(number[name] for name in placed),
        up=tuple(_queue(site.up, longest[site.name], site.buffer) for site in at),
        down=tuple(_queue(site.down, longest[site.name], site.buffer) for site in at),
        local_delay_ns=tuple(site.local_rtt.ns // 2 for site in at),
        links=links,
        mtu=mtu,
    )


def _queue(rate: units.Rate | None, round_trip_s: float, buffer: units.Size | None) -> Queue:
    if rate is None:
        return UNLIMITED
    return queue_of(rate.bytes_per_s, round_trip_s) if buffer is None else Queue(rate.bytes_per_s, buffer.bytes)


def slowest(*queues: Queue) -> float | None:
    """The rate in bytes/s of several queues in a row; None is unlimited."""
    return min((queue.rate_bytes_per_s for queue in queues if queue.rate_bytes_per_s is not None), default=None)


def queue_of(bytes_per_s: float, round_trip_s: float) -> Queue:
    """A queue whose buffer holds one round trip, with the minimum that `build` states."""
    return Queue(bytes_per_s, max(int(bytes_per_s * max(round_trip_s, _FLOOR_SECONDS)), _FLOOR_BYTES))
