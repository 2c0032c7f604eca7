"""A table of methods beside a reference: accuracy, the difference over equal seeds, errors and a verdict for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wanbench.harness.analysis.best import REFERENCE
from wanbench.harness.analysis.equivalence import MOST_ERRORS, MOST_POINTS, Difference, differences, verdicts
from wanbench.harness.analysis.order import algorithm_order
from wanbench.harness.analysis.summary import AnalysisError, Line, cells, frame
from wanbench.harness.plan.cell import BASELINE
from wanbench.harness.show.grid import markdown
from wanbench.harness.show.papers import PaperFigure
from wanbench.harness.show.papers.table import whole, with_caption

_Condition = tuple[tuple[str, Any], ...]  # swept keys and their values, without the algorithm
_MARKS = (
    f"differences of paired seeds, with 95 % intervals; equivalent: within {100 * MOST_POINTS:g} points, and below "
    f"{MOST_ERRORS:g} times the errors of {REFERENCE}, by Holm's rule except for the primary comparison"
)
_MEANS = ("accuracy_before_drain", "accuracy_own_buffers")


def equivalence_table(figure: PaperFigure, rows: Sequence[Line], run_name: str) -> str:
    """One line for each method under each condition that is swept. Raises: AnalysisError: nothing to compare."""
    methods = _by_method(rows)
    references = {condition: method for (condition, name), method in methods.items() if name == REFERENCE}
    compared = {
        key: difference
        for key, method in methods.items()
        if key[1] != REFERENCE and key[0] in references
        if (difference := differences(_values(method), _values(references[key[0]]))) is not None
    }
    if not compared:
        raise AnalysisError("no method has three seeds in common with ssgd")
    said = verdicts(compared, next((key for key in compared if key[1] == figure.primary), None))
    keys = sorted({key for condition in references for key, _ in condition if len(_distinct(references, key)) > 1})
    body = [
        [
            *(str(dict(condition).get(key, "")) for key in keys),
            name,
            *_numbers(method, compared.get((condition, name))),
            said.get((condition, name), ""),
        ]
        for (condition, name), method in sorted(methods.items(), key=lambda item: str(item[0][0]))
    ]
    header = [
        *(key.removesuffix(".name").rpartition(".")[2] for key in keys),
        "method",
        "accuracy %",
        "points from ssgd",
        "errors, ssgd = 1",
    ]
    header += ["before the drain %", "own statistics %", "verdict"]
    lines = [line for line in cells(frame(rows)) if line["workers"] != 1]
    return with_caption(figure, markdown(header, body, numbers=True), whole(lines), run_name, _MARKS, "mean")


def _by_method(rows: Sequence[Line]) -> dict[tuple[_Condition, str], list[Line]]:
    methods: dict[tuple[_Condition, str], list[Line]] = {}
    for row in sorted(rows, key=lambda row: algorithm_order(str(row["algorithm"]), str(row["kind"]), row["params"])):
        if row["algorithm"] != BASELINE and row["status"] == "ok" and row["accuracy"] is not None:
            condition = tuple(sorted((key, value) for key, value in row["axes"].items() if key != "algorithm"))
            methods.setdefault((condition, str(row["algorithm"])), []).append(row)
    return methods


def _distinct(references: Mapping[_Condition, object], key: str) -> set[str]:
    return {str(dict(condition).get(key)) for condition in references}


def _values(method: Sequence[Line]) -> dict[int, float]:
    return {row["seed"]: row["accuracy"] for row in method}


def _numbers(method: Sequence[Line], difference: Difference | None) -> list[str]:
    accuracy = _mean(method, "accuracy")
    before, own = (_mean(method, name) for name in _MEANS)
    if difference is None:
        return [accuracy, "", "", before, own]
    change = difference.change
    points = f"{100 * change.mean:+z.2f} ({100 * change.low:+z.2f} to {100 * change.high:+z.2f})"
    return [accuracy, points, f"{difference.errors:.2f}", before, own]


def _mean(method: Sequence[Line], name: str) -> str:
    values = [row[name] for row in method if row.get(name) is not None]
    return f"{100 * sum(values) / len(values):.2f}" if values else "-"
