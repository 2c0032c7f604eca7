"""A straggler computes slowly for a while, by its own clock or from a given step."""

from __future__ import annotations

import pytest

from wanbench.workloads.compute.emulated import EmulatedCompute, Slowdowns, StepTime

S = 1_000_000_000


def entry(factor, begin_s, end_s=None, at_step=None):
    return {
        "factor": factor,
        "at_step": at_step,
        "begin_ns": begin_s * S,
        "end_ns": None if end_s is None else end_s * S,
    }


def factors(entries, steps=8):
    slow = Slowdowns(entries)
    return [slow.factor(step, 100 * S + step * S) for step in range(steps)]


def test_steps_that_begin_during_a_slowdown_are_slow():
    assert factors([entry(3.0, 2, 4)]) == [1, 1, 3, 3, 1, 1, 1, 1]


def test_without_an_end_all_later_steps_are_slow():
    assert factors([entry(2.0, 6)]) == [1] * 6 + [2, 2]


def test_times_can_count_from_the_end_of_a_step():
    assert factors([entry(2.0, 1, 3, at_step=3)]) == [1, 1, 1, 1, 2, 2, 1, 1]


def test_factors_of_simultaneous_slowdowns_are_multiplied():
    assert factors([entry(2.0, 1, 4), entry(3.0, 3, 5)]) == [1, 2, 2, 6, 3, 1, 1, 1]


def test_turned_ns_records_when_steps_began_and_not_the_requested_times():
    """Steps begin every 3 s, from 100 s on. The third slowdown ends within a step; the fourth never ends."""
    slow = Slowdowns([entry(2.0, 2, 4), entry(2.0, 2, 7), entry(2.0, 4, 5), entry(2.0, 1, at_step=3), entry(2.0, 99)])
    for step in range(6):
        slow.factor(step, 100 * S + step * 3 * S)
    assert slow.turned_ns == [
        [103 * S, 106 * S], [103 * S, 109 * S], [None, None], [112 * S, None], [None, None]
    ]  # fmt: skip


class Clock:
    now_ns = 0

    def now(self):
        return self.now_ns

    def sleep(self, seconds):
        self.now_ns += round(seconds * S)


def test_a_slow_step_is_compute_and_not_overhead():
    clock = Clock()
    compute = EmulatedCompute(StepTime(0.5, 0.0, seed=1, rank=0), [], clock, Slowdowns([entry(4.0, 1, 2)]))
    for step in range(4):
        compute.replay(step, clock.now(), None)
    assert compute.compute_ns == clock.now() == pytest.approx((0.5 + 0.5 + 2 + 0.5) * S)
