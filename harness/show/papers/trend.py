"""A paper's trend figure: measures against any quantity, such as packets lost, staleness, bytes or workers; one line
per series, from the cells of a recorded run, beside published or simulated values."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from wanbench.harness.analysis.axes import AXIS_TITLES
from wanbench.harness.analysis.best import megabytes_per_step
from wanbench.harness.analysis.summary import AnalysisError, Line, cells, frame, provenance
from wanbench.harness.grouping import by_key
from wanbench.harness.show.figures.caption import caption, titled, unclear
from wanbench.harness.show.figures.drawing import Drawing, Point
from wanbench.harness.show.figures.gallery import whole
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import (
    End,
    Panels,
    label_ends,
    least_in,
    logarithmic,
    mark_break,
    marked,
    strip_in,
)
from wanbench.harness.show.figures.names import compressed, data_set, human
from wanbench.harness.show.figures.style import COLUMN_IN, INK, SIMULATED, as_line, styles, wanbench_style
from wanbench.harness.show.papers import PaperFigure

Looks = Mapping[str, Any]

_BYTES = "megabytes_per_step"
_PARAMETER = "params."
_X_TITLES = {**AXIS_TITLES, "loss_pct": "packets lost (%)", _BYTES: "kB per step per worker"}
_TEMPLATE = re.compile(r"\{([^|{}]+)\|([^|{}]*)\|([a-z_]+)\}")
_PANEL_IN = 1.9
_APART_PT = 2.4  # between the markers of two series at one place, so that whiskers do not cover each other
_BESIDE: Mapping[str, Looks] = {
    "": {},
    "published": {"linestyle": (0, (1, 2)), "linewidth": 0.8, "marker": "D", "fillstyle": "full", "markersize": 4.0},
    "simulated": {"linestyle": SIMULATED, "linewidth": 0.7, "marker": ""},
}
_MARKED: Looks = {"linestyle": "", "markerfacecolor": "white"}  # a published value that the network is fitted to


@dataclass(frozen=True)
class Series:
    """Cells that belong together.

    Attributes:
        label: at the end of its line. kind, params: decide its look. points: (x, line of `analysis.summary.cells`), by
        x. A single cell without an x is a reference, and is drawn as a level across the panel.
        beside: "published" if a paper prints the values, "simulated" if another run has them. Both are drawn thin.
    """

    label: str
    kind: str
    params: Mapping[str, Any]
    points: tuple[tuple[float | None, Mapping[str, Any]], ...]
    beside: Literal["", "published", "simulated"] = ""


@dataclass(frozen=True)
class Measure:
    """A column of cells, with its minimum and maximum, as an axis.

    Attributes:
        column: its name. label: of the axis. scale: from the column's unit to the label's.
        log: a logarithmic axis, on which zero is not drawn. text: format of a value, in the label's unit.
    """

    column: str
    label: str
    scale: float = 1.0
    log: bool = False
    text: str = "{:.3g}"

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns of the value, its minimum and its maximum."""
        return self.column, f"{self.column}_min", f"{self.column}_max"


_MEASURES = (
    Measure("accuracy", "accuracy (%)", 100, text="{:.1f} %"),
    Measure("final_loss", "training loss at the end", text="{:.2g}"),
    Measure("time_to_target_s", "seconds to target", log=True, text="{:.0f} s"),
    Measure("scalability", "scalability  T(1) / T(N)", text="{:.2f}"),
    Measure("step_time_s", "seconds per step", text="{:.2f} s"),
    Measure("replica_spread", "spread of replicas", log=True, text="{:#.2g}"),
    Measure("blocks_lost_pct", "blocks lost (%)"),
)


