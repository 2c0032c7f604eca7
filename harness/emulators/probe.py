"""The probe measures what an emulator built, with real packets between real workers.

The network is otherwise idle. Directed paths are measured in rounds: in one round every worker either sends or
receives, and no two paths share a queue. Of equal paths only so many are measured that every site sends and receives.
One path gets up to three kinds of trains: spaced small packets for delay, jitter and order; one burst for the rate;
and, if an impairment hits few packets, enough small packets to see it. Trains are limited to 50 ms of line rate and to
the smallest buffer on the path, so an idle path drops no packet.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol

from wanbench.harness.emulators.impairments import Observation, Tolerance, rate_reasons
from wanbench.harness.emulators.plan import IMPAIRMENTS, EmulatedNetwork, Link, slowest, worker_address

_LEAD_NS = 50_000_000  # time for the commands to reach all workers before the first packet leaves
_LATE_NS = 150_000_000  # how long receivers wait beyond the expected end
_ROUNDS = 30  # covers all paths of up to 16 sites, and an evenly spread sample of larger networks
_REPEATS = 2  # a wrong network fails every time, a busy host does not
_ANSWER_S = 20.0
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
_RARE_PACKETS = 5000  # per path; a loss, for example, that is expected to hit fewer than five of them is not probed
_EVENTS_TO_SEE = 5
_RARE_PACKETS_PER_MS = 20  # of all paths of a round together
_TOGETHER_BYTES_PER_S = 50e6  # limit for the sum of rates measured at once: a relay carries this easily


TOLERANCES = {"relay": Tolerance(1.0, 0.02), "netem": Tolerance(0.5, 0.01)}


class Arrival(NamedTuple):
    """A segment as `workloads.process.probing.probe_receive` reports it, often a single packet."""

    train: int
    sequence: int
    sent_ns: int
    received_ns: int
    packets: int
    copies: int = 0


@dataclass(frozen=True)
class PathProbe:
    """One directed path. Rates count IP bytes. A rate of None is unlimited, and is not measured.

    `measured_one_way_ms` is the median over the single packets, minus the time that their bytes take at the
    configured rates. `jitter_ms` is a standard deviation. `measured_jitter_ms` is half the distance from the 16th to
    the 84th percentile, which equals it for a normal distribution and is robust against one late wake-up.
    `inversions` counts the packets that were overtaken.
    """

    src: str
    dst: str
    one_way_ms: float
    measured_one_way_ms: float | None
    jitter_ms: float
    measured_jitter_ms: float | None
    loss: float
    sent: int
    lost: int
    rate_mbit: float | None
    measured_rate_mbit: float | None
    inversions: int
    reasons: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the path is within all tolerances."""
        return not self.reasons

    @property
    def error_ms(self) -> float | None:
        """Measured minus configured one-way delay in ms, or None if it was not measured."""
        return None if self.measured_one_way_ms is None else self.measured_one_way_ms - self.one_way_ms


@dataclass(frozen=True)
class SharedUpProbe:
    """Simultaneous streams out of one site to several others, and their rate together."""

    site: str
    to: tuple[str, ...]
    rate_mbit: float
    measured_rate_mbit: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class ProbeReport:
    """The measured values of a network.

    `paths_total` exceeds the number of rows if only a sample was measured. `repeated` counts the paths that were
    measured again because the first measurement was out of tolerance.
    """

    network: str
    seconds: float
    paths_total: int
    repeated: int
    rows: tuple[PathProbe, ...]
    shared_up: SharedUpProbe | None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the network is not what was configured, one line each; empty if it is."""
        shared = () if self.shared_up is None else self.shared_up.reasons
        return (*(reason for row in self.rows for reason in row.reasons), *shared)

    @property
    def ok(self) -> bool:
        """Whether every path is within tolerance."""
        return not self.reasons

    @property
    def one_way_error_ms(self) -> float | None:
        """The largest absolute error of a one-way delay, or None if nothing was received."""
        return max((abs(row.error_ms) for row in self.rows if row.error_ms is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with `ok`, `reasons` and `one_way_error_ms`."""
        return asdict(self) | {
            "ok": self.ok,
            "reasons": list(self.reasons),
            "one_way_error_ms": self.one_way_error_ms,
        }


class ProbeWorker(Protocol):
    """A worker that answers probe messages by `workloads.process.probing.handle`."""

    def send(self, message: dict[str, Any]) -> None:
        """Send a command."""

    def receive(self, timeout_s: float, expected: str = "") -> dict[str, Any]:
        """Return the next answer, which is `expected`. Raises: TimeoutError."""


