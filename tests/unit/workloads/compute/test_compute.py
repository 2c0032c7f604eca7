import statistics

import pytest

from wanbench.workloads.compute.buckets import Bucket
from wanbench.workloads.compute.emulated import EmulatedCompute, StepTime, ready_share

MS = 1_000_000


class FakeClock:
    def __init__(self, late_ns=0):
        self.time_ns = 5_000 * MS
        self.late_ns = late_ns

    def now(self):
        return self.time_ns

    def sleep(self, seconds):
        assert seconds > 0
        self.time_ns += round(seconds * 1e9) + self.late_ns


HALVES = (Bucket(1, 1, 5, 10, 0.5), Bucket(0, 0, 0, 5, 1.0))


def steady(clock, mean_s=0.3, buckets=HALVES):
    return EmulatedCompute(StepTime(mean_s, 0.0, seed=1, rank=0), buckets, clock)


def test_without_variation_every_step_takes_the_mean():
    times = StepTime(0.3, 0.0, seed=1, rank=0)
    assert {times.ns(step) for step in range(50)} == {300 * MS}


@pytest.mark.parametrize("cv", [0.02, 0.5])
def test_variation_keeps_the_mean_and_has_the_given_coefficient(cv):
    times = StepTime(0.3, cv, seed=7, rank=0)
    drawn = [times.ns(step) / 1e9 for step in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(0.3, rel=4 * cv / 20_000**0.5)
    assert statistics.stdev(drawn) / 0.3 == pytest.approx(cv, rel=0.05)


def test_the_duration_of_a_step_does_not_depend_on_earlier_calls():
    forward = StepTime(0.3, 0.1, seed=1, rank=2)
    backward = StepTime(0.3, 0.1, seed=1, rank=2)
    assert [forward.ns(s) for s in range(10)] == [backward.ns(s) for s in reversed(range(10))][::-1]


def test_seed_rank_and_step_each_change_the_duration():
    times = {
        StepTime(0.3, 0.1, seed=seed, rank=rank).ns(step) for seed in range(4) for rank in range(4) for step in range(4)
    }
    assert len(times) == 64


def test_the_forward_pass_is_a_third_of_the_step():
    assert ready_share(Bucket(0, 0, 0, 1, 0.5)) == pytest.approx(1 / 3 + 1 / 3)
    assert ready_share(Bucket(0, 0, 0, 1, 1.0)) == 1.0


def test_buckets_are_handed_over_on_schedule():
    clock = FakeClock()
    began = clock.now()
    seen = []
    steady(clock).replay(0, began, lambda bucket: seen.append((bucket, (clock.now() - began) / MS)))
    assert seen == [(HALVES[0], 200.0), (HALVES[1], 300.0)]


def test_without_a_callback_the_step_takes_the_same_time():
    clock = FakeClock()
    began = clock.now()
    steady(clock).replay(0, began, None)
    assert clock.now() - began == 300 * MS


def test_late_timers_do_not_add_up_within_a_step():
    clock = FakeClock(late_ns=MS)
    buckets = tuple(Bucket(i, i, i, i + 1, (10 - i) / 10) for i in reversed(range(10)))
    began = clock.now()
    steady(clock, buckets=buckets).replay(0, began, lambda bucket: None)
    assert clock.now() - began == 301 * MS


def test_time_spent_in_callbacks_shortens_the_next_sleep():
    clock = FakeClock()
    began = clock.now()

    def slow(bucket):
        if bucket is HALVES[0]:
            clock.time_ns += 40 * MS

    steady(clock).replay(0, began, slow)
    assert clock.now() - began == 300 * MS


def test_real_work_that_fits_does_not_change_the_schedule():
    clock = FakeClock()
    compute = steady(clock)
    began = clock.now()
    clock.time_ns += 90 * MS
    seen = []
    compute.replay(0, began, lambda bucket: seen.append((clock.now() - began) / MS))
    assert seen == [200.0, 300.0]
    assert compute.compute_ns == 300 * MS


def test_real_work_beyond_the_emulated_time_makes_the_step_longer_and_is_not_compute():
    clock = FakeClock()
    compute = steady(clock)
    for step in range(2):
        began = clock.now()
        clock.time_ns += 450 * MS
        compute.replay(step, began, lambda bucket: None)
        assert clock.now() - began == 450 * MS
    assert compute.compute_ns == 600 * MS


def test_the_means_of_different_windows_hardly_differ():
    def means(durations):
        return [statistics.fmean(durations[begin : begin + 20]) for begin in range(0, 2000, 20)]

    step_time = StepTime(1.0, 0.02, seed=3, rank=0)
    spread = statistics.stdev(means([step_time.ns(step) / 1e9 for step in range(3, 2003)]))
    independent = 0.02 / 20**0.5
    assert spread < 0.6 * independent