def trend_drawing(
    figure: PaperFigure, rows: Sequence[Line], run_name: str, citation: str = "", beside: Sequence[Line] = ()
) -> Drawing:
    """A figure of kind "trend".

    Its `x` is a column, "megabytes_per_step", or "params.NAME" of the algorithm; `series` is "algorithm" or
    "params.NAME". An algorithm without such a parameter is its own series, and a level if the parameter is `x`.

    Args:
        rows: of the figure's run, one per repetition. beside: of the simulated run that is drawn thin.

    Raises:
        AnalysisError: an unknown measure, a title that asks for a value that is not drawn, or nothing to draw.
    """
    by_column = {measure.column: measure for measure in _MEASURES}
    for name in figure.y:
        if name not in by_column:
            raise AnalysisError(f"measure {name!r}: expected one of {', '.join(by_column)}")
    lines = [line for line in cells(frame(rows)) if line["workers"] != 1]
    series = _series(figure, lines)
    if not any(line["status"] == "ok" for line in lines):
        raise AnalysisError("no valid repetition; there is nothing to draw")
    measures = [_named(by_column[name], lines) for name in figure.y]
    series += _simulated(figure, series, beside) + _published(figure, series)
    x, log_x = str(figure.x), figure.x == _BYTES
    aside = any(_aside_pt(series, log_x=log_x).values())
    marks = "whiskers: minimum and maximum" + (", drawn side by side" if aside else "")
    if beside:
        marks += f"; dashed: simulated, {figure.beside}"
    if figure.published:
        marks += f"; dotted, with diamonds: published by {citation}"
    pivot = replace(whole(lines), heading=figure.subject, note=figure.note)
    about = caption(pivot, run_name, marks, whiskers=False)
    finding = _finding(figure.title or figure.name, series, by_column)
    column = x.removeprefix(_PARAMETER)
    title, x_title = titled(pivot, finding), _X_TITLES.get(x, column)
    draw = partial(_trend, series, x_title, measures, title, about, log_x=log_x)
    points_x = "kilobytes_per_step_per_worker" if log_x else column
    return Drawing(figure.name, finding, draw, lambda: _points(series, points_x, measures))


def _finding(template: str, series: Sequence[Series], measures: Mapping[str, Measure]) -> str:
    """The title with its values; if they are two of one measure whose repetitions overlap, it says so."""
    values = [_value(match, series, measures) for match in _TEMPLATE.finditer(template)]
    text = _TEMPLATE.sub("{}", template).format(*(text for text, _, _ in values))
    if len(values) == 2 and values[0][1] == values[1][1]:
        text += unclear(values[0][2], values[1][2], values[0][1])
    return text


def _value(match: re.Match[str], series: Sequence[Series], measures: Mapping[str, Measure]) -> tuple[str, str, Line]:
    """The text of "{series|x|measure}" in a title, its measure and its cell.

    x is a number, "min", "max", or empty for a level.
    """
    label, at, name = match.groups()
    points = [(x, cell) for line in series if line.label == label for x, cell in line.points]
    if at in {"min", "max"}:
        ordered = sorted((cell for _, cell in points if not math.isnan(cell[name])), key=lambda cell: float(cell[name]))
        named = ordered[:1] if at == "min" else ordered[-1:]
    else:
        named = [cell for x, cell in points if x == (float(at) if at else None)]
    if name not in measures or len(named) != 1:
        raise AnalysisError(f"title: {match.group()}: no such value is drawn")
    return measures[name].text.format(measures[name].scale * named[0][name]), name, named[0]


def _simulated(figure: PaperFigure, series: Sequence[Series], rows: Sequence[Line]) -> list[Series]:
    """The same series of the run beside. A level is the same in both, and is drawn once."""
    labels = {line.label for line in series if any(x is not None for x, _ in line.points)}
    simulated = _series(figure, cells(frame(rows)))
    return [
        replace(line, label=f"{line.label}, simulated", beside="simulated")
        for line in simulated
        if line.label in labels
    ]


def _published(figure: PaperFigure, series: Sequence[Series]) -> list[Series]:
    """The paper's values as series beside ours."""
    kinds = {line.label: line.kind for line in series}
    groups: dict[str, list[tuple[float | None, Line]]] = {}
    for value in figure.published:
        label = human(value.algorithm, value.algorithm, {})
        if label not in kinds or len(figure.y) != 1:
            raise AnalysisError(f"published {value.algorithm} at {value.at}: no such line is drawn")
        (name,) = figure.y
        cell = {
            name: value.value,
            f"{name}_min": value.value,
            f"{name}_max": value.value,
            "repeats": 1,
            "mark": value.mark,
        }
        groups.setdefault(label, []).append((float(value.at), cell))
    return [
        Series(f"{label}, published", kinds[label], {}, tuple(points), beside="published")
        for label, points in groups.items()
    ]


def _series(figure: PaperFigure, lines: Sequence[Line]) -> list[Series]:
    """Valid cells by series. A series without a place on the x axis has one cell, and is a level."""
    x, named = str(figure.x), figure.series.removeprefix(_PARAMETER) if figure.series.startswith(_PARAMETER) else ""
    placed = [(_x_of(x, line), line) for line in lines if line["status"] == "ok" and line["workers"] != 1]
    groups = by_key(
        ((_of(figure.series, cell), str(cell["kind"])), (x_value, cell))
        for x_value, cell in placed
        if x_value is not None or x.startswith(_PARAMETER)
    )
    for (label, _), points in groups.items():
        if len(points) > 1 and any(x_value is None for x_value, _ in points):
            raise AnalysisError(f"{label}: several cells without {x}; narrow it by `where`")
    return [
        Series(
            label,
            kind,
            {key: value for key, value in (points[-1][1]["params"] or {}).items() if not named or key == named},
            tuple(sorted(points, key=lambda point: (point[0] is None, point[0] or 0.0))),
        )
        for (label, kind), points in groups.items()
    ]


