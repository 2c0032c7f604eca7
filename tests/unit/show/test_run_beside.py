"""One's own run with another one dashed beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import synthetic_rows
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from legible import assert_nothing_overlaps
from written_run import write_run

from wanbench.harness.analysis.compare import lay_beside
from wanbench.harness.analysis.summary import AnalysisError, frame, pivots
from wanbench.harness.show import papers
from wanbench.harness.show.figures import draw_all
from wanbench.harness.show.figures.bars import scalability_bars
from wanbench.harness.show.figures.curves import scalability_by_rtt
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN
from wanbench.harness.show.papers import drawing

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"


def simulated(rows):
    """Return the same cells, simulated; ssgd is 20 % slower there."""
    return [
        {**row, "testbed": "virtual", "emulator": None}
        | ({"step_time_s": 1.25 * row["step_time_s"]} if row["algorithm"] == "ssgd" else {})
        for row in rows
    ]


def beside(rows):
    (pivot,) = pivots(frame(rows))
    return lay_beside(pivot, simulated(rows), "recorded")


@pytest.fixture(scope="module")
def sweep():
    return beside(synthetic_rows.latency_sweep(reps=1))


@pytest.fixture(scope="module")
def bars():
    return beside(synthetic_rows.world4(reps=1))


def test_the_other_curve_is_dashed_thin_and_without_markers(sweep):
    (axes,) = scalability_by_rtt(sweep, "mine").axes
    values = [sweep.beside.lines["ssgd", rtt_ms]["scalability"] for rtt_ms in sweep.columns]
    (other,) = [line for line in axes.lines if np.array_equal(line.get_ydata(), values)]
    own_values = [sweep.lines["ssgd", rtt_ms]["scalability"] for rtt_ms in sweep.columns]
    (own,) = [line for line in axes.lines if np.array_equal(line.get_ydata(), own_values)]
    assert other.get_linestyle() == "--"
    assert other.get_marker() == ""
    assert other.get_color() == own.get_color()
    assert other.get_linewidth() < own.get_linewidth()


def test_a_curve_that_ends_elsewhere_has_a_label_of_its_own(sweep):
    figure = scalability_by_rtt(sweep, "mine")
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"SSGD", "SSGD, simulated", "DTS d20 p4"} <= texts
    assert "DTS d20 p4, simulated" not in texts
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["emulated", "recorded, simulated"]
    assert "dashed, without markers: recorded, simulated" in " ".join(figure.texts[-1].get_text().split())


def test_a_run_of_the_same_kind_is_told_apart_by_its_name():
    rows = synthetic_rows.latency_sweep(reps=1)
    (pivot,) = pivots(frame(rows))
    slower = [{**row, "step_time_s": 2 * row["step_time_s"]} if row["workers"] > 1 else row for row in rows]
    figure = scalability_by_rtt(lay_beside(pivot, slower, "yesterday"), "mine")
    assert "SSGD, yesterday" in {text.get_text() for text in figure.axes[0].texts}


def test_bars_have_the_outline_of_the_other_run(bars):
    figure = scalability_bars(bars, "mine")
    outlines = [patch.get_width() for axes in figure.axes for patch in axes.patches if not patch.get_fill()]
    assert set(outlines) == {line["scalability"] for line in bars.beside.lines.values()}
    assert any("(simulated 0." in text.get_text() for axes in figure.axes for text in axes.texts)


def test_a_curve_of_a_run_on_the_same_kind_of_network_is_named_by_what_is_different_there():
    rows = synthetic_rows.latency_sweep(reps=1)
    slower = [{**row, "host_tcp": "stock-6.1", "step_time_s": 2 * row["step_time_s"]} for row in rows]
    own = [row if row["workers"] == 1 else changed for row, changed in zip(rows, slower, strict=True)]
    (pivot,) = pivots(frame(own))
    (axes,) = scalability_by_rtt(lay_beside(pivot, rows, "tuned-run"), "mine").axes
    assert {"SSGD", "SSGD, tuned hosts"} <= {text.get_text() for text in axes.texts}
    (axes,) = scalability_by_rtt(lay_beside(pivot, slower, "again"), "mine").axes
    assert not any("hosts" in text.get_text() for text in axes.texts)


@pytest.mark.parametrize("width_in", [PAGE_IN, COLUMN_IN])
def test_no_text_overlaps_or_is_cut(width_in, sweep, bars):
    assert_nothing_overlaps(scalability_by_rtt(sweep, "mine", width_in))
    assert_nothing_overlaps(scalability_bars(bars, "mine", width_in))


def test_points_are_those_of_both_runs(tmp_path):
    rows = synthetic_rows.latency_sweep(reps=1)
    path, _ = draw_all(rows, "mine", tmp_path, ["csv"], beside=("recorded", simulated(rows)))
    lines = path.read_text().splitlines()[1:]
    assert [line.split(",")[:2] for line in lines[:: len(lines) - 1]] == [
        ["mine", "emulated"],
        ["recorded", "simulated"],
    ]
    assert len(lines) == 2 * 7 * 6


def test_a_run_with_nothing_in_common_is_refused(tmp_path):
    expected = r"^other: no valid cell with an algorithm of mine on the same axis, so nothing is drawn beside it$"
    with pytest.raises(AnalysisError, match=expected):
        draw_all(synthetic_rows.latency_sweep(reps=1), "mine", tmp_path, ["csv"], beside=("other", []))


def test_a_recorded_run_is_found_by_name(tmp_path):
    write_run(tmp_path / "results" / "mine", synthetic_rows.latency_sweep(reps=1))
    (tmp_path / "results" / "reference").symlink_to(REFERENCE)
    assert refused("figures", "mine", "--beside", "dts-latenzy").startswith(
        "wanbench: dts-latenzy: not a run folder, and no run of that name under results (there: "
    )
    result = wanbench("figures", "mine", "--formats", "csv", "--beside", "dts-latency")
    assert result.exit_code == 0, result.stderr
    assert "dts-latency,simulated,ssgd,20," in (tmp_path / "results/mine/figures/scalability-by-rtt.csv").read_text()


def test_a_papers_figure_draws_the_simulated_curve_beside_the_emulated_one():
    paper = papers.load("dts")
    (figure,) = [figure for figure in paper.figures if figure.name == "fig3-emulated"]
    points = drawing._drawing(figure, paper, drawing._source(figure, REFERENCE)).points()
    networks = {(point["run"], point["network"]) for point in points}
    assert networks == {("latency-sweep", "emulated"), ("dts-latency", "simulated")}
    assert {p["algorithm"] for p in points if p["network"] == "simulated"} == {p["algorithm"] for p in points}
