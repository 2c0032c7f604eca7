"""The series of a paper's trend figure, from the cells of a recorded run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib.figure

from wanbench.harness.analysis.best import megabytes_per_step
from wanbench.harness.analysis.summary import AXIS_TITLES, AnalysisError, cells, frame, records
from wanbench.harness.show.figures.caption import caption, titled
from wanbench.harness.show.figures.gallery import Drawing, whole
from wanbench.harness.show.figures.names import compressed, data_set, human
from wanbench.harness.show.figures.points import of_series
from wanbench.harness.show.figures.trend import Measure, Series, trend
from wanbench.harness.show.papers import Figure

Line = Mapping[str, Any]

_BYTES = "megabytes_per_step"
_PARAMETER = "params."
_TEMPLATE = re.compile(r"\{([^|{}]+)\|([^|{}]*)\|([a-z_]+)\}")
_MEASURES = (
    Measure("accuracy", "accuracy (%)", 100, text="{:.1f} %"),
    Measure("final_loss", "training loss at the end", text="{:.2g}"),
    Measure("time_to_target_s", "seconds to target", log=True, text="{:.0f} s"),
    Measure("scalability", "scalability  T(1) / T(N)", text="{:.2f}"),
    Measure("step_time_s", "seconds per step", text="{:.2f} s"),
    Measure("replica_spread", "spread of replicas", log=True, text="{:.2g}"),
    Measure("blocks_lost_pct", "blocks lost (%)"),
)


def trend_drawing(
    figure: Figure, rows: Sequence[Line], run_name: str, citation: str = "", beside: Sequence[Line] = ()
) -> Drawing:
    """A figure of kind "trend".

    Its `x` is a column, "megabytes_per_step", or "params.NAME" of the algorithm; `series` is "algorithm" or
    "params.NAME". An algorithm without such a parameter is its own series, and a level if the parameter is `x`.

    Args:
        rows: of the figure's run, one per repetition. beside: of the simulated run that is drawn thin.

    Raises:
        AnalysisError: an unknown measure, a title that asks for a value that is not drawn, or nothing to draw.
    """
    known = {measure.column: measure for measure in _MEASURES}
    for name in figure.y:
        if name not in known:
            raise AnalysisError(f"measure {name!r}: expected one of {', '.join(known)}")
    lines = [line for line in records(cells(frame(rows))) if line["workers"] != 1]
    if not any(line["status"] == "ok" for line in lines):
        raise AnalysisError("no valid repetition; there is nothing to draw")
    found = _series(figure, _valid(lines))
    measures = [_named(known[name], lines) for name in figure.y]
    found += _simulated(figure, found, beside) + _published(figure, found)
    marks = "whiskers: minimum and maximum" + (", drawn side by side" if not figure.published and not beside else "")
    if beside:
        marks += f"; dashed: simulated, {figure.beside}"
    if figure.published:
        marks += f"; dotted, with diamonds: published by {citation}"
    pivot = whole(lines)
    about = caption(pivot, run_name, marks, whiskers=False)
    about = about if figure.note is None else f"{about.removesuffix('.')}; {figure.note}."
    log_x = figure.x == _BYTES
    finding = _TEMPLATE.sub(lambda match: _value(match, found, known), figure.title or figure.name)
    title = titled(replace(pivot, heading=figure.subject), finding)

    def draw(width_in: float) -> matplotlib.figure.Figure:
        return trend(found, _label(str(figure.x)), measures, title, about, width_in, log_x=log_x)

    column = "kilobytes_per_step_per_worker" if log_x else str(figure.x).removeprefix(_PARAMETER)
    return Drawing(figure.name, finding, draw, lambda: of_series(found, column, measures))


def _valid(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line["status"] == "ok" and line["workers"] != 1]


def _value(match: re.Match[str], series: Sequence[Series], measures: Mapping[str, Measure]) -> str:
    """The text of "{series|x|measure}" in a title; x is a number, "min", "max", or empty for a level."""
    label, at, name = match.groups()
    points = [(place, cell[name]) for one in series if one.label == label for place, cell in one.points]
    if at in {"min", "max"}:
        values = [value for _, value in points if not math.isnan(value)]
        values = [min(values) if at == "min" else max(values)] if values else []
    else:
        values = [value for place, value in points if place == (float(at) if at else None)]
    if name not in measures or len(values) != 1:
        raise AnalysisError(f"title: {match.group()}: no such value is drawn")
    return measures[name].text.format(measures[name].scale * values[0])


def _simulated(figure: Figure, series: Sequence[Series], rows: Sequence[Line]) -> list[Series]:
    """The same series of the run beside. A level is the same in both, and is drawn once."""
    wanted = {one.label for one in series if any(place is not None for place, _ in one.points)}
    others = _series(figure, _valid(records(cells(frame(rows))))) if rows else []
    return [replace(one, label=f"{one.label}, simulated", beside="simulated") for one in others if one.label in wanted]


def _published(figure: Figure, series: Sequence[Series]) -> list[Series]:
    """The paper's values as series beside ours."""
    kinds = {each.label: each.kind for each in series}
    groups: dict[str, list[tuple[float | None, Line]]] = {}
    for one in figure.published:
        if one.algorithm not in kinds or len(figure.y) != 1:
            raise AnalysisError(f"published {one.algorithm} at {one.at}: no such line is drawn")
        (name,) = figure.y
        cell = {name: one.value, f"{name}_min": one.value, f"{name}_max": one.value, "repeats": 1}
        groups.setdefault(one.algorithm, []).append((float(one.at), cell))
    return [
        Series(f"{label}, published", kinds[label], {}, tuple(points), beside="published")
        for label, points in groups.items()
    ]


