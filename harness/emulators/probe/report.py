"""The probe's report: configured against measured values of every directed path. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from wanbench.harness.emulators.impairments.base import Observation, Tolerance
from wanbench.harness.emulators.impairments.queue import rate_reasons
from wanbench.harness.emulators.plan import IMPAIRMENTS, Link

# train, sequence number, sent ns, received ns, number of packets
Arrival = Sequence[int]

RELAY_TOLERANCE = Tolerance(1.0, 0.02)
NETEM_TOLERANCE = Tolerance(0.5, 0.01)
TOLERANCES = {"relay": RELAY_TOLERANCE, "netem": NETEM_TOLERANCE}


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
    single = [a for a in arrivals if a[0] == 0]
    delays = [(received - sent - wire_ns) / 1e6 for _, _, sent, received, _ in single]
    delay = statistics.median(delays) if delays else None
    # A receiver can overflow under a fast train of segments, which says nothing about the path.
    alone = {number for number, train in enumerate(trains) if train["segment"] == 1}
    sent = sum(trains[number]["packets"] for number in alone)
    burst = [(a[1], a[3]) for a in arrivals if a[0] == 1]
    row = PathProbe(
        *names,
        one_way_ms=link.delay_ns / 1e6,
        measured_one_way_ms=delay,
        jitter_ms=link.jitter_ns / 1e6,
        measured_jitter_ms=_spread(delays),
        loss=link.loss,
        sent=sent,
        lost=sent - sum(arrival[4] for arrival in arrivals if arrival[0] in alone),
        rate_mbit=_mbit(rate),
        measured_rate_mbit=None if rate is None else _mbit(dispersion(burst, trains[1]["bytes"])),
        inversions=inversions(arrivals),
        reasons=(),
    )
    observation = Observation(link, row, len(delays), tuple(arrivals), tolerance, paths_judged)
    reasons = [reason for impairment in IMPAIRMENTS.values() for reason in impairment.judge(observation)]
    reasons += [f"{row.inversions} packets were overtaken"] if row.inversions else []
    return replace(row, reasons=tuple(f"{row.src} -> {row.dst}: {reason}" for reason in reasons))


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
    for train, sequence, *_ in arrivals:
        if (train, sequence) < latest:
            count += 1
        latest = max(latest, (train, sequence))
    return count
