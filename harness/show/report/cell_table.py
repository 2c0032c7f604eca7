"""The table of all cells: the text of each entry, and its sort key."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.best import megabytes_per_step, unscaled_megabytes_per_step
from wanbench.harness.analysis.labels import AXES
from wanbench.harness.analysis.order import absent
from wanbench.harness.analysis.summary import AXIS_TITLES, axes_of
from wanbench.harness.results.store import RECORDED, RunFolder, rep_folder
from wanbench.harness.show.grid import plain, sent
from wanbench.harness.show.report.rendering import Row, relative

Place = tuple[str, Any]  # cell, and the group of hosts that its line has
Rep = tuple[int, str | None]  # number and host


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
    first, *others = _FIELDS
    return (
        first,
        *((AXIS_TITLES.get(axis, axis).replace("_", " "), "swept by this experiment") for axis in axes),
        *others,
    )


def cell_line(line: Row, axes: Sequence[str], reps: Sequence[Rep], folder: RunFolder, path: Path) -> Line:
    """One cell, from a line of `harness.analysis.summary.cells`; `reps` are its valid repetitions."""
    one = line["workers"] == 1
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
        number(line["deviation_pct"], 1) if not one else Entry("", math.inf),
        number(line["accuracy"], 2, 100),
        number(line["time_to_target_s"], 2),
        Entry("", math.inf)
        if megabytes is None
        else Entry(sent(megabytes, unscaled_megabytes_per_step(line)), megabytes),
        number(line["lateness_p99_ms"], 2),
        number(line["one_way_error_ms"], 3),
    ]
    return Line(str(line["status"]), tuple(entries), _links(line, reps, folder, path))


def _axis(value: Any) -> Entry:
    if absent(value):
        return Entry("-", -math.inf)
    return Entry(plain(value), float(value) if isinstance(value, int | float) else str(value))


def _links(line: Row, reps: Sequence[Rep], folder: RunFolder, path: Path) -> tuple[tuple[str, str], ...]:
    if (folder.path / RECORDED).is_file():
        return ()
    cell = folder.path / "cells" / line["cell"]
    shown = relative(cell, path)
    return tuple((f"{rep}", f"{shown}/{rep_folder(cell, rep, host).name}/result.json") for rep, host in reps)


def valid_reps(rows: Sequence[Row]) -> Mapping[Place, Sequence[Rep]]:
    """The numbers of the valid repetitions of each cell, with the host of each."""
    found: dict[Place, list[Rep]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            found[row["cell"], row["hosts"]].append((row["rep"], row["host"]))
    return found
