"""Measures against a quantity that is not an axis: which cells form a series, and which values are drawn."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_rows
from legible import assert_nothing_overlaps

from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN
from wanbench.harness.show.papers import PaperFigure, Published
from wanbench.harness.show.papers.trend import trend_drawing

TOPK = {"kind": "topk", "ratio": 0.1}


def rows():
    """Return rows of ssgd, and of olco3 by staleness and compression, with made-up accuracies."""
    base = synthetic_rows.latency_sweep(reps=3)
    ssgd = [row for row in base if row["algorithm"] in {"one-worker", "ssgd"} and row["rtt_ms"] in {0.0, 100.0}]
    found = [dict(row, accuracy=0.9) for row in ssgd if row["algorithm"] == "one-worker" or row["rtt_ms"] == 100.0]
    ours = [row for row in found if row["algorithm"] == "ssgd"]
    for staleness in (0, 4):
        for text, compression in (("none", "none"), ("topk", TOPK)):
            label = f"olco3-s{staleness}-{text}"
            params = {"staleness": staleness, "compression": compression}
            for row in ours:
                name = {"algorithm": label, "kind": "olco3", "params": params, "cell": f"{label}-w4"}
                accuracy = 0.8 + 0.01 * staleness + 0.02 * row["rep"]
                found.append({**row, **name, "accuracy": accuracy, "payload_bytes": 10**6 * (1 + (text == "none"))})
    found = [{"payload_bytes": 10**6, **row, "steps_total": 100} for row in found]
    return found


def wanted(**change):
    given = {"x": "params.staleness", "y": ["accuracy"], "series": "params.compression", "title": "T", **change}
    return PaperFigure(name="f", run="r", kind="trend", **given)


def curves(figure):
    """Return the lines with markers, which are neither levels nor whiskers."""
    (axes,) = figure.axes
    lines = [line for line in axes.get_lines() if line.get_marker() not in {"", "None"}]
    # A marker on part of a line belongs to the legend; a marker without a line is the end of a whisker.
    return [line for line in lines if line.get_markevery() is None and line.get_linestyle() != "None"]


def test_cells_with_the_same_parameter_form_a_series_of_medians():
    figure = trend_drawing(wanted(), rows(), "r").draw(PAGE_IN)
    drawn = [(list(line.get_xdata()), [round(y, 6) for y in line.get_ydata()]) for line in curves(figure)]
    assert drawn.count(([0.0, 4.0], [82.0, 86.0])) == 2
    (axes,) = figure.axes
    assert {"SSGD", "OLCO3, no compression", "OLCO3, top-k 10 %"} <= {text.get_text() for text in axes.texts}


def test_a_cell_whose_longest_time_is_not_known_has_the_lower_whisker():
    times = {0: 20.0, 1: 30.0, 2: None}
    some = [{**row, "time_to_target_s": None if row["workers"] == 1 else times[row["rep"]]} for row in rows()]
    (axes,) = trend_drawing(wanted(y=["time_to_target_s"]), some, "r").draw(PAGE_IN).axes
    ends = [tuple(y for _, y in path.vertices) for each in axes.collections for path in each.get_paths()]
    assert set(ends) == {(20.0, 30.0)}


def test_the_simulated_run_is_a_thin_line_without_whiskers_and_the_title_has_the_own_value():
    more = [{**row, "testbed": "virtual"} for row in rows()]
    simulated = [{**row, "accuracy": row["accuracy"] and row["accuracy"] + 0.05} for row in more]
    title = "{OLCO3, top-k 10 %|4|accuracy}"
    drawn = trend_drawing(wanted(beside="sim", title=title), rows(), "r", beside=simulated)
    assert drawn.title == "86.0 %"
    (axes,) = drawn.draw(PAGE_IN).axes
    thin = [line for line in axes.get_lines() if [round(y, 6) for y in line.get_ydata()] == [87.0, 91.0]]
    assert [(line.get_marker(), line.get_linestyle()) for line in thin] == [("", "--")] * 2
    without = trend_drawing(wanted(), rows(), "r").draw(PAGE_IN).axes[0]
    assert len(axes.collections) == len(without.collections)  # whiskers
    sources = {(point["series"], point["source"]) for point in drawn.points()}
    assert sources >= {("OLCO3, top-k 10 %, simulated", "simulated"), ("OLCO3, top-k 10 %", "emulated")}
    assert not any("ssgd, simulated" in series for series, _ in sources)  # a level


def test_a_title_ranks_no_two_values_whose_repetitions_overlap():
    ours, level = "{OLCO3, top-k 10 %|4|accuracy}", "{SSGD||accuracy}"
    titles = [trend_drawing(wanted(title=f"{ours} and {other}"), rows(), "r").title for other in (level, ours)]
    assert titles == ["86.0 % and 90.0 %", "86.0 % and 86.0 %: no clear difference"]


def test_a_cell_without_the_parameter_is_drawn_as_a_level():
    (axes,) = trend_drawing(wanted(), rows(), "r").draw(PAGE_IN).axes
    assert [list(line.get_ydata()) for line in axes.get_lines()].count([90.0, 90.0]) == 1


def test_an_accuracy_names_its_data_set():
    learned = [{**row, "workload": "digits-cnn"} for row in rows()]
    (axes,) = trend_drawing(wanted(), learned, "r").draw(PAGE_IN).axes
    assert axes.get_title(loc="left") == "digits, not ImageNet: accuracy (%)"


def test_bytes_can_be_the_axis():
    (axes,) = trend_drawing(wanted(x="megabytes_per_step", series="params.staleness"), rows(), "r").draw(PAGE_IN).axes
    assert (axes.get_xlabel(), axes.get_xscale()) == ("kB per step per worker", "log")
    drawn = curves(axes.get_figure())
    assert sorted(len(line.get_xdata()) for line in drawn) == [1, 2, 2]
    data_in_px = axes.transData.transform((5.0, 85.0))
    assert all(np.allclose(line.get_transform().transform((5.0, 85.0)), data_in_px) for line in drawn), "none is moved"


@pytest.mark.parametrize("width_in", [PAGE_IN, COLUMN_IN])
def test_the_figure_is_legible(width_in):
    assert_nothing_overlaps(trend_drawing(wanted(y=["accuracy", "scalability"]), rows(), "r").draw(width_in))


def test_published_values_that_the_network_is_fitted_to_are_hollow_and_named_in_the_legend():
    some = [
        row | {"workers": row["workers"] * (1 + (row["rtt_ms"] == 100.0))} for row in synthetic_rows.latency_sweep()
    ]
    ssgd = [row for row in some if row["algorithm"] in {"one-worker", "ssgd"} and row["rtt_ms"] in {None, 0.0, 100.0}]
    values = [
        Published(algorithm="ssgd", at=at, value=0.4, source="", mark=mark) for at, mark in (("4", ""), ("8", "fitted"))
    ]
    given = wanted(x="workers", series="algorithm", y=["step_time_s"], published=values)
    figure = trend_drawing(given, ssgd, "r", "Somebody").draw(PAGE_IN)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["published", "published, fitted"]
    diamonds = [line for line in figure.axes[0].lines if line.get_marker() == "D" and line.get_markevery() is None]
    hollow = [list(line.get_xdata()) for line in diamonds if line.get_markerfacecolor() == "white"]
    assert hollow == [[8.0]]


def test_an_axis_that_does_not_begin_at_0_is_marked_and_a_logarithmic_one_is_not():
    def marks(measure, low):
        some = [{**row, "time_to_target_s": 20.0 + row["rep"], "final_loss": low + row["rep"]} for row in rows()]
        return len(trend_drawing(wanted(y=[measure]), some, "r").draw(PAGE_IN).artists)

    assert [marks("final_loss", 10.0), marks("final_loss", 0.0), marks("time_to_target_s", 0.0)] == [1, 0, 0]


def test_unknown_measures_and_missing_ones_are_named():
    with pytest.raises(AnalysisError, match=r"^measure 'acuracy': expected one of accuracy, final_loss, "):
        trend_drawing(wanted(y=["acuracy"]), rows(), "r")
    several = wanted(series="algorithm", y=["scalability"])
    with pytest.raises(AnalysisError, match=r"^SSGD: several cells without params.staleness; narrow it by `where`$"):
        trend_drawing(several, synthetic_rows.latency_sweep(), "r")
    with pytest.raises(AnalysisError, match=r"^no repetition has replica_spread; there is nothing to draw$"):
        trend_drawing(wanted(y=["replica_spread"]), rows(), "r").draw(PAGE_IN)
    failed = [{**row, "status": "failed", "reason": "x"} for row in rows()]
    with pytest.raises(AnalysisError, match=r"^no valid repetition; there is nothing to draw$"):
        trend_drawing(wanted(), failed, "r")
