"""Steps to a target, interpolated between evaluations, and never invented."""

from __future__ import annotations

import math

import pytest

from wanbench.harness.results.target import steps_to_target, value_at

STEPS = [10, 20, 40]


def test_the_steps_to_a_target_lie_on_the_line_between_two_evaluations():
    curve = [0.2, 0.4, 0.8]  # linear pieces: 0.02 a step, then 0.02 a step
    for target in (0.25, 0.4, 0.5, 0.79, 0.8):
        assert steps_to_target(STEPS, curve, target) == pytest.approx(target / 0.02)


def test_the_first_crossing_counts_even_if_the_curve_falls_again():
    assert steps_to_target(STEPS, [0.1, 0.9, 0.3], 0.5) == pytest.approx(15)


def test_a_target_that_is_never_reached_has_no_steps():
    assert steps_to_target(STEPS, [0.2, 0.4, 0.8], 0.81) is None
    assert steps_to_target([], [], 0.1) is None


def test_a_target_reached_before_the_first_evaluation_counts_with_its_step_not_earlier():
    assert steps_to_target(STEPS, [0.9, 0.9, 0.9], 0.5) == 10


@pytest.mark.parametrize("gone", [None, math.nan, math.inf])
def test_nothing_is_interpolated_from_values_of_a_diverged_training(gone):
    assert steps_to_target(STEPS, [0.2, gone, gone], 0.3) is None
    assert steps_to_target(STEPS, [gone, gone, 0.8], 0.3) == 40


def test_a_loss_reaches_its_target_from_above():
    assert steps_to_target(STEPS, [2.0, 1.0, 0.5], 0.75, falling=True) == pytest.approx(30)
    assert steps_to_target(STEPS, [2.0, 1.0, 0.5], 0.4, falling=True) is None


def test_steps_to_target_is_the_inverse_of_the_value_at_a_step():
    curve = [0.2, 0.55, 0.8]
    for step in (10, 13.5, 20, 27, 40):
        value = value_at(STEPS, curve, step)
        assert steps_to_target(STEPS, curve, value) == pytest.approx(step)


def test_a_curve_is_not_extended_beyond_its_evaluations():
    assert (value_at(STEPS, [0.2, 0.4, 0.8], 9), value_at(STEPS, [0.2, 0.4, 0.8], 41)) == (None, None)
    assert value_at(STEPS, [0.2, None, 0.8], 15) is None
    assert value_at(STEPS, [0.2, None, 0.8], 30) is None