def _series(figure: Figure, lines: Sequence[Line]) -> list[Series]:
    """Cells by series. A series without a place on the x axis has one cell, and is a level."""
    groups: dict[tuple[str, str], list[tuple[float | None, Line]]] = {}
    looks: dict[str, Mapping[str, Any]] = {}
    x = str(figure.x)
    for line in lines:
        place = _place(x, line)
        if place is None and not x.startswith(_PARAMETER):
            continue
        label = _of(figure.series, line)
        groups.setdefault((label, line["kind"]), []).append((place, line))
        looks[label] = {} if figure.series.startswith(_PARAMETER) else line["params"] or {}
    for (label, _), points in groups.items():
        if len(points) > 1 and any(place is None for place, _ in points):
            raise AnalysisError(f"{label}: several cells without {x}; narrow it by `where`")
    return [
        Series(label, kind, looks[label], tuple(sorted(points, key=lambda point: (point[0] is None, point[0] or 0.0))))
        for (label, kind), points in groups.items()
    ]


def _of(series: str, line: Line) -> str:
    name = series.removeprefix(_PARAMETER)
    params = line["params"] or {}
    if series == name or name not in params:
        return human(str(line["algorithm"]), str(line["kind"]), params)
    value = params[name]
    return f"{line['kind']}, {compressed(value) if name == 'compression' else f'{name} {value}'}"


def _place(x: str, line: Line) -> float | None:
    name = x.removeprefix(_PARAMETER)
    if x == _BYTES:
        sent = megabytes_per_step(line)
        return None if sent is None else 1e3 * sent
    value = line.get(x) if x == name else (line["params"] or {}).get(name)
    return None if value is None else float(value)


def _label(x: str) -> str:
    titles = {**AXIS_TITLES, "loss_pct": "packets lost (%)", _BYTES: "kB per step per worker"}
    return titles.get(x, x.removeprefix(_PARAMETER))


def _named(measure: Measure, lines: Sequence[Line]) -> Measure:
    """The label of an accuracy names its data set."""
    if measure.column != "accuracy":
        return measure
    learned = " and ".join(sorted({data_set(line["workload"]) for line in lines}))
    return replace(measure, label=f"{learned}: {measure.label}")
