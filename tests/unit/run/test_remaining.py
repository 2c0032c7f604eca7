"""The remaining time follows from the prediction, and from how long repetitions have taken so far."""

from __future__ import annotations

from functools import partial

import pytest

from wanbench.harness.run.progress import Remaining


def seconds_of(count: int, of_one_s: float) -> tuple[list[float], int]:
    """Return what is said before each of `count` repetitions is settled, and how many were looked at for that."""
    remaining, looked_at = Remaining(), []

    def compute(unsettled: int) -> float:
        looked_at.append(unsettled)
        return of_one_s * unsettled

    times = [remaining.seconds(unsettled, None, partial(compute, unsettled)) for unsettled in range(count, 0, -1)]
    return times, sum(looked_at)


@pytest.mark.parametrize("count", [1, 2, 40, 1000])
def test_it_falls_with_each_repetition_that_is_settled(count):
    times, _ = seconds_of(count, 2.0)
    assert times == pytest.approx([2.0 * unsettled for unsettled in range(count, 0, -1)])


def test_ten_times_as_many_repetitions_take_ten_times_as_long_to_go_through():
    _, few = seconds_of(1000, 2.0)
    _, many = seconds_of(10_000, 2.0)
    assert many < 11 * few


def test_repetitions_that_took_longer_than_predicted_make_the_others_longer():
    remaining = Remaining()
    assert remaining.seconds(50, None, lambda: 100.0) == 100.0
    remaining.ended(1.0, began_s=0.0, now_s=30.0)  # it waited for its process
    remaining.ended(1.0, began_s=1.0, now_s=32.0)
    assert not remaining.is_known
    for took_s in (2.0, 3.0, 4.0):
        remaining.ended(1.0, began_s=32.0, now_s=32.0 + took_s)
    assert remaining.is_known
    assert remaining.seconds(40, None, lambda: 80.0) == pytest.approx(240.0)


def test_where_more_or_fewer_run_side_by_side_it_is_computed_anew():
    remaining = Remaining()
    assert remaining.seconds(10, "two", lambda: 50.0) == 50.0
    assert remaining.seconds(10, "one", lambda: 100.0) == 100.0
    assert remaining.seconds(20, "one", lambda: 200.0) == 200.0


def test_of_none_that_is_unsettled_nothing_remains():
    assert Remaining().seconds(0, None, lambda: 0.0) == 0.0
