"""Stragglers and delays: the law beside workers that follow the recursion with the durations of emulated compute."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from wanbench.harness.plan.law import PredictInputs, expected_maximum, mean_step_s, predict
from wanbench.workloads.compute.emulated import StepTime

STEPS, FILL = 600, 60
NOISY = PredictInputs(
    workers=8, step_time_s=0.1, rtt_s=0.15, rate_bytes_per_s=None, message_bytes=1000, step_cv=0.5, chunked=True
)


def looped_step_s(inputs: PredictInputs, seed: int) -> float:
    """The mean step of workers that wait for the average of D steps ago, which takes one round trip."""
    draws = [StepTime(inputs.step_time_s, inputs.step_cv, seed=seed, rank=rank).ns for rank in range(inputs.workers)]
    clocks, arrivals, began_s = [0.0] * inputs.workers, {}, 0.0
    for step in range(FILL + STEPS):
        clocks = [clock + draw(step) / 1e9 for clock, draw in zip(clocks, draws, strict=True)]
        if (step + 1) % inputs.period == 0:
            arrivals[step] = max(clocks) + inputs.rtt_s
        clocks = [max(clock, arrivals.get(step - inputs.delay, 0.0)) for clock in clocks]
        if step == FILL - 1:
            began_s = max(clocks)
    return (max(clocks) - began_s) / STEPS


@pytest.mark.parametrize(("delay", "period"), [(1, 1), (6, 1), (4, 4), (2, 8), (0, 5), (0, 10)])
@pytest.mark.parametrize("cv", [0.2, 0.83])
def test_the_law_knows_what_stragglers_cost_a_delayed_or_sparse_method(delay, period, cv):
    inputs = replace(NOISY, delay=delay, period=period, step_cv=cv)
    looped_s = statistics.mean(looped_step_s(inputs, seed) for seed in range(4))
    assert predict(inputs).step_time_s == pytest.approx(looped_s, rel=0.03)


def test_a_delay_of_one_step_hides_the_round_trip_but_not_the_stragglers():
    delayed = predict(replace(NOISY, workers=32, rtt_s=0.05, delay=1, step_cv=0.83)).step_time_s
    synchronous = predict(replace(NOISY, workers=32, rtt_s=0.05, step_cv=0.83)).step_time_s
    assert 0.2 < delayed < synchronous / 1.3


def test_without_a_delay_a_step_takes_the_expected_maximum():
    alike = PredictInputs(8, 0.1, 0.0, None, 0, step_cv=0.3)
    step_s = mean_step_s(alike, latency_s=0.0, wire_s=0.0, slots=None)
    assert step_s == pytest.approx(0.1 * expected_maximum(8, 0.3), rel=0.01)


def test_steps_that_hardly_vary_need_no_simulation():
    mean_step_s.cache_clear()
    calm = replace(NOISY, workers=4, rtt_s=0.3, delay=4, step_cv=0.02)
    assert predict(calm).step_time_s == predict(replace(calm, step_cv=0.0)).step_time_s
    assert mean_step_s.cache_info().misses == 0


def test_the_law_gives_the_same_answer_every_time():
    inputs = replace(NOISY, delay=1)
    first = predict(inputs)
    mean_step_s.cache_clear()
    assert predict(inputs) == first
