"""The table of all cells, with the text and the sort key of each entry, and the chart of those that a reader picks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.best import megabytes_per_step, unscaled_megabytes_per_step
from wanbench.harness.analysis.order import AXES, absent, by_value
from wanbench.harness.analysis.summary import AXIS_TITLES, Row, axes_of, provenance
from wanbench.harness.results.store import RECORDED, RunFolder, rep_folder
from wanbench.harness.text import plain, sent

Place = tuple[str, Any]  # cell, and the group of hosts that its line has
Rep = tuple[int, str | None]  # number and host
Link = Callable[[Path], str]


@dataclass(frozen=True)
class Entry:
    """One entry of the table: its text and its sort key."""

    text: str
    sort: float | str


@dataclass(frozen=True)
class Line:
    """One line of the table: a cell."""

    status: str
    entries: tuple[Entry, ...]
    links: tuple[tuple[str, str], ...]


def shown_axes(table: Any) -> list[str]:
    """The swept axes, and always the number of workers."""
    swept = axes_of(table) if len(table) and (table["workers"] != 1).any() else []
    return [axis for axis in AXES if axis in {"workers", *swept}]


# (title, meaning). The swept axes come between the first and the second.
_FIELDS = (
    ("algorithm", "kind and parameters of the algorithm"),
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


def cell_line(line: Row, axes: Sequence[str], reps: Sequence[Rep], folder: RunFolder, link_to: Link) -> Line:
    """One cell, from a line of `harness.analysis.summary.cells`; `reps` are its valid repetitions."""
    alone = line["workers"] == 1
    ok = line["status"] == "ok"

    def number(value: Any, digits: int, scale: float = 1.0) -> Entry:
        if absent(value) or not ok:
            return Entry("", math.inf)
        return Entry(f"{float(value) * scale:z.{digits}f}", float(value) * scale)

    megabytes = megabytes_per_step(line) if ok else None
    entries = [
        Entry(str(line["algorithm"]), str(line["algorithm"])),
        *(_axis(line[axis]) for axis in axes),
        Entry(str(line["status"]), str(line["status"])),
        Entry(str(line["repeats"]), float(line["repeats"])),
        *(number(line[f"{part}_s"], 1, 1e3) for part in ("step_time", "compute", "stall", "overhead")),
        number(line["scalability"], 3),
        number(line["scalability_min"], 3),
        number(line["scalability_max"], 3),
        number(line["predicted_scalability"], 3),
        number(line["deviation_pct"], 1) if not alone else Entry("", math.inf),
        number(line["accuracy"], 2, 100),
        number(line["time_to_target_s"], 2),
        Entry("", math.inf)
        if megabytes is None
        else Entry(sent(megabytes, unscaled_megabytes_per_step(line)), megabytes),
        number(line["lateness_p99_ms"], 2),
        number(line["one_way_error_ms"], 3),
    ]
    return Line(str(line["status"]), tuple(entries), _links(line, reps, folder, link_to))


def _axis(value: Any) -> Entry:
    if absent(value):
        return Entry("-", -math.inf)
    return Entry(plain(value), float(value) if isinstance(value, int | float) else str(value))


def _links(line: Row, reps: Sequence[Rep], folder: RunFolder, link_to: Link) -> tuple[tuple[str, str], ...]:
    if (folder.path / RECORDED).is_file():
        return ()
    cell = folder.path / "cells" / line["cell"]
    shown = link_to(cell)
    return tuple((f"{rep}", f"{shown}/{rep_folder(cell, rep, host).name}/result.json") for rep, host in reps)


def valid_reps(rows: Sequence[Row]) -> Mapping[Place, Sequence[Rep]]:
    """The numbers of the valid repetitions of each cell, with the host of each."""
    reps: dict[Place, list[Rep]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            reps[row["cell"], row["hosts"]].append((row["rep"], row["host"]))
    return reps


# The chart.


@dataclass(frozen=True)
class Measure:
    """What the chart can show upwards: a column of the cells in a unit."""

    name: str
    title: str
    scale: float
    logarithmic: bool


_MEASURES = (
    Measure("scalability", "scalability", 1, False),
    Measure("step_time_s", "step time (ms)", 1e3, True),
    Measure("stall_s", "stall per step (ms)", 1e3, False),
    Measure("accuracy", "accuracy (%)", 100, False),
    Measure("time_to_target_s", "time to target (s)", 1, True),
)


@dataclass(frozen=True)
class Axis:
    """An axis that differs between cells.

    Attributes:
        values: as texts, in the order of tables. numbers: the same as numbers; None if they are names.
    """

    name: str
    title: str
    values: tuple[str, ...]
    numbers: tuple[float, ...] | None


@dataclass(frozen=True)
class View:
    """All that can be chosen.

    Attributes:
        axes: the algorithm first. measures: those that some cell has. colours, dashes: of each algorithm.
        cells: in the order of the table, each with the index of its value on every axis (None: a one-worker cell) and
            the median, minimum and maximum of each measure. The maximum of a time is None if a repetition never got
            there.
        provenance: where the numbers come from.
    """

    axes: tuple[Axis, ...]
    measures: tuple[Measure, ...]
    colours: tuple[str, ...]
    dashes: tuple[str, ...]
    cells: tuple[tuple[tuple[int, ...] | None, tuple[tuple[float | None, ...], ...]], ...]
    provenance: str


def view_of(summary: Sequence[Row], axes: Sequence[str]) -> View | None:
    """The view of cells, from the lines of `harness.analysis.summary.cells`; None if nothing can be compared.

    Args:
        axes: the columns of the table that may differ between cells, besides the algorithm.
    """
    compared = [line for line in summary if line["workers"] != 1]
    if not any(line["status"] == "ok" for line in compared):
        return None
    algorithms = tuple(dict.fromkeys(str(line["algorithm"]) for line in compared))
    differing = [Axis("algorithm", "algorithm", algorithms, None)]
    differing += [axis for name in axes if len((axis := _chart_axis(name, compared)).values) > 1]
    measures = tuple(measure for measure in _MEASURES if any(_finite(line[measure.name]) for line in compared))
    indices: list[Mapping[str, int]] = [
        {text: index_of for index_of, text in enumerate(axis.values)} for axis in differing
    ]
    cells = tuple(
        (
            None
            if line["workers"] == 1
            else tuple(
                index_of[_value_text(line[axis.name])] for axis, index_of in zip(differing, indices, strict=True)
            ),
            tuple(_values(line, measure) for measure in measures),
        )
        for line in summary
    )
    testbeds = {str(line["testbed"]) for line in compared if line["status"] == "ok"}
    return View(tuple(differing), measures, *_looks(compared, algorithms), cells, provenance(testbeds))


def _chart_axis(name: str, lines: Sequence[Row]) -> Axis:
    values = sorted({_value_text(line[name]): line[name] for line in lines}.items(), key=lambda item: by_value(item[1]))
    numbers = [value for _, value in values]
    numeric = all(isinstance(value, int | float) and not absent(value) for value in numbers)
    title = AXIS_TITLES.get(name, name).replace("_", " ")
    return Axis(name, title, tuple(text for text, _ in values), tuple(map(float, numbers)) if numeric else None)


def _value_text(value: Any) -> str:
    return "-" if absent(value) else plain(value)


def _values(line: Row, measure: Measure) -> tuple[float | None, ...]:
    if line["status"] != "ok":
        return (None, None, None)
    ends = (line[measure.name], line[f"{measure.name}_min"], line[f"{measure.name}_max"])
    return tuple(float(f"{value * measure.scale:.5g}") if _finite(value) else None for value in ends)


def _finite(value: Any) -> bool:
    return not absent(value) and math.isfinite(value)


def _looks(lines: Sequence[Row], algorithms: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from wanbench.harness.show.figures.style import styles

    line_of = {str(line["algorithm"]): line for line in lines}
    looks = styles([(label, str(line_of[label]["kind"]), line_of[label]["params"] or {}) for label in algorithms])
    dashes = ["" if look.dashes == "-" else " ".join(f"{part:g}" for part in look.dashes[1]) for look in looks.values()]
    return tuple(look.colour.lower() for look in looks.values()), tuple(dashes)
