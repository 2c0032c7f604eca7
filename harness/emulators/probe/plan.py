"""The schedule of the packets that measure a network without disturbing it. Pure.

One directed path gets up to three kinds of trains: spaced small packets for delay, jitter and order; one burst for
the rate; and, if a loss is configured, enough small packets to see it. Trains are limited to 50 ms of line rate and
to the smallest buffer on the path, so an idle path drops no packet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wanbench.harness.emulators.plan import EmulatedNetwork, slowest

Pair = tuple[int, int]
# start_ns, packets, segment, bytes, burst, spacing_ns: see wanbench.workloads.process.probing.probe_send
Train = dict[str, int]

_SMALL_BYTES, _LARGE_BYTES = 64, 1500
_TRAIN_S = 0.050
_PAUSE_NS = 20_000_000  # lets a train drain before the next begins
_SINGLE_PACKETS = (10, 40)
_SINGLE_S = 2.0  # limit for all single packets together, if jitter requires wide gaps
_BURST_PACKETS = (16, 600)
# A fast path passes so many packets within a wake-up of the receiver. It gets longer trains, of segments.
_SEGMENT_PACKETS, _SEGMENTS_S = 43, 0.020
_LOSS_PACKETS = 5000  # per path; a loss that is expected to hit fewer than five of them is not probed
_LOSSES_TO_SEE = 5  # or bursts of them
_LOSS_PACKETS_PER_MS = 20  # of all paths of a round together
_TOGETHER_BYTES_PER_S = 50e6  # limit for the sum of rates measured at once: a relay carries this easily


@dataclass(frozen=True)
class Flow:
    """The trains that one worker sends in one round to each of `receivers`."""

    sender: int
    receivers: tuple[int, ...]
    delay_ns: int
    trains: tuple[Train, ...]

    @property
    def packets(self) -> int:
        """The number of packets that each receiver should get."""
        return sum(train["packets"] for train in self.trains)

    @property
    def end_ns(self) -> int:
        """The time by which the last packet should have arrived."""
        last = self.trains[-1]
        return _end(last) + int(_TRAIN_S * 1e9) + self.delay_ns


def rounds_of(sites: int) -> Iterator[list[Pair]]:
    """Yield all directed pairs of sites, in rounds with every site at most once (a round-robin tournament)."""
    seats: list[int | None] = [*range(sites), *([None] if sites % 2 else [])]
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = [
            (a, b) for a, b in zip(seats[:half], reversed(seats[half:]), strict=True) if a is not None and b is not None
        ]
        if pairs:
            yield pairs
            yield [(b, a) for a, b in pairs]
        seats.insert(1, seats.pop())


def flows_of(network: EmulatedNetwork, pairs: Sequence[Pair], start_ns: int) -> list[Flow]:
    """Return one round on these paths, which share no worker: all delays first, then all rates, then losses."""
    ranks = ranks_by_site(network)
    singles = [_single_train(network, pair, start_ns) for pair in pairs]
    starts, loss_ns = _burst_starts(network, pairs, max(_end(train) for train in singles))
    flows = []
    for pair, single, at in zip(pairs, singles, starts, strict=True):
        link, rate = network.link(*pair), network.rate(*pair)
        trains = [single]
        if rate is not None:
            trains.append(burst_train(rate, min(queue.buffer_bytes for queue in network.queues(*pair)), at))
        if link.loss:
            trains.extend(_loss_trains(link.loss / max(1.0, link.loss_burst), rate, len(pairs), loss_ns))
        src, dst = pair
        flows.append(Flow(ranks[src][0], (ranks[dst][-1],), link.delay_ns, tuple(trains)))
    return flows


def ranks_by_site(network: EmulatedNetwork) -> list[list[int]]:
    """Return the ranks of the workers of every site."""
    ranks: list[list[int]] = [[] for _ in network.sites]
    for rank, site in enumerate(network.site_of):
        ranks[site].append(rank)
    return ranks


def shared_up_flows(network: EmulatedNetwork, start_ns: int) -> tuple[int, float, list[Flow]] | None:
    """Return a site whose `up` rate limits its streams to other sites, that rate in bytes/s, and the streams.

    The site's workers divide the destinations among them. A single worker alternates between all.
    """
    ranks = ranks_by_site(network)
    for site in sorted(range(len(network.sites)), key=lambda s: -len(ranks[s])):
        up = network.up[site].rate_bytes_per_s
        to = [] if up is None else _saturating(network, site, up)
        if up is None or not to:
            continue
        train = burst_train(up, network.up[site].buffer_bytes, start_ns)
        segments = train["packets"] // train["segment"]
        train["packets"] = train["burst"] = max(4, segments // len(to)) * train["segment"]
        delay_ns = max(network.links[site, dst].delay_ns for dst in to)
        flows = []
        for index, sender in enumerate(ranks[site][: len(to)]):
            receivers = tuple(ranks[dst][-1] for dst in to[index :: len(ranks[site])])
            flows.append(Flow(sender, receivers, delay_ns, (train,)))
        return site, up, flows
    return None


def _saturating(network: EmulatedNetwork, site: int, up: float) -> list[int]:
    """Return two to four sites that can together receive clearly more than `up`, or no site if there are none."""
    alone = {}
    for dst in range(len(network.sites)):
        if dst != site:
            queues = (network.links[site, dst].queue, network.down[dst])
            alone[dst] = slowest(*queues) or math.inf
    widest = sorted(alone, key=lambda dst: -alone[dst])
    for count in range(2, min(4, len(widest)) + 1):
        if alone[widest[count - 1]] >= 1.1 * up / count:
            return widest[:count]
    return []


def burst_train(rate: float, buffer_bytes: int, start_ns: int) -> Train:
    """Return a train of at least 16 packets, sent at once, that takes up to 50 ms at `rate` bytes/s."""
    min_packets, max_packets = _BURST_PACKETS
    total = min(rate * _TRAIN_S, buffer_bytes)
    size = max(_SMALL_BYTES, min(_LARGE_BYTES, int(total / min_packets)))
    packets, segment = max(min_packets, min(max_packets, int(total / size))), 1
    long = int(min(rate * _SEGMENTS_S, buffer_bytes) / size)
    if long > max_packets:
        segment = _SEGMENT_PACKETS
        packets = long // segment * segment
    return {
        "start_ns": start_ns, "packets": packets, "segment": segment, "bytes": size, "burst": packets, "spacing_ns": 0,
    }  # fmt: skip


def wire_ns(network: EmulatedNetwork, pair: Pair) -> float:
    """The time in ns that the bytes of one small packet take in all queues of a path. It counts on slow paths."""
    return sum(_SMALL_BYTES / (queue.rate_bytes_per_s or math.inf) * 1e9 for queue in network.queues(*pair))


def _single_train(network: EmulatedNetwork, pair: Pair, start_ns: int) -> Train:
    # Order is kept, so packets closer than the jitter would delay each other and hide it. Packets closer than
    # their own transmission time would queue.
    min_packets, max_packets = _SINGLE_PACKETS
    spacing_ns = max(_TRAIN_S * 1e9 / max_packets, 4 * network.link(*pair).jitter_ns, 2 * wire_ns(network, pair))
    packets = max(min_packets, min(max_packets, int(_SINGLE_S * 1e9 / spacing_ns)))
    return {
        "start_ns": start_ns,
        "packets": packets,
        "segment": 1,
        "bytes": _SMALL_BYTES,
        "burst": 1,
        "spacing_ns": int(spacing_ns),
    }


def _burst_starts(network: EmulatedNetwork, pairs: Sequence[Pair], after_ns: int) -> tuple[list[int], int]:
    """Return the start of each path's rate measurement, and the end of all.

    Paths are measured at the same time as long as the emulator can carry the sum of their rates.
    """
    slot_ns = int(_TRAIN_S * 1e9) + _PAUSE_NS
    at, together, starts = after_ns + _PAUSE_NS, 0.0, []
    for pair in pairs:
        rate = network.rate(*pair) or 0.0
        if together and together + rate > _TOGETHER_BYTES_PER_S:
            at, together = at + slot_ns, 0.0
        together += rate
        starts.append(at)
    return starts, at + slot_ns


def _loss_trains(losses: float, rate: float | None, paths: int, start_ns: int) -> list[Train]:
    """Return trains of small packets, 50 ms each at no more than half the rate, that should have five losses.

    Return no train if 5000 packets are too few. At a low rate, send only as many packets as fit into one second.

    Args:
        losses: losses per packet, where a burst counts once.
    """
    packets = math.ceil(_LOSSES_TO_SEE / losses)
    if packets > _LOSS_PACKETS:
        return []
    per_ms = _LOSS_PACKETS_PER_MS / paths
    if rate is not None:
        per_ms = min(per_ms, rate / 2 / _SMALL_BYTES / 1e3)
    burst = max(1, int(per_ms))
    spacing_ns = int(burst / per_ms * 1e6)
    per_train = burst * max(1, int(_TRAIN_S * 1e9 / spacing_ns))
    packets = min(packets, max(per_train, int(per_ms * 1e3)))
    trains: list[Train] = []
    while packets > 0:
        count = min(per_train, packets)
        start_ns = _end(trains[-1]) if trains else start_ns
        train = {"packets": count, "segment": 1, "bytes": _SMALL_BYTES, "burst": burst, "spacing_ns": spacing_ns}
        trains.append(train | {"start_ns": start_ns})
        packets -= count
    return trains


def _end(train: Train) -> int:
    """The time when a train has been sent."""
    return train["start_ns"] + math.ceil(train["packets"] / train["burst"]) * train["spacing_ns"]
