"""The points of a figure as CSV: the data that is drawn, one line per point, with units in the names of columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.best import NetworkStandings
from wanbench.harness.analysis.compare import Comparison
from wanbench.harness.analysis.order import absent, by_value
from wanbench.harness.analysis.summary import Pivot, provenance
from wanbench.harness.results.disk import write_text
from wanbench.harness.show.figures.learning import Curves, middle
from wanbench.harness.show.figures.pace import Pace
from wanbench.harness.show.figures.pareto import drawn_points, pareto_front
from wanbench.harness.show.figures.timeline import Trace, View, views
from wanbench.harness.show.figures.trend import Measure, Series

FORMAT = "csv"
SCALABILITY = ("scalability", "scalability_min", "scalability_max", "predicted_scalability")
GOODPUT = ("goodput", "goodput_min", "goodput_max", "membership_changes", "recovery_s")
STEP_TIME = ("step_time_s", "compute_s", "stall_s", "overhead_s", "predicted_step_time_s")

Point = Mapping[str, Any]


def write(points: Sequence[Point], path: Path) -> Path:
    """Write points as CSV, atomically; equal points are equal bytes. A value that is not known is empty."""
    names = dict.fromkeys(name for point in points for name in point)
    text = io.StringIO()
    table = csv.DictWriter(text, list(names), lineterminator="\n")
    table.writeheader()
    table.writerows({name: _shown(value) for name, value in point.items()} for point in points)
    write_text(path, text.getvalue())
    return path


def _shown(value: object) -> str:
    if absent(value):
        return ""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def of_pivot(pivot: Pivot, run_name: str, columns: Sequence[str]) -> list[Point]:
    """One point per cell, also of a run beside; of `columns`, the first is the one that published values belong to."""
    own = _of_lines(pivot, run_name, pivot.lines, columns)
    return own if pivot.beside is None else own + _of_lines(pivot, pivot.beside.run, pivot.beside.lines, columns)


def _of_lines(
    pivot: Pivot, run_name: str, lines: Mapping[tuple[str, Any], Mapping[str, Any]], columns: Sequence[str]
) -> list[Point]:
    published = pivot.published if lines is pivot.lines else {}
    return [
        {
            "run": run_name,
            "network": provenance([line["testbed"]]),
            **pivot.fixed,
            "algorithm": label,
            pivot.column_axis: column,
            "status": line["status"],
            "repetitions": line["repeats"],
            **{name: line[name] for name in columns},
            **({f"published_{columns[0]}": published.get((label, column))} if pivot.published else {}),
        }
        for label in pivot.algorithms
        for column, line in sorted(_at(lines, label), key=lambda each: by_value(each[0]))
    ]


def _at(lines: Mapping[tuple[str, Any], Mapping[str, Any]], label: str) -> list[tuple[Any, Mapping[str, Any]]]:
    return [(column, line) for (name, column), line in lines.items() if name == label]


def of_standings(found: Sequence[NetworkStandings]) -> list[Point]:
    """One point per algorithm and network; accuracies are shares, changes are percentage points against ssgd."""
    points: list[Point] = []
    for network in found:
        drawn = drawn_points(network)
        front = pareto_front(drawn)
        points += [
            {
                **network.where,
                "algorithm": one.algorithm,
                "repetitions": one.repeats,
                "scalability": one.scalability,
                "scalability_min": one.low,
                "scalability_max": one.high,
                "accuracy": one.accuracy,
                "accuracy_min": one.accuracy_low,
                "accuracy_max": one.accuracy_high,
                "accuracy_change_points": 100 * (one.accuracy_change or 0.0),
                "dominated": "no" if one in front else "yes",
            }
            for one in drawn
        ]
    return points


def of_curves(curves: Curves) -> list[Point]:
    """One point per algorithm and evaluation: medians over repetitions, with the minimum and maximum."""
    return [
        {
            "algorithm": label,
            "repetitions": len(found),
            "step": step,
            "end_s": end_s,
            "accuracy": accuracy,
            "accuracy_min": low,
            "accuracy_max": high,
        }
        for (label, _), (_, found) in curves.items()
        for step, end_s, accuracy, low, high in zip(*middle(found), strict=True)
    ]


def of_traces(traces: Sequence[Trace]) -> list[Point]:
    """One point per bar in view: steps, stalls, messages, changes; seconds since the first measured step began."""
    return [point for view in views(traces)[0] for point in _of_view(view)]


def _of_view(view: View) -> Iterator[Point]:
    def bar(what: str, begin_s: float, end_s: float, arrived_s: float | None = None, note: str = "") -> Point:
        times = {"begin_s": begin_s, "end_s": end_s, "arrived_s": arrived_s}
        return {"algorithm": view.label, "what": what, **times, "note": note}

    yield from (bar("step", begin, end, note=str(number)) for number, begin, end in view.steps)
    yield from (bar("stall", begin, end) for begin, end in view.stalls if end > begin)
    flights = [flight for lane in view.lanes for flight in lane]
    yield from (bar("message", begin, used, arrived, note) for begin, arrived, used, note in flights)
    yield from (bar("change", at, at, note=what) for at, what in view.events)


def of_paces(paces: Sequence[Pace]) -> list[Point]:
    """One point per step of the slowest and of the fastest worker, in seconds since all workers began."""
    return [
        {"algorithm": one.label, "worker": which, "rank": worker["rank"], "end_s": end_s, "step_time_s": seconds}
        for one in paces
        for which, worker in (("slowest", one.slowest), ("fastest", one.fastest))
        for end_s, seconds in zip(worker["end_s"], worker["step_time_s"], strict=True)
    ]


def of_paths(paths: Sequence[Mapping[str, Any]]) -> list[Point]:
    """One point per directed path: configured and measured one-way delay and rate."""
    names = ("src", "dst", "one_way_ms", "measured_one_way_ms", "rate_mbit", "measured_rate_mbit")
    return [{name: path[name] for name in names} for path in paths]


def of_series(series: Sequence[Series], x: str, measures: Sequence[Measure]) -> list[Point]:
    """One point per cell, in the units of columns; a level has no x."""
    ends = ("", "_min", "_max")
    return [
        {
            "series": each.label,
            "source": each.beside or provenance([str(cell["testbed"])]),
            x: place,
            "repetitions": None if each.beside == "published" else cell["repeats"],
            **{measure.column + end: cell.get(measure.column + end) for measure in measures for end in ends},
        }
        for each in series
        for place, cell in each.points
    ]


def of_comparison(comparison: Comparison) -> list[Point]:
    """One point per pair of cells."""
    return [
        {
            "algorithm": pair.algorithm,
            "base": pair.base,
            "head": pair.head,
            "base_step_time_s": pair.base_s,
            "head_step_time_s": pair.head_s,
        }
        for pair in comparison.pairs
    ]
