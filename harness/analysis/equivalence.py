"""Whether methods are as accurate as a reference: intervals within bounds, corrected for many comparisons. Pure."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from wanbench.harness.analysis.paired import LEVEL, MeanInterval, paired_difference, quantile

MOST_POINTS = 0.005
"""An interval of the difference in accuracy within this, on both sides of 0, is that of an equivalent method."""
MOST_ERRORS = 1.25
"""A method that errs this many times as often as the reference is not equivalent, however rare errors are."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """A method beside a reference, over repetitions with equal seeds.

    Attributes:
        change: the mean difference in accuracy, as a share, with its interval.
        errors: how often the method errs, as a multiple of the reference.
        p_within: the level at which the interval of the difference ends within the bounds. p_zero: the level at which
            it ends at 0, by a two-sided t-test.
    """

    change: MeanInterval
    errors: float
    p_within: float
    p_zero: float


def differences(values: Mapping[int, float], reference: Mapping[int, float]) -> Difference | None:
    """Compare accuracies by seed; None for fewer than three pairs, or if training diverged."""
    change = paired_difference(values, reference)
    if change is None or not change.bounded:
        return None
    seeds = values.keys() & reference.keys()
    own, other = (math.fsum(accuracies[seed] for seed in seeds) / len(seeds) for accuracies in (values, reference))
    error = (change.high - change.mean) / quantile(change.count - 1)
    missing, outside = abs(change.mean), MOST_POINTS - abs(change.mean)
    return Difference(
        change=change,
        errors=(1 - own) / (1 - other) if other < 1 else math.inf,
        p_within=_two_sided(outside, error, change.count),
        p_zero=_two_sided(missing, error, change.count),
    )


def _two_sided(distance: float, error: float, count: int) -> float:
    """The level at which an interval of Student's t reaches so far; 1 where it is negative."""
    if not error:
        return 0.0 if distance > 0 else 1.0
    return min(1.0, 2 * float(stats.t.sf(distance / error, count - 1)))


def verdicts(compared: Mapping[Key, Difference], primary: Key | None = None) -> dict[Key, str]:
    """Say of each method whether it is "equivalent", "less accurate", "more accurate" or "undecided".

    The primary comparison has the whole error rate of 5 %; the others share as much by Holm's rule.
    """
    said: dict[Key, str] = {}
    for family in ([name for name in compared if name == primary], [name for name in compared if name != primary]):
        p = np.array([[compared[name].p_within, compared[name].p_zero] for name in family]).reshape(-1, 2).T
        within, differs = holm(p, 1 - LEVEL)
        for index, name in enumerate(family):
            said[name] = _verdict(compared[name], bool(within[index]), bool(differs[index]))
    return said


def _verdict(method: Difference, within: bool, differs: bool) -> str:
    if within and method.errors < MOST_ERRORS:
        return "equivalent"
    if differs:
        return "less accurate" if method.change.mean < 0 else "more accurate"
    return "undecided"


def holm(p: NDArray[np.float64], alpha: float) -> NDArray[np.bool_]:
    """The hypotheses to reject, along the last axis, with a family-wise error rate of at most alpha (Holm 1979)."""
    count = p.shape[-1]
    order = np.argsort(p, axis=-1)
    small = np.take_along_axis(p, order, axis=-1) <= alpha / (count - np.arange(count))
    rejected: NDArray[np.bool_] = np.empty_like(small)
    np.put_along_axis(rejected, order, np.logical_and.accumulate(small, axis=-1), axis=-1)
    return rejected
