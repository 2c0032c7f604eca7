"""Loss: each packet is lost with the same probability."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from random import Random

from wanbench.harness.emulators.impairments.base import CERTAIN, Impairment, Observation

_CONFIDENCE = 0.99


class Loss(Impairment):
    """The probability that a packet is lost."""

    is_random = is_share = True

    def netem(self, value: float) -> Mapping[str, int]:
        return {"loss": round(value * CERTAIN)}

    def tc(self, value: float) -> str:
        return f" loss {100 * value:.10g}%"

    def judge(self, observation: Observation) -> list[str]:
        row = observation.row
        low, high = binomial_interval(row.sent, row.loss, 1 - (1 - _CONFIDENCE) / observation.paths)
        if low <= row.lost <= high:
            return []
        return [f"{row.lost} of {row.sent} packets lost, expected {low} to {high} with a loss of {100 * row.loss:g} %"]


def loss_gaps(loss: float, burst: float, random: Random) -> Iterator[int]:
    """Yield, without end, the number of packets that pass before the next lost one."""
    passes = math.log1p(-loss) if loss < 1 else -math.inf
    while True:
        yield int(math.log(1.0 - random.random()) / passes)


def binomial_interval(trials: int, probability: float, confidence: float) -> tuple[int, int]:
    """The exact central interval that contains the number of losses with at least this probability."""
    if probability <= 0 or trials == 0:
        return 0, 0
    if probability >= 1:
        return trials, trials
    tail = (1 - confidence) / 2
    low, below = 0, 0.0
    for number in range(trials + 1):
        below += _binomial(trials, number, probability)
        if below < tail:
            low = number + 1
        if below >= 1 - tail:
            return low, number
    return low, trials


def _binomial(trials: int, number: int, probability: float) -> float:
    choose = math.lgamma(trials + 1) - math.lgamma(number + 1) - math.lgamma(trials - number + 1)
    return math.exp(choose + number * math.log(probability) + (trials - number) * math.log1p(-probability))
