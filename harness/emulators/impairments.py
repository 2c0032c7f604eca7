"""How each emulator applies an impairment, and how a probe judges it: one class each, and one field of `Link`.

What the relay does, what netem is told, and what the probe expects. The other half, what people write, is the record of
the same name in netprofiles/impairments.py. Light to import, because the relay process imports it at its start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from wanbench.harness.emulators.plan import Link
    from wanbench.harness.emulators.probe import PathProbe
    from wanbench.harness.emulators.relay.segment import Segment

    Passing = Callable[[Segment], Iterable[Segment]]

CERTAIN = 2**32 - 1
"""A probability of 1 in netem's units."""

_JITTER_SHARE = 0.5
_JITTER_NOISE_MS = 0.3  # added by the wake-up of a process
_JITTER_SAMPLES = 30
_NORMAL = NormalDist()
_SMALLEST, _LARGEST = 1e-300, 1 - 2**-53  # inv_cdf needs a number between 0 and 1
_CONFIDENCE = 0.99
_RATE_SHARE = (0.90, 1.01)
_TRAIN_MS = 50.0


@dataclass(frozen=True)
class Tolerance:
    """The allowed error of a measured one-way delay: the larger of both values."""

    absolute_ms: float
    share: float


@dataclass(frozen=True)
class Observation:
    """What a probe measured on one path.

    Attributes:
        link: configured values.
        row: measured values.
        samples: number of delays in them.
        paths: number of paths judged together; intervals hold for all of them.
    """

    link: Link
    row: PathProbe
    samples: int
    tolerance: Tolerance
    paths: int


class Impairment:
    """One field of `Link`. Its value is a plain number, and 0 means no impairment.

    Attributes:
        is_random: each packet draws a random number.
    """

    is_random: ClassVar[bool] = False

    def delayed(self, value: float, random: Random, delay_ns: float, packets: int, span_ns: float) -> float:
        """Return the delay of a segment's last packet, never negative, in place of `delay_ns`.

        Args:
            packets: number of its packets, sent evenly within `span_ns`; none overtakes another.
        """
        return delay_ns

    def passing(self, link: Link, random: Random) -> Passing | None:
        """What the relay lets through of each segment that enters the delay, in order; None: everything, unchanged.

        A copy is a segment of its own (`Segment.part`).
        """
        return None

    def netem(self, link: Link) -> Mapping[str, int]:
        """Its keywords of a netem leaf, as `netem.kernel` takes and reads them; also of a link without it."""
        return {}

    def tc(self, link: Link) -> str:
        """The same parameters for the tc command."""
        return ""

    def share(self, link: Link) -> float:
        """How many of its events a packet sees on average, so that the probe sends enough packets; 0: any number."""
        return 0.0

    def judge(self, observation: Observation) -> list[str]:
        """Return the reasons why a path is out of tolerance, one line each."""
        return []


class Delay(Impairment):
    """A one-way delay in nanoseconds. Every emulator adds it to every packet by its own means."""

    def netem(self, link: Link) -> Mapping[str, int]:
        return {"delay_ns": link.delay_ns}

    def judge(self, observation: Observation) -> list[str]:
        row = observation.row
        if row.measured_one_way_ms is None or row.measured_jitter_ms is None:
            return [f"only {observation.samples} of the single packets arrived, too few to measure the delay"]
        # The median of few samples is itself uncertain: its standard error is 1.25 sigma / sqrt(n).
        allowed = max(observation.tolerance.absolute_ms, observation.tolerance.share * row.one_way_ms)
        allowed += 4 * row.jitter_ms / math.sqrt(observation.samples)
        if abs(row.measured_one_way_ms - row.one_way_ms) <= allowed:
            return []
        measured, configured = f"{row.measured_one_way_ms:.2f} ms", f"{row.one_way_ms:.2f} ms"
        return [f"one-way delay {measured}, configured {configured}, allowed +-{allowed:.2f} ms"]


def us(ns: int) -> str:
    """Return a time as tc writes it."""
    return f"{ns / 1000:.12g}us"


