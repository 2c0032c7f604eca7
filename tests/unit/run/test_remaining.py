"""The remaining time is right for a short queue, and quick to say for a long one."""

from __future__ import annotations

from functools import partial

import pytest

from wanbench.harness.run.progress import Remaining


def said(count: int, each_s: float) -> tuple[list[float], int]:
    """What is said after the start of each of `count` repetitions, and how many were looked at for that."""
    remaining, looked = Remaining(), []

    def computed(waiting: int) -> float:
        looked.append(waiting + 1)
        return each_s * (waiting + 1)

    texts = [remaining.seconds(waiting, partial(computed, waiting)) for waiting in reversed(range(count))]
    return texts, sum(looked)


@pytest.mark.parametrize("count", [1, 2, 40, 1000])
def test_it_falls_with_each_repetition_that_starts(count):
    texts, _ = said(count, 2.0)
    assert texts == pytest.approx([2.0 * left for left in range(count, 0, -1)])


def test_a_queue_ten_times_as_long_takes_ten_times_as_long_to_go_through():
    _, few = said(1000, 2.0)
    _, many = said(10_000, 2.0)
    assert many < 11 * few


def test_repetitions_that_took_longer_than_predicted_make_the_others_longer():
    remaining = Remaining()
    assert remaining.seconds(50, lambda: 100.0) == 100.0
    remaining.ended(1.0, began_s=0.0, now_s=30.0)  # it waited for its process
    remaining.ended(1.0, began_s=1.0, now_s=32.0)
    assert not remaining.is_known
    for took_s in (2.0, 3.0, 4.0):
        remaining.ended(1.0, began_s=32.0, now_s=32.0 + took_s)
    assert remaining.is_known
    assert remaining.seconds(40, lambda: 80.0) == pytest.approx(240.0)


def test_a_second_queue_is_computed_anew():
    remaining = Remaining()
    assert remaining.seconds(3, lambda: 10.0) == 10.0
    assert remaining.seconds(7, lambda: 70.0) == 70.0
