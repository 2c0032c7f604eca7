"""Means of repetitions with their intervals, and the difference in accuracy between two algorithms. Pure."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbench.harness.analysis.axes import absent

LEVEL = 0.95
_FEWEST = 3  # the interval of two pairs is twelve times as wide as the distance between them


@dataclass(frozen=True)
class MeanInterval:
    """A mean of repetitions, or of differences between repetitions with equal seeds.

    Attributes:
        mean: over the values. low, high: ends of the 95 % interval of Student's t; infinite for fewer than 3 values.
        count: number of values.
    """

    mean: float
    low: float
    high: float
    count: int

    @property
    def bounded(self) -> bool:
        """Whether there are enough values for an interval."""
        return math.isfinite(self.high)


def unequal_steps(steps: Any, reference: Any, name: str = "ssgd") -> str | None:
    """Why an accuracy is not compared with that of the reference: "not compared: 160 steps, ssgd 60".

    None if both trained equally many steps, or if it is not recorded how many.
    """
    if absent(steps) or absent(reference) or steps == reference:
        return None
    return f"not compared: {int(steps)} steps, {name} {int(reference)}"


def paired_difference(values: Mapping[int, float], reference: Mapping[int, float]) -> MeanInterval | None:
    """The mean of `values` minus `reference`, both by seed; None if no seed is in both, or if training diverged.

    With equal seeds both start from the same weights, data and test samples, whose effects cancel in the difference.
    """
    differences = [values[seed] - reference[seed] for seed in sorted(values.keys() & reference.keys())]
    if not differences or not all(map(math.isfinite, differences)):
        return None
    return mean_interval(differences)


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """The mean of values with its 95 % interval."""
    mean, half = statistics.fmean(values), math.inf
    if len(values) >= _FEWEST:
        half = quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return MeanInterval(mean, mean - half, mean + half, len(values))


def quantile(freedom: int) -> float:
    """Student's t that a 95 % interval reaches, with this many degrees of freedom."""
    from scipy import stats  # takes half a second, and most runs do not train a model

    return float(stats.t.ppf((1 + LEVEL) / 2, freedom))
