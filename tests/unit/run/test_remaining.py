"""The remaining time follows from the prediction, and from how long repetitions have taken so far."""

from __future__ import annotations

import pytest

from wanbench.harness.run.progress import Remaining


@pytest.mark.parametrize("count", [1, 2, 40, 1000])
def test_it_falls_with_each_repetition_that_is_settled(count):
    remaining, seconds = Remaining(2.0 * count, 2.0 * count), []
    for _ in range(count):
        seconds.append(remaining.seconds)
        remaining.settled(2.0)
    assert seconds == pytest.approx([2.0 * waiting for waiting in range(count, 0, -1)])
    assert remaining.seconds == pytest.approx(0.0)


def test_repetitions_that_run_side_by_side_take_as_much_less_as_predicted():
    remaining = Remaining(100.0, 25.0)
    assert remaining.seconds == pytest.approx(25.0)
    remaining.settled(20.0)
    assert remaining.seconds == pytest.approx(20.0)


def test_repetitions_that_took_longer_than_predicted_make_the_others_longer():
    remaining = Remaining(50.0, 100.0)
    assert remaining.seconds == 100.0
    remaining.ended(1.0, began_s=0.0, now_s=30.0)  # it waited for its process
    remaining.ended(1.0, began_s=1.0, now_s=32.0)
    assert not remaining.is_known
    for took_s in (2.0, 3.0, 4.0):
        remaining.ended(1.0, began_s=32.0, now_s=32.0 + took_s)
    assert remaining.is_known
    remaining.settled(10.0)
    assert remaining.seconds == pytest.approx(240.0)


def test_what_is_measured_again_still_remains():
    remaining = Remaining(6.0, 6.0)
    remaining.ended(2.0, began_s=0.0, now_s=2.0)  # invalid, so it is not settled
    assert remaining.seconds == 6.0
