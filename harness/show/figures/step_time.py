"""Where the time of a step goes: computing, waiting for the network, and the rest, for every cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from wanbench.harness.analysis.summary import Pivot, axis_value
from wanbench.harness.show.figures.caption import caption, title
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels, entries_beside
from wanbench.harness.show.figures.style import COLUMN_IN, INK, PAGE_IN, PUBLISHED, wanbench_style

Parts = tuple[tuple[str, str, str, str], ...]
# (column, label, colour, hatch): light, dark and middle grey without colour.
PARTS: Parts = (
    ("compute_s", "compute", "#BBCCEE", ""),
    ("stall_s", "stall", "#CC5566", "////"),
    ("overhead_s", "overhead", "#CCBB44", ""),
)
# Of a program of the user's only the whole is known.
_WHOLE: Parts = (("step_time_s", "whole step", "#999999", ""),)
_MARKS = {
    PARTS: "stall: waiting for the network; black ticks: step-time law",
    _WHOLE: "a program of its own, whose step is not taken apart",
}
_TITLES = {PARTS: "where a step's time goes", _WHOLE: "time of a step"}
_BAR_IN = 0.165


@wanbench_style()
def step_time(pivot: Pivot, run_name: str, width_in: float = PAGE_IN, progress: str | None = None) -> Figure:
    """One panel a value of the column axis, one stacked bar an algorithm, in seconds a step.

    Args:
        pivot: medians of every cell. run_name: shown at the caption's beginning.
        width_in: `PAGE_IN` or `COLUMN_IN`. progress: of a run that is going on, "14 of 42 cells".
    """
    parts = _WHOLE if all(math.isnan(line["compute_s"]) for line in _valid(pivot)) else PARTS
    across = min(len(pivot.columns), 3 if width_in > COLUMN_IN else 1)
    entries = {label: filled(colour, hatch) for _, label, colour, hatch in parts}
    sheet = Panels(
        width_in,
        pivot.heading or f"{title(pivot)}: {_TITLES[parts]}",
        caption(pivot, run_name, _MARKS[parts], progress, whiskers=False),
        entries | entries_beside(pivot, "|"),
        count=len(pivot.columns),
        across=across,
        panel_in=_BAR_IN * len(pivot.algorithms) + 0.06,
        left_in=0.14 + 0.062 * max(len(label) for label in pivot.algorithms),
    )
    limit_s = _limit_s(pivot)
    for index, column in enumerate(pivot.columns):
        _panel(sheet.panel(index, axis_value(pivot.column_axis, column)), pivot, column, limit_s, parts)
        sheet.label(index, "seconds a step")
    return sheet.figure


def filled(colour: str, hatch: str) -> Artist:
    """A part of a step in a legend."""
    return Patch(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0)


def _limit_s(pivot: Pivot) -> float:
    times = [line["step_time_s"] for line in _valid(pivot)]
    return 1.22 * max([*times, *pivot.published.values()], default=1.0)


def _valid(pivot: Pivot) -> list[Mapping[str, Any]]:
    return [line for line in pivot.lines.values() if line["status"] == "ok"]


def _panel(axes: Axes, pivot: Pivot, column: Any, limit_s: float, parts: Parts) -> None:
    for place, label in enumerate(pivot.algorithms):
        line = pivot.lines.get((label, column))
        if line is None or line["status"] != "ok":
            text = "not run" if line is None else str(line["status"])
            axes.text(0.01 * limit_s, place, text, fontsize=6, va="center", color=INK)
        else:
            _bar(axes, line, place, limit_s, pivot.published.get((label, column), 0.0) + 0.02 * limit_s, parts)
        if (label, column) in pivot.published:
            value = pivot.published[label, column]
            axes.plot([value], [place], zorder=4, **PUBLISHED)
            note(axes, value, place, f"{label}: published {value:g} s a step")
    axes.set_ylim(len(pivot.algorithms) - 0.4, -0.6)
    axes.set_yticks(range(len(pivot.algorithms)), list(pivot.algorithms))
    axes.set_xlim(0, limit_s)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")
    axes.tick_params(axis="y", length=0)


def _bar(axes: Axes, line: Mapping[str, Any], place: int, limit_s: float, least_end_s: float, parts: Parts) -> None:
    left_s = 0.0
    for name, _, colour, hatch in parts:
        width_s = 0.0 if math.isnan(line[name]) else max(0.0, line[name])
        axes.barh(place, width_s, 0.7, left_s, color=colour, hatch=hatch, edgecolor="white", linewidth=0, zorder=2)
        left_s += width_s
    law_s = line["predicted_step_time_s"]
    known = not math.isnan(law_s)
    if known:
        axes.plot([law_s, law_s], [place - 0.42, place + 0.42], color=INK, linewidth=0.9, zorder=3)
    known_parts = [f"{label} {line[name]:.4f} s" for name, label, _, _ in PARTS if not math.isnan(line[name])]
    said = ", ".join([f"{line['step_time_s']:.4f} s a step", *known_parts])
    note(axes, line["step_time_s"] / 2, place, f"{line['algorithm']}: {said}")
    end_s = max(left_s, law_s if known else 0.0, least_end_s)
    axes.text(end_s + 0.015 * limit_s, place, f"{line['step_time_s']:#.3g}", fontsize=6, va="center", color=INK)
