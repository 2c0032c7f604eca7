"""Names that match the cells of two sides: algorithm and axes, which do not depend on the version of the program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from wanbench.harness.plan.cell import Cell

Row = Mapping[str, Any]


def name(row: Row) -> str:
    """The readable name of a cell: algorithm, workers, and the other axes."""
    axes = {key: value for key, value in sorted(row["axes"].items()) if key not in {"algorithm", "workers"}}
    values = [str(value) if key == "rtt" else f"{key}={value}" for key, value in axes.items()]
    return " ".join([str(row["algorithm"]), f"w{row['workers']}", *values])


def name_of(cell: Cell) -> str:
    """The same for a cell that has no row yet."""
    return name({"axes": cell.axes, "algorithm": cell.label, "workers": cell.workers})


def by_name(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Repetitions of each cell, in order.

    One-worker cells of a sweep over testbeds or workloads have no axis that tells them apart. Their names also contain
    testbed and workload, and the identity if necessary.
    """
    cells: dict[str, list[Row]] = {}
    for row in rows:
        cells.setdefault(row["cell_key"], []).append(row)
    names = {key: name(group[0]) for key, group in cells.items()}
    for more in (lambda row: f"{row['testbed']} {row['workload']}", lambda row: row["cell_key"]):
        shared = {text for text, times in Counter(names.values()).items() if times > 1}
        names |= {key: f"{text} ({more(cells[key][0])})" for key, text in names.items() if text in shared}
    found = {names[key]: sorted(group, key=lambda row: int(row["rep"])) for key, group in cells.items()}
    return dict(sorted(found.items()))


def has(cell: str, axis: str, value: str) -> bool:
    """True if the cell of this name has this value of an axis: the inverse of `name`."""
    if axis == "algorithm":
        return re.fullmatch(rf"{re.escape(value)} w\d+( .*)?", cell) is not None
    words = {"workers": f" w{value}", "rtt": f" {value}"}
    return f"{words.get(axis, f' {axis}={value}')} " in f"{cell} "
