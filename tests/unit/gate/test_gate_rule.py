"""The decision rule on simulated step times: which changes it detects, and how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from wanbench.harness.analysis.equivalence import holm
from wanbench.harness.gate.rule import LOOKS, OVERALL, decide, margin, moments, noise, overall, to_measure_further

CELLS, SIGMA, DRIFT, MARGIN, ALPHA = 44, 0.03, 0.04, 0.05, 0.05


def log_ratios(random, trials, effect=0.0):
    """Return log-ratios of base and head, measured alternately with 3 % noise; shape (trials, cells, rounds).

    The host's speed varies by 4 % between rounds, and falls by a further 4 % over all rounds.
    """
    rounds = LOOKS[-1]
    places = np.array([[0, 1] if r % 2 == 0 else [1, 0] for r in range(rounds)]) + 2 * np.arange(rounds)[:, None]
    trend = DRIFT * places / (2 * rounds - 1)  # (rounds, sides), in the order of measurement
    session = random.normal(0, DRIFT, (trials, 1, rounds, 1))
    times = random.normal(0, SIGMA, (trials, CELLS, rounds, 2)) + trend + session
    return times[..., 1] - times[..., 0] + np.log1p(np.asarray(effect))[..., None]


def judged(d, margins=MARGIN):
    """Return the result of two looks: regressed cells, whether all cells together are slower, and undecided cells."""
    first = d[..., : LOOKS[0]]
    further = to_measure_further(first, margins, ALPHA / 2)
    early = decide(first, margins, ALPHA / 2)
    kept = np.where(further[..., None] | (np.arange(d.shape[-1]) < LOOKS[0]), d, np.nan)
    late = decide(kept, margins, ALPHA / 2)
    regressed = np.where(further & ~early.regressed, late.regressed, early.regressed)
    return regressed, overall(first, ALPHA / 2).slower | overall(kept, ALPHA / 2).slower, further & late.undecided


@pytest.fixture
def random():
    return np.random.default_rng(20261121)


def test_where_nothing_changed_no_build_of_two_thousand_is_red(random):
    regressed, slower, undecided = judged(log_ratios(random, 2000))
    assert not regressed.any()
    assert not slower.any()
    assert undecided.mean() < 0.06


def test_one_cell_fifteen_per_cent_slower_is_caught_nine_times_in_ten(random):
    effect = np.zeros(CELLS)
    effect[7] = 0.15
    regressed, _, _ = judged(log_ratios(random, 2000, effect))
    assert regressed[:, 7].mean() >= 0.90
    assert not np.delete(regressed, 7, axis=1).any()


def test_twenty_per_cent_is_always_caught(random):
    effect = np.zeros(CELLS)
    effect[0] = 0.20
    regressed, _, _ = judged(log_ratios(random, 1000, effect))
    assert regressed[:, 0].mean() >= 0.99


def test_all_cells_two_per_cent_slower_are_caught_together(random):
    regressed, slower, _ = judged(log_ratios(random, 2000, np.full(CELLS, 0.02)))
    assert slower.mean() >= 0.95
    assert regressed.any(axis=1).mean() < 0.01


def test_a_slowdown_of_all_cells_at_the_limit_is_reported_in_at_most_one_build_in_twenty(random):
    _, slower, _ = judged(log_ratios(random, 2000, np.full(CELLS, OVERALL)))
    assert slower.mean() <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / 2000)


def test_slowdowns_of_exactly_the_margin_are_reported_in_at_most_one_build_in_twenty(random):
    regressed, _, _ = judged(log_ratios(random, 2000, np.full(CELLS, MARGIN)))
    assert regressed.any(axis=1).mean() <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / 2000)


def test_with_the_noise_of_ten_measured_rounds_the_gate_detects_almost_as_much(random):
    """The margin follows from an A/A run of the same host, as `check --aa` records it."""
    measured = noise(log_ratios(random, 1000))
    effect = np.zeros(CELLS)
    effect[7] = 0.15
    margins = margin(MARGIN, measured)
    regressed, _, _ = judged(log_ratios(random, 1000, effect), margins)
    assert regressed[:, 7].mean() >= 0.85
    assert not np.delete(regressed, 7, axis=1).any()


def test_noise_is_the_mean_change_that_a_first_look_finds_between_equal_sides(random):
    d = random.normal(0, 0.04, (500, 1, LOOKS[-1]))
    seen = d[..., : LOOKS[0]].mean(axis=-1)
    assert float(noise(d).mean()) == pytest.approx(float(seen.std()), rel=0.1)


def test_a_bias_towards_the_side_measured_second_is_noise():
    assert noise(np.full((1, 10), 0.05))[0] == pytest.approx(0.05 / np.sqrt(5))


def test_the_margin_is_the_larger_of_the_users_limit_and_twice_the_noise():
    assert margin(0.05, 0.0) == 0.05
    assert margin(0.05, np.array([0.01, 0.04])) == pytest.approx([0.05, 0.08])


def test_moments_are_those_of_a_t_test(random):
    d = random.normal(0.04, 0.02, 8)
    found = moments(d)
    assert float(found.p_above(0.03)) == pytest.approx(
        stats.ttest_1samp(d, 0.03, alternative="greater").pvalue, rel=1e-9
    )
    assert float(found.p_below(0.03)) == pytest.approx(stats.ttest_1samp(d, 0.03, alternative="less").pvalue, rel=1e-9)
    expected = stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert [float(end) for end in found.interval()] == pytest.approx([expected.low, expected.high])


def test_a_round_without_a_pair_is_left_out(random):
    d = random.normal(0, 0.02, (3, 6))
    holed = np.insert(d, 2, np.nan, axis=1)
    assert moments(holed).mean == pytest.approx(moments(d).mean)
    assert moments(holed).error == pytest.approx(moments(d).error)
    assert overall(holed, ALPHA).mean == pytest.approx(float(d.mean()))


def test_fewer_than_two_pairs_decide_nothing():
    d = np.array([[0.5, np.nan], [np.nan, np.nan]])
    assert decide(d, MARGIN, ALPHA).undecided.all()


def test_repetitions_without_any_variation_are_decided_by_their_mean():
    d = np.log1p(np.array([[0.10] * 5, [0.01] * 5, [-0.2] * 5]))
    decision = decide(d, MARGIN, ALPHA)
    assert decision.regressed.tolist() == [True, False, False]
    assert decision.unchanged.tolist() == [False, True, False]
    assert decision.improved.tolist() == [False, False, True]


def _holm_by_the_book(p, alpha):
    rejected = [False] * len(p)
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[index] > alpha / (len(p) - rank):
            break
        rejected[index] = True
    return rejected


def test_holm_equals_the_textbook_step_down(random):
    p = random.uniform(0, 0.05, (50, 6))
    expected = [_holm_by_the_book(list(row), ALPHA) for row in p]
    assert holm(p, ALPHA).tolist() == expected
    assert 0 < np.mean(expected) < 1
