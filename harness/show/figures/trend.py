"""Measures against a quantity that is no axis of a table: packets lost, staleness, bytes; one line a series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN, Style, line, styles, wanbench_style

_PANEL_IN = 1.9
_APART_PT = 2.4  # between the markers of two series at one place, so that whiskers do not cover each other


@dataclass(frozen=True)
class Series:
    """Cells that belong together.

    Attributes:
        label: in the legend. kind, params: decide its look. points: (x, line of `analysis.summary.cells`), by x.
        Without an x, a single cell is drawn as a level across the panel: it is compared with, but has no such quantity.
    """

    label: str
    kind: str
    params: Mapping[str, Any]
    points: tuple[tuple[float | None, Mapping[str, Any]], ...]


@dataclass(frozen=True)
class Measure:
    """A column of cells, with its minimum and maximum, as an axis.

    Attributes:
        column: its name. label: of the axis. scale: from the column's unit to the label's.
        log: a logarithmic axis, on which zero is not drawn.
    """

    column: str
    label: str
    scale: float = 1.0
    log: bool = False


@wanbench_style()
def trend(
    series: Sequence[Series],
    x: str,
    measures: Sequence[Measure],
    heading: str,
    about: str,
    width_in: float = PAGE_IN,
    *,
    log_x: bool = False,
) -> Figure:
    """One panel a measure; medians of repetitions, whiskers from least to most.

    Args:
        series: one line each. x: label of the common axis. measures: one or two. heading: the title.
        about: the caption. log_x: a logarithmic axis.

    Raises:
        AnalysisError: nothing has this measure.
    """
    for measure in measures:
        if all(math.isnan(cell[measure.column]) for each in series for _, cell in each.points):
            raise AnalysisError(f"no repetition has {measure.column}; there is nothing to draw")
    looks = styles([(each.label, each.kind, each.params) for each in series])
    across = len(measures) if width_in > COLUMN_IN else 1
    entries = {each.label: Line2D([], [], **_look(each, looks[each.label])) for each in series}
    sheet = Panels(
        width_in, heading, about, entries,
        count=len(measures), across=across, panel_in=_PANEL_IN, own_y=True, left_in=0.62,
    )  # fmt: skip
    for index, measure in enumerate(measures):
        _panel(sheet.panel(index, measure.label), series, measure, x, looks, log_x=log_x)
        sheet.label(index, x)
    limits = [axes.get_xlim() for axes in sheet.figure.axes]
    for axes in sheet.figure.axes:
        axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))
    return sheet.figure


def _panel(
    axes: Axes, series: Sequence[Series], measure: Measure, x: str, looks: Mapping[str, Style], *, log_x: bool
) -> None:
    axes.set_yscale("log" if measure.log else "linear")
    if log_x:
        axes.set_xscale("log")
    for place, each in enumerate(series):
        aside_pt = _APART_PT * (place - (len(series) - 1) / 2)
        _draw(axes, each, measure, x, looks[each.label], aside_pt)
    if not log_x:
        axes.set_xticks(sorted({place for each in series for place, _ in each.points if place is not None}))


def _level(series: Series) -> bool:
    return len(series.points) == 1 and series.points[0][0] is None


def _look(series: Series, look: Style) -> dict[str, Any]:
    return {**line(look), "marker": "", "linewidth": 0.9} if _level(series) else line(look)


def _draw(axes: Axes, series: Series, measure: Measure, x: str, look: Style, aside_pt: float) -> None:
    least = 0.0 if measure.log else -math.inf
    found = [(place, cell) for place, cell in series.points if cell[measure.column] > least]
    if not found:
        return
    names = (measure.column, f"{measure.column}_min", f"{measure.column}_max")
    middle, low, high = (measure.scale * np.array([float(cell[name]) for _, cell in found]) for name in names)
    if _level(series):
        axes.axhline(float(middle[0]), zorder=2, **_look(series, look))
        return
    at = [float(place) for place, _ in found if place is not None]
    drawn: list[Artist] = []
    drawn += axes.plot(at, middle, clip_on=False, zorder=4 if look.fill == "full" else 5, **line(look))
    if any(cell["repeats"] > 1 for _, cell in found):
        whiskers = axes.errorbar(
            at, middle, yerr=[middle - low, high - middle], fmt="none", ecolor=look.colour,
            elinewidth=0.7, capsize=1.6, capthick=0.7, zorder=3,
        )  # fmt: skip
        drawn += whiskers.get_children()
    # Afterwards, so that the limits of the axes are those of the data.
    figure = axes.get_figure(root=True)
    assert figure is not None
    aside = axes.transData + ScaledTranslation(aside_pt / 72, 0, figure.dpi_scale_trans)
    for artist in drawn:
        artist.set_transform(aside)
    for place, value in zip(at, middle, strict=True):
        note(axes, place, float(value), f"{series.label}: {measure.label} {value:.4g} at {x} {place:g}")
