"""Which cells of a recorded run are the series of a paper's trend figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure

from wanbench.harness.analysis.best import megabytes_per_step
from wanbench.harness.analysis.summary import AXIS_TITLES, AnalysisError, cells, frame, records
from wanbench.harness.show.data_set import data_set
from wanbench.harness.show.figures.caption import caption
from wanbench.harness.show.figures.gallery import Drawing, whole
from wanbench.harness.show.figures.trend import Measure, Series, trend
from wanbench.harness.show.papers import Figure

Line = Mapping[str, Any]

_BYTES = "megabytes_per_step"
_PARAMETER = "params."
_MEASURES = (
    Measure("accuracy", "accuracy (%)", 100),
    Measure("final_loss", "training loss at the end"),
    Measure("time_to_target_s", "seconds to target"),
    Measure("scalability", "scalability  T(1) / T(N)"),
    Measure("step_time_s", "seconds a step"),
    Measure("replica_spread", "spread of replicas", log=True),
    Measure("blocks_lost_pct", "blocks lost (%)"),
)


def trend_drawing(figure: Figure, rows: Sequence[Line], run_name: str) -> Drawing:
    """A figure of kind "trend".

    Its `x` is a column, "megabytes_per_step", or "params.NAME" of the algorithm; `series` is "algorithm" or
    "params.NAME". An algorithm without such a parameter is a series of its own, and a level where that is `x`.

    Raises:
        AnalysisError: an unknown measure, or nothing that could be drawn.
    """
    known = {measure.column: measure for measure in _MEASURES}
    for name in figure.y:
        if name not in known:
            raise AnalysisError(f"measure {name!r}: expected one of {', '.join(known)}")
    lines = [line for line in records(cells(frame(rows))) if line["workers"] != 1]
    if not any(line["status"] == "ok" for line in lines):
        raise AnalysisError("no valid repetition; there is nothing to draw")
    found = _series(figure, [line for line in lines if line["status"] == "ok"])
    measures = [_named(known[name], lines) for name in figure.y]
    marks = "whiskers from least to most, set apart where they would cover each other"
    about = caption(whole(lines), run_name, marks, whiskers=False)
    about = about if figure.note is None else f"{about.removesuffix('.')}; {figure.note}."
    heading, label, log_x = figure.title or figure.name, _label(str(figure.x)), figure.x == _BYTES

    def draw(width_in: float) -> matplotlib.figure.Figure:
        return trend(found, label, measures, heading, about, width_in, log_x=log_x)

    return Drawing(figure.name, heading, draw)


def _series(figure: Figure, lines: Sequence[Line]) -> list[Series]:
    """Cells by series; without a place on the x axis only a single one, which is a level."""
    groups: dict[tuple[str, str], list[tuple[float | None, Line]]] = {}
    looks: dict[str, Mapping[str, Any]] = {}
    x = str(figure.x)
    for line in lines:
        place = _place(x, line)
        if place is None and not x.startswith(_PARAMETER):
            continue
        label = _of(figure.series, line)
        groups.setdefault((label, line["kind"]), []).append((place, line))
        looks[label] = {} if label != line["algorithm"] else line["params"] or {}
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
        return str(line["algorithm"])
    return f"{line['kind']}, {name} {_text(params[name])}"


def _text(value: object) -> str:
    """A parameter's value in words; of a compressor its kind and settings."""
    if isinstance(value, Mapping):
        settings = [f"{name} {each}" for name, each in value.items() if name != "kind"]
        return " ".join([str(value["kind"]), *settings])
    return str(value)


def _place(x: str, line: Line) -> float | None:
    name = x.removeprefix(_PARAMETER)
    if x == _BYTES:
        return megabytes_per_step(line)
    value = line.get(x) if x == name else (line["params"] or {}).get(name)
    return None if value is None else float(value)


def _label(x: str) -> str:
    titles = {**AXIS_TITLES, "loss_pct": "packets lost (%)", _BYTES: "MB a step and worker"}
    return titles.get(x, x.removeprefix(_PARAMETER))


def _named(measure: Measure, lines: Sequence[Line]) -> Measure:
    """An accuracy says of what data set it is."""
    if measure.column != "accuracy":
        return measure
    learned = " and ".join(sorted({data_set(line["workload"]) for line in lines}))
    return Measure(measure.column, f"{learned}: {measure.label}", measure.scale, measure.log)
