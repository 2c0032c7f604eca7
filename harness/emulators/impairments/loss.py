"""Loss: each packet is lost with the same probability, or in bursts (Gilbert and Elliott).

In bursts, a path is good or bad, packet by packet. It loses no packet while good and every packet while bad. A burst of
mean length B ends after each packet with the probability r = 1/B. To lose the share L in the long run, which is
p/(p + r), one begins before each packet of a good path with the probability p = r L/(1 - L).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from wanbench.harness.emulators.impairments.base import CERTAIN, Impairment, Observation

if TYPE_CHECKING:
    from wanbench.harness.emulators.impairments.base import Passing
    from wanbench.harness.emulators.plan import Link
    from wanbench.harness.emulators.relay.segment import Segment

_CONFIDENCE = 0.99


class Loss(Impairment):
    """The share of packets that are lost, in bursts if the link has a `loss_burst`."""

    is_random = is_simulated = True

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

    is_simulated = True


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
