"""When the accuracy reached its target, interpolated between evaluations."""

from __future__ import annotations

import pytest

from wanbench.harness.results.target import reached
from wanbench.workloads.loop.job import Evaluated

BEGIN_NS = 7_000_000_000
CURVE = [
    Evaluated(step, BEGIN_NS + round(seconds * 1e9), accuracy, accuracy_before_drain=0.0)
    for step, seconds, accuracy in ((0, 0.0, 0.1), (10, 2.0, 0.5), (20, 4.0, 0.4), (30, 9.0, 0.9))
]


@pytest.mark.parametrize(
    ("target", "steps", "seconds"),
    [(0.1, 0, 0), (0.3, 5, 1), (0.5, 10, 2), (0.8, 28, 8), (0.9, 30, 9)],
)
def test_the_crossing_is_on_the_line_between_two_evaluations(target, steps, seconds):
    assert reached(CURVE, target, BEGIN_NS) == pytest.approx((steps, seconds))


def test_a_target_that_is_never_reached_has_no_time():
    assert reached(CURVE, 0.91, BEGIN_NS) is None
    assert reached([], 0.1, BEGIN_NS) is None


def test_a_single_evaluation_at_the_end_is_an_upper_bound():
    assert reached(CURVE[-1:], 0.3, BEGIN_NS) == (30, 9)
