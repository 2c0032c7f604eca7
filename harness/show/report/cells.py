"""The table of all cells, with the text and the sort key of each entry, and the chart of those that a reader picks."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.axes import AXES, AXIS_TITLES, absent, axes_of, by_value
from wanbench.harness.analysis.best import megabytes_per_step, unscaled_megabytes_per_step
from wanbench.harness.analysis.summary import Row, provenance
from wanbench.harness.grouping import by_key
from wanbench.harness.results.store import RECORDED, RunFolder, rep_folder
from wanbench.harness.text import plain, sent, shown

Place = tuple[str, Any]  # cell, and the group of hosts that its line has
Rep = tuple[int, str | None]  # number and host
Link = Callable[[Path], str]
Entry = tuple[str, float | str]  # of the table: its text and its sort key
_EMPTY: Entry = ("", math.inf)


def shown_axes(table: Any) -> list[str]:
    """The swept axes, and always the number of workers."""
    axes = {"workers", *axes_of(table)}
    return [axis for axis in AXES if axis in axes]


# (title, meaning). The swept axes come between the first and the second.
_FIELDS = (
    ("algorithm", "kind and parameters of the algorithm, and what else was chosen, such as the collective"),
    ("status", "ok if at least one repetition is valid"),
    ("reps", "number of valid repetitions"),
    ("step ms", "step time of the slowest worker: duration of the window / steps, median over the repetitions"),
    ("compute ms", "computing time per step"),
    ("stall ms", "time per step spent waiting for messages"),
    ("overhead ms", "rest of the step time"),
    ("scalability", "T(1) / T(N), or T(1) / (N T(N)) with strong scaling; median over the repetitions"),
    ("min", "lowest scalability of a repetition"),
    ("max", "highest scalability of a repetition"),
    ("law", "scalability predicted by the step-time law"),
    ("deviation %", "difference between scalability and its prediction"),
    ("accuracy %", "final accuracy on the test set, median over the repetitions"),
    ("to target s", "time until the accuracy crosses train.target, interpolated between evaluations; median"),
    ("sent per step", "payload that one worker sends per step; unscaled: before the payload scale"),
    ("late p99 ms", "delay of packets beyond their due time in the emulator, 99th percentile, last repetition"),
    ("error ms", "largest error of a one-way delay on the idle network, last repetition"),
)


def header(axes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(title, meaning) of every column but the last."""
    first, *rest = _FIELDS
    return (
        first,
        *((AXIS_TITLES.get(axis, axis).replace("_", " "), "swept by this experiment") for axis in axes),
        *rest,
    )


def cell_line(line: Row, axes: Sequence[str], reps: Sequence[Rep], folder: RunFolder, link_to: Link) -> dict[str, Any]:
    """One line of the table, from a line of `harness.analysis.summary.cells`; `reps` are its valid repetitions."""
    ok = line["status"] == "ok"

    def number(value: Any, digits: int, scale: float = 1.0) -> Entry:
        return _EMPTY if absent(value) or not ok else (f"{float(value) * scale:z.{digits}f}", float(value) * scale)

    megabytes = megabytes_per_step(line) if ok else None
    entries: list[Entry] = [
        (str(line["algorithm"]), str(line["algorithm"])),
        *(_axis(line[axis]) for axis in axes),
        (str(line["status"]), str(line["status"])),
        (str(line["repeats"]), float(line["repeats"])),
        *(number(line[f"{part}_s"], 1, 1e3) for part in ("step_time", "compute", "stall", "overhead")),
        number(line["scalability"], 3),
        number(line["scalability_min"], 3),
        number(line["scalability_max"], 3),
        number(line["predicted_scalability"], 3),
        number(line["deviation_pct"], 1) if line["workers"] != 1 else _EMPTY,
        number(line["accuracy"], 2, 100),
        number(line["time_to_target_s"], 2),
        _EMPTY if megabytes is None else (sent(megabytes, unscaled_megabytes_per_step(line)), megabytes),
        number(line["lateness_p99_ms"], 2),
        number(line["one_way_error_ms"], 3),
    ]
    return {"status": str(line["status"]), "entries": entries, "links": _links(line, reps, folder, link_to)}


def _axis(value: Any) -> Entry:
    if absent(value):
        return "-", -math.inf
    return plain(value), float(value) if isinstance(value, int | float) else str(value)