def _of(series: str, line: Line) -> str:
    name = series.removeprefix(_PARAMETER)
    params = line["params"] or {}
    if series == name or name not in params:
        return human(str(line["algorithm"]), str(line["kind"]), params)
    value = params[name]
    return (
        f"{human(line['kind'], line['kind'], {})}, {compressed(value) if name == 'compression' else f'{name} {value}'}"
    )


def _x_of(x: str, line: Line) -> float | None:
    name = x.removeprefix(_PARAMETER)
    if x == _BYTES:
        sent = megabytes_per_step(line)
        return None if sent is None else 1e3 * sent
    value = line.get(x) if x == name else (line["params"] or {}).get(name)
    return None if value is None else float(value)


def _named(measure: Measure, lines: Sequence[Line]) -> Measure:
    """The label of an accuracy names its data set."""
    if measure.column != "accuracy":
        return measure
    learned = " and ".join(sorted({data_set(line["workload"]) for line in lines}))
    return replace(measure, label=f"{learned}: {measure.label}")


@wanbench_style()
def _trend(
    series: Sequence[Series], x: str, measures: Sequence[Measure], title: str, about: str, width: float, *, log_x: bool
) -> Figure:
    """One panel per measure, with medians of repetitions and whiskers from minimum to maximum.

    Args:
        series: one line each. x: label of the common axis. measures: one or two. title: the finding, and the subject.
        about: the caption. log_x: a logarithmic axis.

    Raises:
        AnalysisError: no repetition has this measure.
    """
    for measure in measures:
        if all(math.isnan(cell[measure.column]) for line in series for _, cell in line.points):
            raise AnalysisError(f"no repetition has {measure.column}; there is nothing to draw")
    looks, aside_pt = _looks(series), _aside_pt(series, log_x=log_x)
    across = len(measures) if width > COLUMN_IN else 1
    ends = [_ends(series, measure, looks, log_x=log_x) for measure in measures]
    panel_in = max(_PANEL_IN, *(least_in([end.text for end in of]) for of in ends))
    strip = strip_in([end.text for of in ends for end in of])
    sheet = Panels(
        width, title, about, _entries(series),
        count=len(measures), across=across, panel_in=panel_in, own_y=True, gap_in=strip + 0.42, right_in=strip,
    )  # fmt: skip
    margin = (max(aside_pt.values(), default=0.0) + 4) / 72 / sheet.panel_width_in
    for index, measure in enumerate(measures):
        axes = sheet.panel(index, measure.label)
        for line in series:
            _draw(axes, line, measure, x, looks[line.label], aside_pt.get(line.label, 0.0))
        sheet.label(index, x)
        _limit(axes, series, measures, measure, margin, log_x=log_x)
        placed = [replace(end, x=min(end.x, axes.get_xlim()[1])) for end in ends[index]]
        label_ends(axes, placed, (sheet.panel_width_in, panel_in))
    return sheet.figure


def _entries(series: Sequence[Series]) -> dict[str, Artist]:
    """A legend that tells published values of which some are marked apart; else nothing."""
    marks = dict.fromkeys(str(cell.get("mark", "")) for line in series for _, cell in line.points)
    if not any(marks):
        return {}
    look = {**_BESIDE["published"], "color": INK, "linestyle": ""}
    words = {f"published, {mark}" if mark else "published": _MARKED if mark else {} for mark in sorted(marks)}
    return {word: Line2D([], [], **{**look, **extra}) for word, extra in words.items()}


def _limit(
    axes: Axes, series: Sequence[Series], measures: Sequence[Measure], measure: Measure, margin: float, *, log_x: bool
) -> None:
    """Limits and ticks of a panel; all panels have the same x axis."""
    shown = {
        x for line in series for panel in measures for x, cell in line.points if cell[panel.column] > _least(panel)
    }
    xs = sorted(x for x in shown if x is not None)
    span = (xs[-1] - xs[0] or 1.0) / (1 - 2 * margin)
    axes.set_xlim(xs[0] - margin * span, xs[-1] + margin * span)
    axes.set_xticks(xs, [f"{x:g}" for x in xs])
    if log_x:
        logarithmic(axes.xaxis, *_stretched(xs))
    if measure.log:
        logarithmic(axes.yaxis, *_stretched([value for line in series for value in _drawn(line, measure)]))
    mark_break(axes.yaxis)


