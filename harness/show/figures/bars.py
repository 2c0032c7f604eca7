"""Scalability of runs without an RTT axis: groups of bars, one an algorithm, with the law as a tick on each."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from wanbench.harness.analysis.summary import AXIS_TITLES, Pivot
from wanbench.harness.show.figures.caption import caption, has_law, title
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Sheet, entries_beside
from wanbench.harness.show.figures.style import COLUMN_IN, INK, PAGE_IN, PUBLISHED, Style, looks_of, wanbench_style
from wanbench.harness.show.grid import shown

_GROUP = 0.84
_NUMBER_IN = 0.19
_DIAMOND = 0.03  # half the height of a published value's marker, in scalability


@wanbench_style()
def scalability_bars(pivot: Pivot, run_name: str, width_in: float = PAGE_IN, progress: str | None = None) -> Figure:
    """One group of bars a value of the column axis: workers, profile, rate ...

    Args:
        pivot: median, minimum and maximum of every cell. run_name: shown at the caption's beginning.
        width_in: `PAGE_IN` or `COLUMN_IN`. progress: of a run that is going on, "14 of 42 cells".
    """
    looks = looks_of(pivot)
    law = "black ticks: step-time law" if has_law(pivot) else None
    entries = {label: Patch(**_fill(look)) for label, look in looks.items()} | entries_beside(pivot, "_")
    height_in = 2.5 if width_in > COLUMN_IN else 2.0
    sheet = Sheet(width_in, height_in, title(pivot), caption(pivot, run_name, law, progress), entries)
    axes = sheet.axes()
    bar_in = (sheet.right - sheet.left) * width_in / len(pivot.columns) * _GROUP / len(looks)
    for place, (label, look) in enumerate(looks.items()):
        _bars(axes, pivot, label, look, place, len(looks), numbered=bar_in >= _NUMBER_IN)
    for (label, column), value in pivot.published.items():
        x = pivot.columns.index(column) - _GROUP / 2 + (list(looks).index(label) + 0.5) * _GROUP / len(looks)
        axes.plot([x], [value], zorder=4, **PUBLISHED)
        note(axes, x, value, f"{label}, {column}: published {value:g}")
    axes.set_xlim(-0.5, len(pivot.columns) - 0.5)
    axes.set_xticks(range(len(pivot.columns)), [*map(shown, pivot.columns)])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1.1)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.set_ylabel("scalability  T(1) / T(N)")
    axes.set_xlabel(AXIS_TITLES.get(pivot.column_axis, pivot.column_axis))
    return sheet.figure


def _bars(axes: Axes, pivot: Pivot, label: str, look: Style, place: int, among: int, *, numbered: bool) -> None:
    width = _GROUP / among
    for group, column in enumerate(pivot.columns):
        x = group - _GROUP / 2 + (place + 0.5) * width
        line = pivot.lines.get((label, column))
        if line is None or math.isnan(line["scalability"]):
            text = "not run" if line is None else str(line["status"])
            axes.text(x, 0.02, text, rotation=90, fontsize=6, ha="center", va="bottom", color=INK)
            continue
        height, law = line["scalability"], line["predicted_scalability"]
        axes.bar(x, height, 0.88 * width, **_fill(look), zorder=2)
        note(
            axes,
            x,
            height,
            f"{label}, {column}: scalability {height:.3f}" + ("" if math.isnan(law) else f", law {law:.3f}"),
        )
        top = height
        if line["repeats"] > 1:
            low, high = line["scalability_min"], line["scalability_max"]
            axes.vlines(x, low, high, color=INK, linewidth=0.7, zorder=3)
            top = max(top, high)
        if not math.isnan(law):
            axes.hlines(law, x - 0.46 * width, x + 0.46 * width, color=INK, linewidth=1.0, zorder=3)
            top = max(top, law)
        if numbered:
            _number(axes, x, height, top, pivot.published.get((label, column), math.inf))


def _number(axes: Axes, x: float, height: float, top: float, published: float) -> None:
    """The height in figures, above the bar and what is drawn on it."""
    if abs(published - top) < 2 * _DIAMOND:
        top = max(published, top) + _DIAMOND
    text = f"{height:.2f}" if height >= 0.1 else f"{height:.3f}"
    axes.text(x, top + 0.012, text, fontsize=6, ha="center", va="bottom", color=INK)


def _fill(look: Style) -> dict[str, Any]:
    return {"facecolor": look.bar, "edgecolor": look.colour, "hatch": look.hatch, "linewidth": 0.8}