def _links(line: Row, reps: Sequence[Rep], folder: RunFolder, link_to: Link) -> tuple[tuple[str, str], ...]:
    if (folder.path / RECORDED).is_file():
        return ()
    cell = folder.path / "cells" / line["cell"]
    address = link_to(cell)
    return tuple((f"{rep}", f"{address}/{rep_folder(cell, rep, host).name}/result.json") for rep, host in reps)


def valid_reps(rows: Sequence[Row]) -> Mapping[Place, Sequence[Rep]]:
    """The numbers of the valid repetitions of each cell, with the host of each."""
    return by_key(((row["cell"], row["hosts"]), (row["rep"], row["host"])) for row in rows if row["status"] == "ok")


# The chart.


# What the chart can show upwards: columns of the cells, their titles, units and kinds of axis.
_MEASURES: tuple[dict[str, Any], ...] = (
    {"name": "scalability", "title": "scalability", "scale": 1, "logarithmic": False},
    {"name": "step_time_s", "title": "step time (ms)", "scale": 1e3, "logarithmic": True},
    {"name": "stall_s", "title": "stall per step (ms)", "scale": 1e3, "logarithmic": False},
    {"name": "accuracy", "title": "accuracy (%)", "scale": 100, "logarithmic": False},
    {"name": "time_to_target_s", "title": "time to target (s)", "scale": 1, "logarithmic": True},
)


def view_of(summary: Sequence[Row], axes: Sequence[str]) -> dict[str, Any] | None:
    """What a reader can choose, for the scripts of the page; None if nothing can be compared.

    Args:
        summary: lines of `harness.analysis.summary.cells`.
        axes: the columns of the table that may differ between cells, besides the algorithm.

    Returns:
        axes: those that differ between cells, the algorithm first. measures: those that some cell has.
        colours, dashes: of each algorithm. provenance: where the numbers come from.
        cells: in the order of the table, each with the index of its value on every axis (None: a one-worker cell) and
        the median, minimum and maximum of each measure. The maximum of a time is None if a repetition never got there.
    """
    compared = [line for line in summary if line["workers"] != 1]
    if not any(line["status"] == "ok" for line in compared):
        return None
    algorithms = list(dict.fromkeys(str(line["algorithm"]) for line in compared))
    differing: list[dict[str, Any]] = [
        {"name": "algorithm", "title": "algorithm", "values": algorithms, "numbers": None}
    ]
    differing += [axis for name in axes if len((axis := _chart_axis(name, compared))["values"]) > 1]
    measures = [measure for measure in _MEASURES if any(_finite(line[measure["name"]]) for line in compared)]

    def at(line: Row) -> list[int] | None:
        if line["workers"] == 1:
            return None
        return [axis["values"].index(shown(line[axis["name"]])) for axis in differing]

    return {
        "axes": differing,
        "measures": measures,
        **_looks(compared, algorithms),
        "cells": [(at(line), [_values(line, measure) for measure in measures]) for line in summary],
        "provenance": provenance(str(line["testbed"]) for line in compared if line["status"] == "ok"),
    }


def _chart_axis(name: str, lines: Sequence[Row]) -> dict[str, Any]:
    """An axis with its values as texts, in the order of tables, and as numbers; None if they are names."""
    values = sorted({shown(line[name]): line[name] for line in lines}.items(), key=lambda item: by_value(item[1]))
    numbers = [value for _, value in values]
    numeric = all(isinstance(value, int | float) and not absent(value) for value in numbers)
    title = AXIS_TITLES.get(name, name).replace("_", " ")
    texts = [text for text, _ in values]
    return {"name": name, "title": title, "values": texts, "numbers": list(map(float, numbers)) if numeric else None}


def _values(line: Row, measure: Mapping[str, Any]) -> tuple[float | None, ...]:
    if line["status"] != "ok":
        return (None, None, None)
    ends = (line[measure["name"] + end] for end in ("", "_min", "_max"))
    return tuple(float(f"{value * measure['scale']:.5g}") if _finite(value) else None for value in ends)


def _finite(value: Any) -> bool:
    return not absent(value) and math.isfinite(value)


def _looks(lines: Sequence[Row], algorithms: Sequence[str]) -> dict[str, list[str]]:
    from wanbench.harness.show.figures.style import styles

    line_of = {str(line["algorithm"]): line for line in lines}
    looks = styles([(label, str(line_of[label]["kind"]), line_of[label]["params"] or {}) for label in algorithms])
    dashes = ["" if look.dashes == "-" else " ".join(f"{part:g}" for part in look.dashes[1]) for look in looks.values()]
    return {"colours": [look.colour.lower() for look in looks.values()], "dashes": dashes}