def probe(network: EmulatedNetwork, workers: Sequence[ProbeWorker], *, tolerance: Tolerance) -> ProbeReport:
    """Measure a network that has been applied and is idle. `workers` are in the order of their ranks.

    This takes about (0.25 s + one-way delay) x 2 (N-1) for N sites whose paths differ: 2 s for four sites, 5 s at an
    RTT of 1 s.

    Raises:
        TimeoutError: a worker does not answer.
    """
    began = time.monotonic()
    rounds, total = rounds_to_measure(network)
    prober = _Prober(network, workers, tolerance, sum(len(pairs) for pairs in rounds))
    rows = {pair: row for pairs in rounds for pair, row in prober.measure(pairs).items()}
    shared = prober.measure_shared_up()
    repeated = 0
    for _ in range(_REPEATS):
        failed = sorted(pair for pair, row in rows.items() if not row.ok)
        repeated += len(failed)
        for pair in failed:
            rows |= prober.measure([pair])
        if shared is not None and shared.reasons:
            shared = prober.measure_shared_up()
    prober.close()
    return ProbeReport(
        network.key(),
        time.monotonic() - began,
        total,
        repeated,
        tuple(rows[pair] for pair in sorted(rows)),
        shared,
    )


def rounds_to_measure(network: EmulatedNetwork) -> tuple[list[list[Pair]], int]:
    """Return the rounds to measure, and the number of all paths.

    A round and its reverse are measured if a path of them is unlike all before it, or a site has not been measured.
    """
    rounds = list(rounds_of(len(network.sites)))
    local = [(site, site) for site, ranks in enumerate(ranks_by_site(network)) if len(ranks) > 1]
    seen: set[object] = set()
    chosen: list[list[Pair]] = []
    for there, back in zip(rounds[::2], rounds[1::2], strict=True):
        news = {(network.link(*pair), network.queues(*pair)) for pair in (*there, *back)} | {s for s, _ in there + back}
        if news - seen:
            chosen += there, back
        seen |= news
    if len(chosen) > _ROUNDS:
        chosen = [chosen[index * len(chosen) // _ROUNDS] for index in range(_ROUNDS)]
    return [*chosen, *([local] if local else [])], sum(len(pairs) for pairs in rounds) + len(local)


class _Prober:
    """Runs rounds of flows on the workers and judges what arrives."""

    def __init__(
        self, network: EmulatedNetwork, workers: Sequence[ProbeWorker], tolerance: Tolerance, paths_judged: int
    ) -> None:
        self._network = network
        self._workers = workers[: network.workers]
        self._tolerance = tolerance
        self._paths_judged = paths_judged
        self._number = 0
        for rank, worker in enumerate(self._workers):
            worker.send({"cmd": "probe", "role": "listen", "address": worker_address(rank)})
        self._ports = [worker.receive(_ANSWER_S, "probe listen")["port"] for worker in self._workers]

    def measure(self, pairs: Sequence[Pair]) -> dict[Pair, PathProbe]:
        """Measure these paths, which share no worker and no queue, in one round."""
        network = self._network
        flows = flows_of(network, pairs, time.monotonic_ns() + _LEAD_NS)
        return {
            pair: judge(
                (network.sites[pair[0]], network.sites[pair[1]]),
                network.link(*pair),
                network.rate(*pair),
                wire_ns(network, pair),
                flow.trains,
                arrivals,
                tolerance=self._tolerance,
                paths_judged=self._paths_judged,
            )
            for pair, flow, (_, arrivals) in zip(pairs, flows, self._run(flows), strict=True)
        }

    def measure_shared_up(self) -> SharedUpProbe | None:
        """Measure several streams out of one site. Return None if no `up` rate is a limit."""
        network = self._network
        planned = shared_up_flows(network, time.monotonic_ns() + _LEAD_NS)
        if planned is None:
            return None
        site, rate, flows = planned
        departures: list[int] = []
        to: list[str] = []
        for receiver, arrivals in self._run(flows):
            dst = network.site_of[receiver]
            to.append(network.sites[dst])
            # The arrival time minus the delay of the path is the departure from the queue under test.
            delay_ns = network.links[site, dst].delay_ns
            departures.extend(arrival.received_ns - delay_ns for arrival in arrivals)
        jitter_ms = max(network.links[site, network.sites.index(name)].jitter_ns for name in to) / 1e6
        (train,) = flows[0].trains
        nbytes, sent = train["bytes"] * train["segment"], len(to) * (train["packets"] // train["segment"])
        return judge_shared_up(network.sites[site], tuple(to), rate, departures, nbytes, sent=sent, jitter_ms=jitter_ms)

    def close(self) -> None:
        """Let the workers close their sockets."""
        for worker in self._workers:
            worker.send({"cmd": "probe", "role": "close"})
        for worker in self._workers:
            worker.receive(_ANSWER_S, "probe close")

    def _run(self, flows: Sequence[Flow]) -> Iterator[tuple[int, list[Arrival]]]:
        """Run one round. Yield each receiver of each flow with its arrivals."""
        self._number += 1
        end_ns = max(flow.end_ns for flow in flows) + _LATE_NS
        for flow in flows:
            for receiver in flow.receivers:
                self._command(receiver, {"role": "receive", "expect": flow.packets, "until_ns": end_ns})
        for flow in flows:
            to = [[worker_address(receiver), self._ports[receiver]] for receiver in flow.receivers]
            own = worker_address(flow.sender)
            self._command(flow.sender, {"role": "send", "address": own, "to": to, "trains": flow.trains})
        for flow in flows:
            self._workers[flow.sender].receive(_ANSWER_S, "probe send")
        for flow in flows:
            for receiver in flow.receivers:
                wait_s = max(0.0, end_ns - time.monotonic_ns()) / 1e9 + _ANSWER_S
                segments = self._workers[receiver].receive(wait_s, "probe receive")["segments"]
                yield receiver, [Arrival(*segment) for segment in segments]

    def _command(self, rank: int, message: dict[str, Any]) -> None:
        self._workers[rank].send({"cmd": "probe", "round": self._number, **message})


# ---------------------------------------------------------------- the schedule of the packets (pure)


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
        return _end(self.trains[-1]) + int(_TRAIN_S * 1e9) + self.delay_ns


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
    starts, rare_ns = _burst_starts(network, pairs, max(_end(train) for train in singles))
    flows = []
    for pair, single, at in zip(pairs, singles, starts, strict=True):
        link, rate = network.link(*pair), network.rate(*pair)
        trains = [single]
        if rate is not None:
            smallest = min(queue.buffer_bytes for queue in network.queues(*pair))
            trains.append(burst_train(rate, smallest, at, network.mtu))
        shares = [impairment.share(link) for impairment, _ in link.impairments()]
        if shares := [share for share in shares if share * _RARE_PACKETS >= _EVENTS_TO_SEE]:
            trains.extend(_rare_trains(min(shares), rate, len(pairs), rare_ns))
        src, dst = pair
        flows.append(Flow(ranks[src][0], (ranks[dst][-1],), link.delay_ns, tuple(trains)))
    return flows


def ranks_by_site(network: EmulatedNetwork) -> list[list[int]]:
    """Return the ranks of the workers of every site."""
    return [[rank for rank, at in enumerate(network.site_of) if at == site] for site in range(len(network.sites))]


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
        train = burst_train(up, network.up[site].buffer_bytes, start_ns, network.mtu)
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
    alone = {
        dst: slowest(network.links[site, dst].queue, network.down[dst]) or math.inf
        for dst in range(len(network.sites))
        if dst != site
    }
    widest = sorted(alone, key=lambda dst: -alone[dst])
    for count in range(2, min(4, len(widest)) + 1):
        if alone[widest[count - 1]] >= 1.1 * up / count:
            return widest[:count]
    return []


def burst_train(rate: float, buffer_bytes: int, start_ns: int, mtu: int) -> Train:
    """Return a train of at least 16 packets, sent at once, that takes up to 50 ms at `rate` bytes/s."""
    min_packets, max_packets = _BURST_PACKETS
    total = min(rate * _TRAIN_S, buffer_bytes)
    size = max(_SMALL_BYTES, min(_LARGE_BYTES, mtu, int(total / min_packets)))
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


def _rare_trains(share: float, rate: float | None, paths: int, start_ns: int) -> list[Train]:
    """Return trains of small packets, 50 ms each at no more than half the rate, that should see five events.

    At a low rate, send only as many packets as fit into one second.

    Args:
        share: events per packet (`Impairment.share`).
    """
    packets = math.ceil(_EVENTS_TO_SEE / share)
    per_ms = _RARE_PACKETS_PER_MS / paths
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


# ---------------------------------------------------------------- the judgement (pure)


def judge(
    names: tuple[str, str],
    link: Link,
    rate: float | None,
    wire_ns: float,
    trains: Sequence[Mapping[str, int]],
    arrivals: Sequence[Arrival],
    *,
    tolerance: Tolerance,
    paths_judged: int,
) -> PathProbe:
    """Judge one path by the packets that arrived.

    Args:
        rate: expected rate of one flow in bytes/s; None is unlimited.
        wire_ns: time that the bytes of a single packet take in all queues of the path.
        trains: trains as sent: the first for delay and jitter, the second for the rate if there is one.
        paths_judged: number of paths judged together; the loss intervals hold for all of them with 99 %.
    """
    delays = [(a.received_ns - a.sent_ns - wire_ns) / 1e6 for a in arrivals if a.train == 0]
    burst = [(a.sequence, a.received_ns) for a in arrivals if a.train == 1]
    # A receiver can overflow under a fast train of segments, which says nothing about the path.
    alone = [a for a in arrivals if trains[a.train]["segment"] == 1]
    sent = sum(train["packets"] for train in trains if train["segment"] == 1)
    row = PathProbe(
        *names,
        one_way_ms=link.delay_ns / 1e6,
        measured_one_way_ms=statistics.median(delays) if delays else None,
        jitter_ms=link.jitter_ns / 1e6,
        measured_jitter_ms=_spread(delays),
        loss=link.loss,
        sent=sent,
        lost=sent - sum(a.packets for a in alone),
        rate_mbit=_mbit(rate),
        measured_rate_mbit=None if rate is None else _mbit(dispersion(burst, trains[1]["bytes"])),
        inversions=inversions(arrivals),
        reasons=(),
    )
    observation = Observation(link, row, len(delays), tolerance, paths_judged)
    return replace(row, reasons=tuple(f"{row.src} -> {row.dst}: {reason}" for reason in _reasons(observation)))


def _reasons(observation: Observation) -> Iterator[str]:
    for impairment in IMPAIRMENTS.values():
        yield from impairment.judge(observation)
    if observation.row.inversions:
        yield f"{observation.row.inversions} packets were overtaken"


def _spread(values: Sequence[float]) -> float | None:
    if len(values) < 4:
        return None
    percentiles = statistics.quantiles(values, n=100, method="inclusive")
    return (percentiles[83] - percentiles[15]) / 2


def _mbit(bytes_per_s: float | None) -> float | None:
    return None if bytes_per_s is None else bytes_per_s * 8 / 1e6


def judge_shared_up(
    site: str,
    to: tuple[str, ...],
    rate: float,
    departures_ns: Sequence[int],
    nbytes: int,
    *,
    sent: int,
    jitter_ms: float = 0.0,
) -> SharedUpProbe:
    """Judge whether simultaneous streams out of a site got its `up` rate (bytes/s) together, and no more.

    Args:
        nbytes: of each message. sent: number of messages, of which the paths may have lost some behind the queue.
        jitter_ms: the largest jitter of their paths, which makes the times of departure uncertain.
    """
    between = nbytes * sent / max(1, len(departures_ns))  # from one that arrived to the next
    measured = _mbit(dispersion(list(enumerate(sorted(departures_ns))), between))
    expected = rate * 8 / 1e6
    reasons = tuple(f"shared up of {site}: {reason}" for reason in rate_reasons(measured, expected, jitter_ms))
    return SharedUpProbe(site, to, expected, measured, reasons)


def dispersion(arrivals: Sequence[tuple[int, int]], nbytes: float) -> float | None:
    """The rate in bytes/s at which a burst arrived, or None with fewer than 4 packets.

    It is the median over pairs of packets a third of the burst apart, which a packet written 0.1 ms early hardly
    changes. If a process was not scheduled for a moment, only the pairs around that moment are wrong. Pairs between
    which a packet was lost count only if the others are too few: the kernel loses packets before it spaces them, so
    those that follow can catch up by one packet.

    Args:
        arrivals: sequence number and time in ns of every packet of `nbytes` that arrived.
    """
    if len(arrivals) < 4:
        return None
    apart = max(2, len(arrivals) // 3)
    pairs = [(early, late) for early, late in zip(arrivals, arrivals[apart:], strict=False) if late[0] > early[0]]
    complete = [(early, late) for early, late in pairs if late[0] - early[0] == apart]
    per_byte = [
        (late_ns - early_ns) / ((late - early) * nbytes)
        for (early, early_ns), (late, late_ns) in (complete if 4 * len(complete) >= len(pairs) else pairs)
    ]
    ns = statistics.median(per_byte) if per_byte else 0.0
    return 1e9 / ns if ns > 0 else None


def inversions(arrivals: Sequence[Arrival]) -> int:
    """The number of packets or segments that arrived after one that was sent later."""
    latest, count = (-1, -1), 0
    for arrival in arrivals:
        count += arrival[:2] < latest
        latest = max(latest, arrival[:2])
    return count
