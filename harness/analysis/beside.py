"""The cells of another run beside those of a pivot, such as simulated beside emulated. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wanbench.harness.analysis.order import absent, by_value
from wanbench.harness.analysis.summary import AnalysisError, Beside, Pivot, axis_value, cells, frame, records

Line = Mapping[str, Any]

# Cells that differ in these do not share a figure.
_SAME = ("profile", "collective")
# Cells may differ in these; the figure then says so. The rate is that of full-size messages.
_STATED = ("workload", "payload_scale", "workers", "rate_mbps", "rtt_ms", "loss_pct", "jitter_ms", "tcp", "timeline")


def lay_beside(pivot: Pivot, rows: Iterable[Line], run: str) -> Pivot:
    """The pivot with the valid cells of another run that have its algorithms and lie within its columns.

    Of several cells in one place, the one in the most similar conditions is taken.

    Args:
        rows: of the other run, one per repetition. run: its name.

    Raises:
        AnalysisError: equally similar cells in one place. Without a cell to show, the pivot is returned as it is.
    """
    found: dict[tuple[str, Any], Line] = {}
    table = frame(rows)
    valid = [
        line
        for line in (records(cells(table)) if len(table) else [])
        if line["status"] == "ok" and line["workers"] != 1
    ]
    for label in pivot.algorithms:
        mine = next(line for (each, _), line in pivot.lines.items() if each == label)
        alike = [line for line in valid if line["algorithm"] == label and _fits(line, mine, pivot)]
        for column in sorted({line[pivot.column_axis] for line in alike}, key=by_value):
            there = [line for line in alike if line[pivot.column_axis] == column]
            found[label, column] = _nearest(there, mine, pivot.column_axis, f"{run}: {label}")
    if not found:
        return pivot
    return replace(pivot, beside=Beside(run, found, _different(pivot, list(found.values()))))


def _fits(line: Line, mine: Line, pivot: Pivot) -> bool:
    """True if a cell belongs in the figure: between its first and last column, on the same profile and collective."""
    axis, columns = pivot.column_axis, pivot.columns
    there = line[axis]
    numbers = all(isinstance(each, int | float) for each in (there, *columns))
    inside = min(columns) <= there <= max(columns) if numbers and axis == "rtt_ms" else there in columns
    return inside and all(line[name] == mine[name] for name in _SAME if name != axis)


def _nearest(lines: Sequence[Line], mine: Line, axis: str, where: str) -> Line:
    ranked = sorted(lines, key=lambda line: len(_conditions(line, axis) ^ _conditions(mine, axis)))
    counts = [len(_conditions(line, axis) ^ _conditions(mine, axis)) for line in ranked[:2]]
    if len(counts) > 1 and counts[0] == counts[1]:
        raise AnalysisError(f"{where}, {axis_value(axis, ranked[0][axis])}: several cells could be drawn beside it")
    return ranked[0]


def _conditions(line: Line, axis: str) -> set[tuple[str, Any]]:
    values = {name: line[name] for name in _STATED if name != axis and not absent(line[name])}
    if "rate_mbps" in values:
        values["rate_mbps"] = float(f"{values['rate_mbps'] / line['payload_scale']:.6g}")
    if line["profile"] != "uniform":  # given by the profile, and different if only the scale is
        values.pop("rate_mbps", None)
    return set(values.items())


def _different(pivot: Pivot, lines: Sequence[Line]) -> tuple[str, ...]:
    """The conditions that only the other run has, in words."""
    axis = pivot.column_axis
    mine = {each for line in pivot.lines.values() for each in _conditions(line, axis)}
    other = {each for line in lines for each in _conditions(line, axis)}
    names = sorted(other - mine, key=lambda each: (_STATED.index(each[0]), by_value(each[1])))
    return tuple(axis_value(name, value) for name, value in names)
