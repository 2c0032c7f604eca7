"""What the filters and the chart of the page choose from: the axes of the cells, and the measures on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wanbench.harness.analysis.order import absent, by_value
from wanbench.harness.analysis.summary import AXIS_TITLES, provenance
from wanbench.harness.show.grid import plain
from wanbench.harness.show.report.plain import Row


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

    def to_json(self) -> dict[str, Any]:
        """Plain data for the page's scripts."""
        return asdict(self)


def view_of(summary: Sequence[Row], axes: Sequence[str]) -> View | None:
    """The view of cells, from the lines of `harness.analysis.summary.cells`; None if nothing can be compared.

    Args:
        axes: the columns of the table that may differ between cells, besides the algorithm.
    """
    compared = [line for line in summary if line["workers"] != 1]
    if not any(line["status"] == "ok" for line in compared):
        return None
    algorithms = tuple(dict.fromkeys(str(line["algorithm"]) for line in compared))
    found = [Axis("algorithm", "algorithm", algorithms, None)]
    found += [axis for name in axes if len((axis := _axis(name, compared)).values) > 1]
    measures = tuple(each for each in _MEASURES if any(_finite(line[each.name]) for line in compared))
    places: list[Mapping[str, int]] = [{text: place for place, text in enumerate(axis.values)} for axis in found]
    cells = tuple(
        (
            None
            if line["workers"] == 1
            else tuple(place[_text(line[axis.name])] for axis, place in zip(found, places, strict=True)),
            tuple(_values(line, each) for each in measures),
        )
        for line in summary
    )
    testbeds = {str(line["testbed"]) for line in compared if line["status"] == "ok"}
    return View(tuple(found), measures, *_looks(compared, algorithms), cells, provenance(testbeds))


def _axis(name: str, lines: Sequence[Row]) -> Axis:
    values = sorted({_text(line[name]): line[name] for line in lines}.items(), key=lambda item: by_value(item[1]))
    numbers = [value for _, value in values]
    numeric = all(isinstance(value, int | float) and not absent(value) for value in numbers)
    title = AXIS_TITLES.get(name, name).replace("_", " ")
    return Axis(name, title, tuple(text for text, _ in values), tuple(map(float, numbers)) if numeric else None)


def _text(value: Any) -> str:
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

    one = {str(line["algorithm"]): line for line in lines}
    looks = styles([(label, str(one[label]["kind"]), one[label]["params"] or {}) for label in algorithms])
    dashes = ["" if look.dashes == "-" else " ".join(f"{part:g}" for part in look.dashes[1]) for look in looks.values()]
    return tuple(look.colour.lower() for look in looks.values()), tuple(dashes)