class Jitter(Impairment):
    """A standard deviation in nanoseconds.

    Each packet's deviation is drawn from a normal distribution. The delay is never below zero.
    """

    is_random = True

    def delayed(self, value: float, random: Random, delay_ns: float, packets: int, span_ns: float) -> float:
        # Packets keep their order, so the last one waits for the slowest of those sent shortly before it.
        close = min(packets, 0.5 * packets * value / span_ns) if span_ns else packets
        if close <= 1:
            return max(0.0, random.gauss(delay_ns, value))
        slowest = max(random.random(), _SMALLEST) ** (1 / close)
        return max(0.0, delay_ns + value * _NORMAL.inv_cdf(min(slowest, _LARGEST)))

    def netem(self, link: Link) -> Mapping[str, int]:
        return {"jitter_ns": link.jitter_ns}

    def tc(self, link: Link) -> str:
        return f" {us(link.jitter_ns)} distribution normal"

    def judge(self, observation: Observation) -> list[str]:
        row, measured = observation.row, observation.row.measured_jitter_ms
        if measured is None or not row.jitter_ms or observation.samples < _JITTER_SAMPLES:
            return []
        if abs(measured - row.jitter_ms) <= _JITTER_SHARE * row.jitter_ms + _JITTER_NOISE_MS:
            return []
        return [f"jitter {measured:.2f} ms, configured {row.jitter_ms:.2f} ms"]


class Loss(Impairment):
    """The share of packets that are lost: each with the same probability, or in bursts (Gilbert and Elliott).

    In bursts (`loss_burst`), a path is good or bad, packet by packet. It loses no packet while good and every packet
    while bad. A burst of mean length B ends after each packet with the probability r = 1/B. To lose the share L in the
    long run, which is p/(p + r), one begins before each packet of a good path with the probability p = r L/(1 - L).
    """

    is_random = True

    def passing(self, link: Link, random: Random) -> Passing:
        losses = Losses(link.loss, link.loss_burst, random)

        def passing(segment: Segment) -> Iterable[Segment]:
            lost = losses.of(segment.packets)
            return segment.without(lost) if lost else (segment,)

        return passing

    def netem(self, link: Link) -> Mapping[str, int]:
        loss, (begins, ends) = link.loss, (0.0, 0.0)
        if in_bursts(link):
            loss, (begins, ends) = 0.0, transitions(link.loss, link.loss_burst)
        shares = {"loss": loss, "burst_begins": begins, "burst_ends": ends}
        return {name: round(share * CERTAIN) for name, share in shares.items()}

    def tc(self, link: Link) -> str:
        if not in_bursts(link):
            return f" loss {100 * link.loss:.10g}%"
        begins, ends = transitions(link.loss, link.loss_burst)
        return f" loss gemodel {100 * begins:.10g}% {100 * ends:.10g}%"

    def share(self, link: Link) -> float:
        return link.loss / max(1.0, link.loss_burst)  # a burst is one event

    def judge(self, observation: Observation) -> list[str]:
        row, burst = observation.row, observation.link.loss_burst
        low, high = loss_interval(row.sent, row.loss, burst, 1 - (1 - _CONFIDENCE) / observation.paths)
        if low <= row.lost <= high:
            return []
        loss = f"a loss of {100 * row.loss:g} %" + (f" in bursts of {burst:g}" if burst else "")
        return [f"{row.lost} of {row.sent} packets lost, expected {low} to {high} with {loss}"]


class LossBurst(Impairment):
    """The mean number of packets lost in a row. `Loss` applies and judges it."""


def in_bursts(link: Link) -> bool:
    """Whether a link loses packets in bursts. One that loses all, as in a cut, has none."""
    return 0 < link.loss < 1 and link.loss_burst > 0


def transitions(loss: float, burst: float) -> tuple[float, float]:
    """The probabilities (p, r) per packet that a burst begins on a good path, and that it ends."""
    return min(1.0, loss / (1 - loss) / burst), 1 / burst


class Losses:
    """The losses of a path, packet by packet.

    Args:
        loss, burst: see `loss_gaps`.
    """

    __slots__ = ("_ahead", "_gaps", "values")

    def __init__(self, loss: float, burst: float, random: Random) -> None:
        self.values = loss, burst
        self._gaps = loss_gaps(loss, burst, random)
        self._ahead = next(self._gaps)  # packets that pass before the next lost one

    def of(self, packets: int) -> list[int]:
        """Return which of the next packets are lost, counted from 0."""
        lost = []
        while self._ahead < packets:
            lost.append(self._ahead)
            self._ahead += 1 + next(self._gaps)
        self._ahead -= packets
        return lost


