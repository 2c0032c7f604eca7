"""The table of all cells: what is shown of each, and what it is sorted by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.best import megabytes_per_step
from wanbench.harness.analysis.labels import AXES
from wanbench.harness.analysis.order import absent
from wanbench.harness.analysis.summary import AXIS_TITLES, axes_of
from wanbench.harness.results.store import RECORDED, RunFolder
from wanbench.harness.show.report.plain import Row, plain, relative


@dataclass(frozen=True)
class Entry:
    """One field of the table of cells: what is shown, and what it is sorted by."""

    text: str
    sort: float | str


@dataclass(frozen=True)
class Line:
    """One cell in the table."""

    status: str
    entries: tuple[Entry, ...]
    links: tuple[tuple[str, str], ...]


def shown_axes(table: Any) -> list[str]:
    """The columns for what a run sweeps, and always the workers."""
    swept = axes_of(table) if len(table) and (table["workers"] != 1).any() else []
    return [axis for axis in AXES if axis in {"workers", *swept}]


# (title, what it means); the swept axes come between the first and the second.
_FIELDS = (
    ("algorithm", "label"),
    ("status", "ok where any repetition is valid"),
    ("reps", "valid repetitions"),
    ("step ms", "median over repetitions of the window's duration / steps, of the slowest worker"),
    ("compute ms", "of a step"),
    ("stall ms", "waiting for the network"),
    ("overhead ms", "the rest of a step"),
    ("scalability", "T(1) / T(N), median"),
    ("least", "scalability of the worst repetition"),
    ("most", "scalability of the best repetition"),
    ("law", "scalability by the step-time law"),
    ("deviation %", "of the measured from the predicted scalability"),
    ("accuracy %", "median at the end"),
    ("MB a step", "payload that one worker hands over"),
    ("late p99 ms", "99th percentile of how late the emulator delivered, last repetition"),
    ("error ms", "largest error of a measured one-way delay, last repetition"),
)


def header(axes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(title, what it means) of every column but the last."""
    first, *others = _FIELDS
    return (first, *((AXIS_TITLES.get(axis, axis).replace("_", " "), "swept") for axis in axes), *others)


def cell_line(line: Row, axes: Sequence[str], rows: Sequence[Row], folder: RunFolder, path: Path) -> Line:
    """One cell, from a line of `harness.analysis.summary.cells`."""
    one = line["workers"] == 1
    ok = line["status"] == "ok"

    def number(value: Any, digits: int, scale: float = 1.0) -> Entry:
        if absent(value) or not ok:
            return Entry("", math.inf)
        return Entry(f"{float(value) * scale:.{digits}f}", float(value) * scale)

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
        number(megabytes_per_step(line), 3),
        number(line["lateness_p99_ms"], 2),
        number(line["one_way_error_ms"], 3),
    ]
    return Line(str(line["status"]), tuple(entries), _links(line, rows, folder, path))


def _axis(value: Any) -> Entry:
    if absent(value):
        return Entry("-", -math.inf)
    return Entry(plain(value), float(value) if isinstance(value, int | float) else str(value))


def _links(line: Row, rows: Sequence[Row], folder: RunFolder, path: Path) -> tuple[tuple[str, str], ...]:
    if (folder.path / RECORDED).is_file():
        return ()
    mine = [row for row in rows if row["cell"] == line["cell"] and row["status"] == "ok"]
    files = [
        (f"{row['rep']}", folder.path / "cells" / row["cell"] / f"rep-{row['rep']}" / "result.json") for row in mine
    ]
    return tuple((text, relative(file, path)) for text, file in files)
