"""The CSV beside a figure holds what the figure shows."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest
import synthetic_rows

from wanbench.harness.analysis.summary import frame, pivots
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.results.store import open_run
from wanbench.harness.show.figures import draw_all
from wanbench.harness.show.figures.drawing import write_points
from wanbench.harness.show.figures.gallery import gallery

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def recorded():
    """Return the drawings of recorded runs, by name: every kind that needs evidence among them."""
    found = {}
    for run in ("dts-learning", "dts-timeline"):
        folder = open_run(run, REFERENCE)
        found |= {drawing.name: drawing for drawing in gallery(folder.rows(), run, Evidence(folder))}
    return found


def test_a_file_of_points_is_beside_every_figure_and_has_no_column_width(tmp_path):
    rows = synthetic_rows.latency_sweep(reps=1)
    assert [path.name for path in draw_all(rows, "r", tmp_path, ["csv"])] == ["scalability-by-rtt.csv", "step-time.csv"]
    assert len(list(tmp_path.iterdir())) == 2


def test_points_of_scalability_are_the_cells_of_the_pivot(tmp_path):
    rows = synthetic_rows.latency_sweep()
    (pivot,) = pivots(frame(rows))
    speed, steps = map(read, draw_all(rows, "r", tmp_path, ["csv"]))
    assert len(speed) == len(steps) == len(pivot.lines)
    for point, step in zip(speed, steps, strict=True):
        line = pivot.lines[point["algorithm"], float(point["rtt_ms"])]
        for name in ("scalability", "scalability_min", "scalability_max", "predicted_scalability"):
            assert float(point[name]) == pytest.approx(line[name], rel=1e-6)
        assert float(step["step_time_s"]) == pytest.approx(line["step_time_s"], rel=1e-6)
        assert (point["run"], point["network"], point["repetitions"]) == ("r", "emulated", "3")


def test_a_cell_without_a_result_has_its_status_and_no_number(tmp_path):
    rows = [row for row in synthetic_rows.latency_sweep(reps=1) if row["algorithm"] in {"one-worker", "ssgd"}]
    for row in rows:
        if row["rtt_ms"] == 200.0:
            row.update(status="failed", step_time_s=None, scalability=None)
    (point,) = [each for each in read(draw_all(rows, "r", tmp_path, ["csv"])[0]) if each["rtt_ms"] == "200"]
    assert (point["status"], point["scalability"], point["repetitions"]) == ("failed", "", "0")


def test_points_are_those_that_the_curves_pass_through(recorded, tmp_path):
    drawing = recorded["learning"]
    points = read(write_points(drawing.points(), tmp_path / "learning.csv"))
    (axes, *_) = drawing.draw(6.3).axes
    drawn = {(x, round(y, 3)) for line in axes.lines for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)}
    assert {(float(each["step"]), round(100 * float(each["accuracy"]), 3)) for each in points} <= drawn


def test_points_of_the_trade_off_are_drawn_too(recorded, tmp_path):
    drawing = recorded["pareto"]
    points = read(write_points(drawing.points(), tmp_path / "pareto.csv"))
    lines = [line for axes in drawing.draw(6.3).axes for line in axes.lines]
    drawn = {(round(x, 5), round(y, 3)) for line in lines for x, y in zip(*line.get_data(), strict=True)}
    expected = {(round(float(p["scalability"]), 5), round(float(p["accuracy_change_points"]), 3)) for p in points}
    assert expected <= drawn
    assert {p["dominated"] for p in points} == {"yes", "no"}


def test_points_of_a_timeline_are_its_bars(recorded):
    points = recorded["timeline"].points()
    stalls = [point for point in points if point["what"] == "stall"]
    patches = [patch for axes in recorded["timeline"].draw(6.3).axes for patch in axes.patches]
    drawn = {(round(patch.get_x(), 6), round(patch.get_x() + patch.get_width(), 6)) for patch in patches}
    assert stalls
    assert {(round(each["begin_s"], 6), round(each["end_s"], 6)) for each in stalls} <= drawn


def test_points_of_a_network_are_configured_and_measured_paths(recorded):
    points = recorded["network-world4"].points()
    assert len(points) == 4 * 3
    assert all(abs(point["one_way_ms"] - point["measured_one_way_ms"]) < 1 for point in points)


def test_numbers_have_seven_digits_and_what_is_not_known_is_empty(tmp_path):
    path = write_points([{"a": 1 / 3, "b": None}, {"a": float("nan"), "b": "x, y", "c": 2}], tmp_path / "points.csv")
    assert path.read_text() == 'a,b,c\n0.3333333,,\n,"x, y",2\n'


def test_a_curve_ends_at_the_accuracy_that_tables_print():
    """Curves are stored with five digits: 98.05 % and 98.05014 % round to 98.0 and 98.1."""
    folder = open_run("olco3-delay", REFERENCE)
    (drawing,) = gallery(folder.rows(), "olco3-delay", Evidence(folder), kind="learning")
    ends = {point["algorithm"]: point["accuracy"] for point in drawing.points()}
    assert ends["ssgd"] == median(row["accuracy"] for row in folder.rows() if row["algorithm"] == "ssgd")
    assert ends["ssgd"] != round(ends["ssgd"], 5)