def loss_gaps(loss: float, burst: float, random: Random) -> Iterator[int]:
    """Yield, without end, the number of packets that pass before the next lost one; 0 if the next one is lost as well.

    Bursts begin in the stationary distribution. Independent losses take one random number each.

    Args:
        loss: share of packets that are lost, above 0.
        burst: mean number of packets lost in a row; 0 for independent losses.
    """
    if loss < 1 and burst:
        begins, ends = transitions(loss, burst)
        lost = loss  # the probability that the next packet is lost
        while True:
            yield 0 if random.random() < lost else 1 + _failures(begins, random)
            lost = 1 - ends
    while True:
        yield _failures(loss, random)


def _failures(probability: float, random: Random) -> int:
    """Draw the number of failures before the first success, by inversion."""
    return 0 if probability >= 1 else int(math.log(1 - random.random()) / math.log1p(-probability))


def loss_interval(sent: int, loss: float, burst: float, confidence: float) -> tuple[int, int]:
    """The exact central interval that contains the number of losses with at least this probability."""
    if loss <= 0 or sent == 0:
        return 0, 0
    if loss >= 1:
        return sent, sent
    tail = (1 - confidence) / 2
    low, below = 0, 0.0
    for number, probability in enumerate(_lost_in_bursts(sent, loss, burst) if burst else _lost_alone(sent, loss)):
        below += probability
        if below < tail:
            low = number + 1
        if below >= 1 - tail:
            return low, number
    return low, sent


def _lost_alone(sent: int, loss: float) -> Iterator[float]:
    """The probability of each number of independent losses: the binomial distribution."""
    for number in range(sent + 1):
        choose = math.lgamma(sent + 1) - math.lgamma(number + 1) - math.lgamma(sent - number + 1)
        yield math.exp(choose + number * math.log(loss) + (sent - number) * math.log1p(-loss))


@lru_cache(maxsize=64)
def _lost_in_bursts(sent: int, loss: float, burst: float) -> Sequence[float]:
    """The probability of each number of losses in bursts, from the joint one of the number and the path's state."""
    import numpy as np  # here, because the relay imports this module and must start fast

    begins, ends = transitions(loss, burst)
    good, bad = np.zeros(sent + 1), np.zeros(sent + 1)
    good[0], bad[0] = 1 - loss, loss
    for _ in range(sent):
        bad[1:], bad[0] = bad[:-1].copy(), 0.0  # a packet of a bad path is lost
        good, bad = good * (1 - begins) + bad * ends, good * begins + bad * (1 - ends)
    probabilities: Sequence[float] = (good + bad).tolist()
    return probabilities


class Rate(Impairment):
    """The rate of one flow through all queues of its path, which the emulators' models contain."""

    def judge(self, observation: Observation) -> list[str]:
        row = observation.row
        return [] if row.rate_mbit is None else rate_reasons(row.measured_rate_mbit, row.rate_mbit, row.jitter_ms)


def rate_reasons(measured_mbit: float | None, expected_mbit: float, jitter_ms: float) -> list[str]:
    """Return why a rate is out of tolerance: 90 to 101 %, widened on both sides by the jitter of a burst."""
    if measured_mbit is None:
        return ["too few packets arrived to measure the rate"]
    uncertain = 2 * jitter_ms / _TRAIN_MS
    low, high = _RATE_SHARE[0] - uncertain, _RATE_SHARE[1] + uncertain
    if low * expected_mbit <= measured_mbit <= high * expected_mbit:
        return []
    return [
        f"rate {four_digits(measured_mbit)} Mbit/s, configured {four_digits(expected_mbit)} Mbit/s,"
        f" allowed {100 * low:.0f} to {100 * high:.0f} %"
    ]


def four_digits(mbit: float) -> str:
    """Round to four digits, without an exponent: 12500, 97.31."""
    return f"{float(f'{mbit:.4g}'):.15g}"