def _least(measure: Measure) -> float:
    """Values above this one are drawn."""
    return 0.0 if measure.log else -math.inf


def _looks(series: Sequence[Series]) -> dict[str, dict[str, Any]]:
    own = [line for line in series if not line.beside]
    network = provenance(str(cell["testbed"]) for line in own for _, cell in line.points)
    looks = styles([(line.label, line.kind, line.params) for line in own], network)
    families = {line.kind: looks[line.label] for line in own}
    of_label = {}
    for line in series:
        look = {**as_line(families[line.kind] if line.beside else looks[line.label]), **_BESIDE[line.beside]}
        of_label[line.label] = {**look, "marker": "", "linewidth": 0.9} if _level(line) else look
    return of_label


def _aside_pt(series: Sequence[Series], *, log_x: bool) -> dict[str, float]:
    """How far each series is moved to the right; not at all if another has values for the same place beside it, or x is
    a quantity that was measured."""
    apart = 0.0 if log_x or any(line.beside for line in series) else _APART_PT
    moved = [line for line in series if not _level(line)]
    return {line.label: apart * (index - (len(moved) - 1) / 2) for index, line in enumerate(moved)}


def _drawn(series: Series, measure: Measure) -> list[float]:
    """Values and whiskers that are in view on a logarithmic axis."""
    return [measure.scale * cell[name] for _, cell in series.points for name in measure.columns if cell[name] > 0]


def _stretched(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / 1.25, max(values) * 1.25


def _ends(
    series: Sequence[Series],
    measure: Measure,
    looks: Mapping[str, Looks],
    *,
    log_x: bool,
) -> list[End]:
    """The last point of each line; a level ends at the edge, x = infinity. Bytes are no axis that all lines share."""
    levels: list[End] = []
    ends: list[End] = []
    for line in series:
        shown = [(at, cell[measure.column]) for at, cell in line.points if cell[measure.column] > _least(measure)]
        if shown:
            x, value = shown[-1]
            at, y = math.inf if x is None else x, measure.scale * value
            end = End(line.label, dict(looks[line.label]), at, y, measure.text.format(y))
            (levels if x is None else ends).append(end)
    return [*(ends if log_x else marked(ends, "{:g}")), *levels]


def _level(series: Series) -> bool:
    return len(series.points) == 1 and series.points[0][0] is None


def _draw(axes: Axes, series: Series, measure: Measure, x: str, look: Looks, aside_pt: float) -> None:
    shown = [(x_value, cell) for x_value, cell in series.points if cell[measure.column] > _least(measure)]
    if not shown:
        return
    middle, low, high = (measure.scale * np.array([float(cell[name]) for _, cell in shown]) for name in measure.columns)
    if _level(series):
        axes.axhline(float(middle[0]), **{**look, "zorder": 2})
        return
    at = [float(x_value) for x_value, _ in shown if x_value is not None]
    drawn: list[Artist] = [*axes.plot(at, middle, **look)]
    marked_at = [index for index, (_, cell) in enumerate(shown) if cell.get("mark")]
    axes.plot(np.take(at, marked_at), middle[marked_at], **{**look, **_MARKED})
    if not series.beside and any(cell["repeats"] > 1 for _, cell in shown):
        high = np.where(np.isnan(high), middle, high)  # a repetition never reached the target
        whiskers = axes.errorbar(
            at, middle, yerr=[middle - low, high - middle], fmt="none", ecolor=look["color"],
            elinewidth=0.7, capsize=1.6, capthick=0.7, zorder=3,
        )  # fmt: skip
        drawn += whiskers.get_children()
    # Moved after drawing: the limits of the axes stay those of the data.
    aside = axes.transData + ScaledTranslation(aside_pt / 72, 0, axes.figure.dpi_scale_trans)
    for artist in drawn:
        artist.set_transform(aside)
        artist.set_clip_on(False)
    for x_value, value in zip(at, middle, strict=True):
        note(axes, x_value, float(value), f"{series.label}: {measure.label} {value:.4g} at {x} {x_value:g}")


def _points(series: Sequence[Series], x: str, measures: Sequence[Measure]) -> list[Point]:
    """One point per cell, in the units of columns; a level has no x."""
    return [
        {
            "series": line.label,
            "source": line.beside or provenance([str(cell["testbed"])]),
            x: x_value,
            "repetitions": None if line.beside == "published" else cell["repeats"],
            **{name: cell.get(name) for measure in measures for name in measure.columns},
        }
        for line in series
        for x_value, cell in line.points
    ]
