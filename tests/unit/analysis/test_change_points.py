"""Change points: a step is found where it is, and neither noise nor an outlier nor a drift is a step."""

from __future__ import annotations

import numpy as np
import pytest

from wanbench.harness.analysis.changes import enough, exact_steps, measured_steps

LEVEL = 0.05
NOISE = 0.03


def noisy(shape, seed=0):
    return np.asarray(shape, dtype=float) * (1 + NOISE * np.random.default_rng(seed).standard_normal(len(shape)))


def places(values, level=LEVEL):
    return [change.place for change in measured_steps(values, level).changes]


# ---------------------------------------------------------------- exact


def test_every_difference_of_exact_values_is_a_change_at_its_own_place():
    steps = exact_steps([5, 5, 6, 6, 6, 5])
    assert [(change.place, change.after, change.until, change.p) for change in steps.changes] == [
        (2, 1, 2, None),
        (5, 4, 5, None),
    ]
    assert [(level.first, level.last, level.mean) for level in steps.levels] == [(0, 1, 5), (2, 4, 6), (5, 5, 5)]


def test_small_exact_steps_add_up_to_a_change():
    assert [change.place for change in exact_steps([100, 104, 108, 112, 116], tolerance=0.1).changes] == [3]


def test_the_noise_of_one_value_is_not_known():
    (level,) = measured_steps([3.0], LEVEL).levels
    assert (level.mean, level.half) == (3.0, float("inf"))


# ---------------------------------------------------------------- a step


@pytest.mark.parametrize("count", [12, 20, 60, 300])
@pytest.mark.parametrize("seed", range(5))
def test_a_step_of_five_deviations_is_found_at_its_commit(count, seed):
    shape = np.where(np.arange(count) < count // 2, 1.0, 0.8)
    steps = measured_steps(noisy(shape, seed), 0.01)
    assert len(steps.changes) == 1
    (change,) = steps.changes
    assert change.after < count // 2 <= change.until
    assert abs(change.place - count // 2) <= 1
    assert change.p is not None
    assert change.p <= 0.01
    before, after = steps.levels
    assert before.mean == pytest.approx(1.0, abs=3 * before.half)
    assert after.mean == pytest.approx(0.8, abs=3 * after.half)


def test_a_step_is_known_three_commits_later():
    values = [*noisy(np.ones(40)), *noisy([0.7] * 3, 1)]
    assert places(values[:41]) == []
    assert places(values) == [40]


def test_a_change_that_was_taken_back_is_two_changes():
    shape = np.ones(100)
    shape[40:48] = 0.85
    assert places(noisy(shape), 0.001) == [40, 48]


def test_a_stair_has_a_change_for_each_step():
    assert places(noisy(np.repeat([1.0, 1.2, 1.5], 20)), 0.001) == [20, 40]


def test_the_commits_of_a_weak_step_are_a_range_that_nearly_always_has_its_own():
    shape = np.where(np.arange(40) < 20, 1.0, 1.0 - 3 * NOISE)
    found = [measured_steps(noisy(shape, seed), 0.01).changes for seed in range(100)]
    (single,) = zip(*[changes for changes in found if len(changes) == 1], strict=True)
    exactly = sum(change.place == 20 for change in single)
    inside = sum(change.after < 20 <= change.until for change in single)
    assert len(single) >= 90
    assert exactly < inside
    assert inside >= 0.93 * len(single)  # 95 % of 99, within a deviation


def test_the_interval_of_a_level_has_the_truth_in_19_of_20_cases():
    halves = [measured_steps(noisy(np.ones(30), seed), 1e-4).levels[0] for seed in range(200)]
    missed = sum(abs(level.mean - 1) > level.half for level in halves)
    assert 1 <= missed <= 21  # 10, and 3.5 deviations


# ---------------------------------------------------------------- no step

NOISES = {
    "normal": lambda random, count: random.normal(1, NOISE, count),
    "heavy tails": lambda random, count: 1 + NOISE * random.standard_t(2, count),
    "skewed": lambda random, count: np.exp(random.normal(0, 0.5, count)),
    "few values": lambda random, count: random.integers(0, 3, count).astype(float),
    "one outlier": lambda random, count: random.permutation([*random.normal(1, NOISE, count - 1), 2.0]),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("count", [12, 30])
def test_series_without_a_change_show_one_no_more_often_than_stated(noise, count):
    random = np.random.default_rng(1)
    trials = 250
    found = [measured_steps(NOISES[noise](random, count), LEVEL) for _ in range(trials)]
    alarms = sum(bool(steps.changes) or steps.drift is not None for steps in found)
    assert alarms <= LEVEL * trials + 3 * (LEVEL * (1 - LEVEL) * trials) ** 0.5


@pytest.mark.parametrize("place", [0, 1, 20, 38, 39])
def test_an_outlier_anywhere_is_no_change_and_does_not_move_the_level(place):
    for seed in range(5):
        values = noisy(np.ones(40), seed)
        values[place] = 3.0
        steps = measured_steps(values, 0.01)
        assert (steps.changes, steps.drift) == ((), None)
        assert steps.levels[0].mean == pytest.approx(1.0, abs=0.02)


def test_equal_values_do_not_change():
    assert places([1.0] * 30) == []


def test_a_step_between_equal_values_is_found():
    assert places([1.0] * 20 + [2.0] * 10) == [20]


# ---------------------------------------------------------------- a drift


@pytest.mark.parametrize("seed", range(10))
def test_a_drift_blames_no_commit(seed):
    steps = measured_steps(noisy(np.linspace(1.0, 0.7, 60), seed), LEVEL)
    assert steps.changes == ()
    assert steps.drift is not None
    assert steps.drift.begin == pytest.approx(1.0, abs=0.03)
    assert steps.drift.end == pytest.approx(0.7, abs=0.03)
    assert steps.drift.half < 0.05


# ---------------------------------------------------------------- few values


def test_the_number_of_commits_that_are_needed_follows_from_the_level():
    assert [enough(level) for level in (0.05, 0.01, 0.001)] == [9, 12, 17]
    for level in (0.05, 0.01, 0.001):
        count = enough(level)
        clear = noisy(np.where(np.arange(count) < count // 2, 1.0, 5.0))
        assert places(clear, level) == [count // 2]
        assert places(clear[1:], level) == []


def test_equal_series_give_equal_answers():
    values = noisy(np.repeat([1.0, 0.93], 15))
    assert measured_steps(values, LEVEL) == measured_steps(values, LEVEL)
