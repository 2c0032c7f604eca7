"""Accuracy against time on several networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from legible import assert_nothing_overlaps
from matplotlib.collections import FillBetweenPolyCollection
from scipy import stats

from wanbench.harness.results.evidence import Evidence
from wanbench.harness.results.store import open_run
from wanbench.harness.show.figures.gallery import gallery
from wanbench.harness.show.figures.learning import by_speed, learning, learning_time, learning_time_points, means
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"
PACE_S = {"home-fibre": 2.0, "lan": 0.02, "world4": 0.3}


def repetition(pace_s, seed):
    random = np.random.default_rng(seed)
    steps = [20, 40, 60, 80]
    accuracy = np.linspace(0.6, 0.9, 4) + random.normal(0, 0.01, 4)
    return {"step": steps, "end_s": [pace_s * step for step in steps], "accuracy": accuracy.tolist(), "loss": [1.0] * 4}


def networks(repetitions=5):
    """Return the curves of two algorithms on three networks; dts takes a tenth of the time of ssgd."""
    algorithms = {("ssgd", "ssgd"): ({}, 1.0), ("dts-d20-p4", "dts"): ({"delay": 20, "period": 4}, 0.1)}
    return {
        name: {
            key: (params, [repetition(share * pace_s, seed) for seed in range(repetitions)])
            for key, (params, share) in algorithms.items()
        }
        for name, pace_s in PACE_S.items()
    }


def draw(width_in=PAGE_IN, repetitions=5):
    return learning_time(
        networks(repetitions), "digits", "digits-cnn; simulated network", "r: about.", "simulated", width_in
    )


def test_panels_are_networks_the_fastest_first_on_one_logarithmic_axis():
    figure = draw()
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["lan", "world4", "home-fibre"]
    assert {axes.get_xscale() for axes in figure.axes} == {"log"}
    assert len({axes.get_xlim() for axes in figure.axes}) == len({axes.get_ylim() for axes in figure.axes}) == 1


def test_the_band_is_students_interval_of_the_mean():
    found = [repetition(1.0, seed) for seed in range(5)]
    drawn = means(found)
    for place in range(4):
        values = [each["accuracy"][place] for each in found]
        low, high = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
        assert drawn.accuracy[place] == pytest.approx(np.mean(values))
        assert (drawn.low[place], drawn.high[place]) == pytest.approx((low, high))
    assert all(len(axes.collections) == 2 for axes in draw().axes)


def test_an_evaluation_before_the_first_step_is_left_out():
    begun = {"step": [0, 20], "end_s": [0.0, 2.0], "accuracy": [0.1, 0.7], "loss": [None, 1.0]}
    drawn = means([begun, begun])
    assert (drawn.step, drawn.end_s, drawn.accuracy) == ([20.0], [2.0], [0.7])
    curves = {("ssgd", "ssgd"): ({}, [begun]), ("dts-d4-p4", "dts"): ({}, [{**begun, "end_s": [0.0, 0.2]}])}
    by_step, by_time = learning(curves, "digits", "subject", "about", "simulated").axes
    assert [0.0, 20.0] in [list(line.get_xdata()) for line in by_step.lines]
    assert all(x > 0 for line in by_time.lines for x in line.get_xdata())


def test_equally_fast_algorithms_are_compared_by_accuracy_alone_and_not_ranked_within_their_repetitions():
    def title(*accuracies):
        reps = [{"step": [1, 2], "end_s": [1.0, 2.0], "accuracy": [0.5, each]} for each in (0.90, 0.92)]
        others = [{"step": [1, 2], "end_s": [1.0, 2.0], "accuracy": [0.5, each]} for each in accuracies]
        curves = {("ssgd", "ssgd"): ({}, reps), ("dts-d4-p4", "dts"): ({"delay": 4, "period": 4}, others)}
        return " ".join(learning(curves, "digits", "s", "about", "simulated").texts[0].get_text().split())

    assert title(0.89, 0.91) == "SSGD trains to 91.0 %; DTS d4 p4 to 90.0 %: no clear difference"
    assert title(0.80, 0.82) == "SSGD trains to 91.0 %; DTS d4 p4 to 81.0 %"


@pytest.mark.parametrize(("algorithms", "bands"), [(4, 4), (5, 0)])
def test_many_curves_have_neither_bands_nor_the_own_models_of_a_worker(algorithms, bands):
    reps = [{**repetition(1.0, seed), "before_drain": [0.5, 0.6, 0.7, 0.8]} for seed in range(3)]
    curves = {(f"delayed-d{delay}", "delayed"): ({"delay": delay}, reps) for delay in range(1, algorithms + 1)}
    (axes,) = learning(curves, "digits", "subject", "about", "simulated").axes
    assert sum(isinstance(each, FillBetweenPolyCollection) for each in axes.collections) == bands
    assert sum(line.get_linestyle() == ":" for line in axes.lines) == bands
    assert len(axes.collections) == algorithms, "the spread at the ends is drawn"


def test_two_repetitions_have_no_band():
    assert not any(axes.collections for axes in draw(repetitions=2).axes)
    assert {point["accuracy_low_95"] for point in learning_time_points(networks(2))} == {None}


def test_the_title_compares_the_slowest_with_the_fastest_algorithm_on_the_slowest_network():
    courses = by_speed(networks())["home-fibre"]
    ssgd, dts = (100 * courses[key].accuracy[-1] for key in (("ssgd", "ssgd"), ("dts-d20-p4", "dts")))
    title = " ".join(draw().texts[0].get_text().split())
    assert title == f"On home-fibre, SSGD takes 160 s ({ssgd:.1f} %) to train; DTS d20 p4 16 s ({dts:.1f} %)"


def test_curves_are_drawn_through_the_points():
    figure = draw()
    for point in learning_time_points(networks()):
        axes = next(axes for axes in figure.axes if axes.get_title(loc="left") == point["network"])
        drawn = {(x, y) for line in axes.lines for x, y in zip(*line.get_data(), strict=True)}
        assert (point["end_s"], 100 * point["accuracy"]) in drawn


def test_ends_are_labelled_beside_the_last_panel_or_in_a_column_beside_each():
    named = [{"SSGD", "DTS d20 p4"} <= {text.get_text() for text in axes.texts} for axes in draw().axes]
    assert named == [False, False, True]
    named = [{"SSGD", "DTS d20 p4"} <= {text.get_text() for text in axes.texts} for axes in draw(COLUMN_IN).axes]
    assert named == [True, True, True]


@pytest.mark.parametrize("width_in", [PAGE_IN, COLUMN_IN])
def test_no_text_overlaps_or_is_cut(width_in):
    assert_nothing_overlaps(draw(width_in))


def test_a_recorded_run_on_several_networks_has_the_figure_and_one_on_a_single_network_has_not():
    drawn = {}
    for run in ("dts-learning", "olco3-delay"):
        folder = open_run(run, REFERENCE)
        drawn[run] = {drawing.name for drawing in gallery(folder.rows(), run, Evidence(folder))}
    assert "learning-time" in drawn["dts-learning"]
    assert "learning-time" not in drawn["olco3-delay"]
