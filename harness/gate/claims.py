"""[[gate.require]]: claims about the results, absolute or relative to another cell of the same run."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.gate.verdict import Judgement, Row, Verdict, by_name
from wanbench.harness.results.columns import SHOWN
from wanbench.harness.spec.tables import Requirement
from wanbench.harness.text import listed
from wanbench.netprofiles.errors import did_you_mean

_LISTED = 5  # cells in an error


def judge(
    requirements: Sequence[Requirement], rows: Iterable[Row], where: str, *, partial: bool = False
) -> list[Judgement]:
    """One judgement per requirement and matching cell. A requirement must hold for each of its cells.

    A metric is the median over a cell's valid repetitions.

    Args:
        where: how errors name the spec.
        partial: True if some cells of the spec are left out; requirements without a cell are then skipped.

    Raises:
        SpecError: a requirement matches no cell, or its metric is unknown or null.
    """
    cells = by_name(rows)
    return [_claim(*match, cells) for match in matched(requirements, cells, where, partial=partial)]


def matched(
    requirements: Sequence[Requirement], cells: Mapping[str, list[Row]], where: str, *, partial: bool = False
) -> list[tuple[Requirement, str, str, str | None]]:
    """Each requirement with its key, a matching cell, and the cell to divide by. Arguments: as for `judge`.

    It needs no measurement: `cells` can be rows of `results.row.describe`.

    Raises:
        SpecError: a requirement matches no cell, or its metric is unknown.
    """
    return [
        (requirement, key, cell, _below(requirement, cells[cell][0], cells, key))
        for number, requirement in enumerate(requirements)
        if not partial or _has_cells(requirement, cells)
        for key in [f"{where}: gate.require.{number}"]
        for cell in _chosen(requirement, cells, key)
    ]


def _has_cells(requirement: Requirement, cells: Mapping[str, list[Row]]) -> bool:
    """True if the requirement has a cell, and one to divide by if it needs one."""
    selections = [selection for selection in (requirement.where, requirement.over) if selection is not None]
    return all(any(_matches(group[0], selection) for group in cells.values()) for selection in selections)


def _chosen(requirement: Requirement, cells: Mapping[str, list[Row]], where: str) -> list[str]:
    if requirement.metric not in SHOWN:
        near = did_you_mean(requirement.metric, SHOWN, "expected a column of `wanbench results --format json`")
        raise SpecError(f"{where}.metric: no metric {requirement.metric!r}{near}")
    chosen = [cell for cell, group in cells.items() if _matches(group[0], requirement.where)]
    if not chosen:
        raise SpecError(
            f"{where}.where: no cell with {_in_words(requirement.where)}; expected one of: {listed([*cells], _LISTED)}"
        )
    return chosen


def _claim(
    requirement: Requirement, where: str, cell: str, below: str | None, cells: Mapping[str, list[Row]]
) -> Judgement:
    subject = f"{requirement.metric} of {cell}" + (f" over {below}" if below else "")
    bounds = [f"at least {requirement.min:g}"] if requirement.min is not None else []
    bounds += [f"at most {requirement.max:g}"] if requirement.max is not None else []
    title = f"{subject}: {' and '.join(bounds)}"
    for name in filter(None, (cell, below)):
        last = cells[name][-1]
        if not any(row["status"] == "ok" for row in cells[name]):
            return Judgement(title, Verdict.FAILED, f"{name}: {last['status']}: {last['reason']}")
    value = _value(requirement.metric, cell, cells, where)
    if below is not None:
        divisor = _value(requirement.metric, below, cells, where)
        value = value / divisor if divisor else math.inf
    if not math.isfinite(value):
        return Judgement(title, Verdict.FAILED, f"is {value}")
    low, high = requirement.min, requirement.max
    holds = (low is None or value >= low) and (high is None or value <= high)
    return Judgement(title, Verdict.UNCHANGED if holds else Verdict.REGRESSED, f"is {value:.4g}")


def _value(metric: str, cell: str, cells: Mapping[str, list[Row]], where: str) -> float:
    values = [row.get(metric) for row in cells[cell] if row["status"] == "ok"]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    if not numbers:
        raise SpecError(f"{where}.metric: {cell} has no {metric}: it does not apply or was not measured")
    return statistics.median(numbers) if all(map(math.isfinite, numbers)) else math.nan


def _below(requirement: Requirement, row: Row, cells: Mapping[str, list[Row]], where: str) -> str | None:
    """The cell to divide by, if any: it has the values of `over`, and the other axes of the cell itself."""
    over = requirement.over
    if over is None:
        return None
    divisors = [
        cell
        for cell, group in cells.items()
        if _matches(group[0], over)
        and all(
            group[0]["axes"][axis] == value
            for axis, value in row["axes"].items()
            if axis not in over and axis in group[0]["axes"]
        )
    ]
    if len(divisors) != 1:
        raise SpecError(
            f"{where}.over: expected one cell with {_in_words(over)} for {by_name([row]).popitem()[0]}, "
            f"found {len(divisors)}"
            + (f": {listed(divisors, _LISTED)}" if divisors else f"; cells: {listed([*cells], _LISTED)}")
        )
    return divisors[0]


def _matches(row: Row, selection: Mapping[str, Any]) -> bool:
    """True if the row has these values in its axes or columns."""
    pairs = [(row["axes"].get(key, row.get(key)), value) for key, value in selection.items()]
    return all(value == expected or str(value) == str(expected) for value, expected in pairs)


def _in_words(selection: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in selection.items())
