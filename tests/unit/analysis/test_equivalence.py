"""A method is as accurate as another only if an interval and the errors say so; other words need evidence, too."""

from __future__ import annotations

import random
import statistics

import pytest
from scipy import stats

from wanbench.harness.analysis.equivalence import MOST_POINTS, differences, holm, verdicts

SEEDS = range(10)


def pairs(points, spread=0.05, *, errs=5.0, seeds=SEEDS, start=1):
    """A method that is so many percentage points from a reference that errs in `errs` per cent, give or take."""
    draw = random.Random(start)
    reference = {seed: 1 - errs / 100 + draw.gauss(0, 0.004) for seed in seeds}
    noise = [draw.gauss(0, 1) for _ in seeds]
    middle = sum(noise) / len(noise)
    return {
        s: reference[s] + (points + spread * (e - middle)) / 100 for s, e in zip(seeds, noise, strict=True)
    }, reference


@pytest.mark.parametrize(
    ("points", "spread", "errs", "verdict"),
    [
        (0.0, 0.1, 5.0, "equivalent"),
        (-0.3, 0.1, 5.0, "equivalent"),  # certainly less accurate, and by less than counts
        (-0.3, 0.1, 1.0, "less accurate"),  # it errs 1.3 times as often
        (-0.9, 0.1, 5.0, "less accurate"),
        (0.9, 0.1, 5.0, "more accurate"),
        (-0.3, 2.0, 5.0, "undecided"),
    ],
)
def test_a_verdict_needs_an_interval_within_the_bounds_and_few_more_errors(points, spread, errs, verdict):
    values, reference = pairs(points, spread, errs=errs)
    difference = differences(values, reference)
    assert verdicts({"a": difference}, "a") == {"a": verdict}
    assert 100 * difference.change.mean == pytest.approx(points)
    own, other = (statistics.fmean(1 - accuracy for accuracy in of.values()) for of in (values, reference))
    assert difference.errors == pytest.approx(own / other)


@pytest.mark.parametrize("points", [-0.8, -0.4, 0.1, 0.45])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_the_levels_are_those_at_which_the_interval_ends_at_a_bound_and_at_zero(points, spread):
    values, reference = pairs(points, spread)
    difference = differences(values, reference)
    apart = [values[seed] - reference[seed] for seed in SEEDS]
    assert difference.p_zero == pytest.approx(stats.ttest_rel(list(values.values()), list(reference.values())).pvalue)
    low, high = (
        stats.ttest_1samp(apart, bound, alternative=side).pvalue
        for bound, side in ((-MOST_POINTS, "greater"), (MOST_POINTS, "less"))
    )
    assert difference.p_within == pytest.approx(min(1.0, 2 * max(low, high)))
    inside = difference.change.low > -MOST_POINTS and difference.change.high < MOST_POINTS
    assert (difference.p_within < 0.05) == inside


def test_the_primary_comparison_is_not_paid_for_by_the_others():
    values, reference = pairs(-0.24, 0.34)
    close = differences(values, reference)
    assert 0.01 < close.p_within < 0.05
    alike = dict.fromkeys("abcde", close)
    assert verdicts(alike, "a")["a"] == "equivalent"
    assert set(verdicts(alike).values()) == {"undecided"}


def test_two_seeds_or_a_training_that_diverged_say_nothing():
    assert differences(*pairs(0, seeds=range(2))) is None
    values, reference = pairs(0)
    assert differences({**values, 3: float("nan")}, reference) is None


def test_holm_gives_the_smallest_the_whole_correction():
    import numpy as np

    assert holm(np.array([0.04, 0.01, 0.03]), 0.05).tolist() == [False, True, False]
