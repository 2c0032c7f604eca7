"""A paper's tables as Markdown: medians of repetitions, with minimum and maximum; and methods beside a reference, with
accuracy, the difference over equal seeds, errors and a verdict for each."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wanbench.harness.analysis.axes import AXIS_TITLES, absent, algorithm_order, natural
from wanbench.harness.analysis.best import REFERENCE, megabytes_per_step, unscaled_megabytes_per_step
from wanbench.harness.analysis.equivalence import MOST_ERRORS, MOST_POINTS, Difference, differences, verdicts
from wanbench.harness.analysis.paired import unequal_steps
from wanbench.harness.analysis.summary import AnalysisError, Line, Pivot, cells, frame, pivots
from wanbench.harness.plan.cell import BASELINE
from wanbench.harness.show.figures.caption import caption, has_choices
from wanbench.harness.show.figures.gallery import whole
from wanbench.harness.show.grid import markdown
from wanbench.harness.show.papers import PaperFigure
from wanbench.harness.text import shown


def table(figure: PaperFigure, rows: Sequence[Line], run_name: str) -> str:
    """One line per algorithm: several columns at one value of the swept axis, or one column at every value.

    If several axes are swept, one line per combination of their values, and a column per algorithm.

    Raises:
        AnalysisError: an unknown column, several columns at several values, or a published value without an entry.
    """
    for name in figure.columns:
        if name not in _COLUMNS:
            raise AnalysisError(f"column {name!r}: expected one of {', '.join(_COLUMNS)}")
    pivot, *more = pivots(frame(rows))
    of_conditions = bool(more) or has_choices(pivot)
    if (of_conditions or len(pivot.columns) > 1) and len(figure.columns) != 1:
        raise AnalysisError("several columns at several places; narrow it by `where`, or name one column")
    if of_conditions:
        return _of_conditions(figure, rows, run_name)
    reference = {column: pivot.lines.get(("ssgd", column)) for column in pivot.columns}
    axis = AXIS_TITLES.get(pivot.column_axis, pivot.column_axis)
    columns = [column for column in pivot.columns if pivot.column_axis != "mtbf_s" or not absent(column)]
    entries = [(name, column) for column in columns for name in figure.columns]
    titles = [_COLUMNS[name][0] + (f", {axis} {shown(column)}" if len(columns) > 1 else "") for name, column in entries]
    published = _published(figure, pivot)
    body = [
        [
            label,
            *(
                _entry(name, pivot.lines.get((label, column)), reference[column]) + published.get((label, column), "")
                for name, column in entries
            ),
        ]
        for label in pivot.algorithms
    ]
    grid = markdown(["algorithm", *titles], body, numbers=True)
    marks = "in parentheses: minimum to maximum" + ("; in brackets: published" if published else "")
    return _with_caption(figure, grid, pivot, run_name, marks)


def _of_conditions(figure: PaperFigure, rows: Sequence[Line], run_name: str) -> str:
    """One column at every combination of the keys that the spec sweeps."""
    (name,) = figure.columns
    lines = [line for line in cells(frame(rows)) if line["workers"] != 1]
    swept = [key for key in lines[0]["axes"] if key != "algorithm"]
    keys = [key for key in swept if len({str(line["axes"][key]) for line in lines}) > 1]
    at = {(line["setting"], *(line["axes"][key] for key in keys)): line for line in lines}
    algorithms = list(dict.fromkeys(label for label, *_ in at))
    body = [
        [*map(str, values), *(_entry(name, at.get((label, *values)), None) for label in algorithms)]
        for values in sorted({tuple(values) for _, *values in at}, key=lambda values: [natural(str(v)) for v in values])
    ]
    grid = markdown([*(key.rpartition(".")[2] for key in keys), *algorithms], body, numbers=True)
    return _with_caption(figure, grid, whole(lines), run_name, _COLUMNS[name][0])


def _with_caption(
    figure: PaperFigure, grid: str, pivot: Pivot, run_name: str, marks: str, middle: str = "median"
) -> str:
    """A table below its title, above its conditions."""
    about = caption(replace(pivot, note=figure.note), run_name, marks, whiskers=False, middle=middle)
    return f"**{figure.title or figure.name}**\n\n{grid}\n{about}\n"


def _published(figure: PaperFigure, pivot: Pivot) -> dict[tuple[str, Any], str]:
    """The published values of the entries of a table with one column."""
    columns = {str(column): column for column in pivot.columns}
    texts = {}
    for value in figure.published:
        if len(figure.columns) != 1 or value.algorithm not in pivot.algorithms or value.at not in columns:
            raise AnalysisError(f"published {value.algorithm} at {value.at}: no such entry in a table of one column")
        texts[value.algorithm, columns[value.at]] = f" [{value.value:g}{value.mark and ', '}{value.mark}]"
    return texts


def _entry(name: str, line: Line | None, reference: Line | None) -> str:
    if line is None or line["status"] != "ok":
        return "not run" if line is None else str(line["status"])
    return _COLUMNS[name][1](line, reference)


def _spread(name: str, digits: int, scale: float = 1.0) -> Callable[[Line, Line | None], str]:
    def show(line: Line, reference: Line | None) -> str:
        values = [line[name] * scale, line[f"{name}_min"] * scale, line[f"{name}_max"] * scale]
        if math.isnan(values[0]):
            return "-"
        middle, low, high = (f"{value:.{digits}f}" for value in values)
        return middle if line["repeats"] == 1 or low == high else f"{middle} ({low} to {high})"

    return show


def _change(line: Line, reference: Line | None) -> str:
    if reference is None or math.isnan(line["accuracy"]) or reference["status"] != "ok":
        return "-"
    why_not = unequal_steps(line["steps_total"], reference["steps_total"])
    return why_not or f"{100 * (line['accuracy'] - reference['accuracy']):+.2f}"


def _speedup(line: Line, reference: Line | None) -> str:
    speedup = line["scalability"] * line["workers"]
    return "-" if math.isnan(speedup) else f"{speedup:.2f}"


def _megabytes(line: Line, reference: Line | None) -> str:
    megabytes, unscaled = megabytes_per_step(line), unscaled_megabytes_per_step(line)
    if megabytes is None:
        return "-"
    return f"{megabytes:.3g}" + ("" if unscaled is None else f" ({unscaled:.3g} unscaled)")


_COLUMNS: Mapping[str, tuple[str, Callable[[Line, Line | None], str]]] = {
    "accuracy": ("accuracy %", _spread("accuracy", 2, 100)),
    "accuracy_change": ("points against ssgd", _change),
    "goodput": ("goodput", _spread("goodput", 2)),
    "steps_to_target": ("steps to target", _spread("steps_to_target", 0)),
    "time_to_target_s": ("seconds to target", _spread("time_to_target_s", 2)),
    "step_time_s": ("step time s", _spread("step_time_s", 3)),
    "scalability": ("scalability", _spread("scalability", 3)),
    "speedup": ("speed-up", _speedup),
    "megabytes_per_step": ("MB per step per worker", _megabytes),
}


# A table of methods beside a reference.

_Condition = tuple[tuple[str, Any], ...]  # swept keys and their values, without the algorithm
_EQUIVALENCE_MARKS = (
    f"differences of paired seeds, with 95 % intervals; equivalent: within {100 * MOST_POINTS:g} points, and below "
    f"{MOST_ERRORS:g} times the errors of {REFERENCE}, by Holm's rule except for the primary comparison"
)
_EQUIVALENCE_MEANS = ("accuracy_before_drain", "accuracy_own_buffers")


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
    conditions = [dict(condition) for condition in references]
    keys = sorted(
        {key for condition in conditions for key in condition if len({str(c.get(key)) for c in conditions}) > 1}
    )
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
    return _with_caption(
        figure, markdown(header, body, numbers=True), whole(lines), run_name, _EQUIVALENCE_MARKS, "mean"
    )


def _by_method(rows: Sequence[Line]) -> dict[tuple[_Condition, str], list[Line]]:
    methods: dict[tuple[_Condition, str], list[Line]] = {}
    for row in sorted(rows, key=lambda row: algorithm_order(str(row["algorithm"]), str(row["kind"]), row["params"])):
        if row["algorithm"] != BASELINE and row["status"] == "ok" and row["accuracy"] is not None:
            condition = tuple(sorted((key, value) for key, value in row["axes"].items() if key != "algorithm"))
            methods.setdefault((condition, str(row["algorithm"])), []).append(row)
    return methods


def _values(method: Sequence[Line]) -> dict[int, float]:
    return {row["seed"]: row["accuracy"] for row in method}


def _numbers(method: Sequence[Line], difference: Difference | None) -> list[str]:
    accuracy = _mean(method, "accuracy")
    before, own = (_mean(method, name) for name in _EQUIVALENCE_MEANS)
    if difference is None:
        return [accuracy, "", "", before, own]
    change = difference.change
    points = f"{100 * change.mean:+z.2f} ({100 * change.low:+z.2f} to {100 * change.high:+z.2f})"
    return [accuracy, points, f"{difference.errors:.2f}", before, own]


def _mean(method: Sequence[Line], name: str) -> str:
    values = [row[name] for row in method if row.get(name) is not None]
    return f"{100 * sum(values) / len(values):.2f}" if values else "-"
