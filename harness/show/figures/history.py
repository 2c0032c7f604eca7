"""A metric over commits: a panel for every cell that changed, with the levels between changes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from string import ascii_lowercase
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wanbench.harness.analysis.history import History, Series, Shift, Value
from wanbench.harness.show.figures.gallery import Drawing
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels, fitting, text_in
from wanbench.harness.show.figures.points import Point
from wanbench.harness.show.figures.style import COLUMN_IN, FAINT, INK, PAGE_IN, wanbench_style
from wanbench.harness.show.history_table import commit_line, finding, percent, subject

MOST = 12  # panels
_WORSE, _BETTER = "#CC3311", "#228833"
_LEAST_SPAN = 0.02  # of the y axis, relative to the values: smaller changes look small
_LEFT_IN, _PANEL_IN = 0.5, 0.8
_SMALL_PT = 6.0
_MOST_NAMED = 8  # commits in the caption
_LONGEST = 80  # characters of a subject there
_DASHES = (0, (3, 2))
_ROWS = (0.98, 0.84)  # of the sizes of changes, in the height of a panel
_ENTRIES: Mapping[str, Any] = {
    "level": Line2D([], [], color=INK, linewidth=1.0),
    "change for the worse": Line2D([], [], color=_WORSE, linewidth=0.8, linestyle=_DASHES),
    "for the better": Line2D([], [], color=_BETTER, linewidth=0.8, linestyle=_DASHES),
}


def drawing(history: History, most: int = MOST) -> Drawing:
    """The figure of a history, with at most this many panels, and the points of all cells."""
    title = f"{finding(history)}\n{subject(history)}"
    return Drawing("history", title, lambda width: draw(history, width, most), lambda: points(history))


@wanbench_style()
def draw(history: History, width_in: float = PAGE_IN, most: int = MOST) -> Figure:
    """Draw the cells with the largest changes in `most` panels; all cells if none changed."""
    shown = _largest(history)[:most]
    letters = _letters(history, {series.label for series in shown})
    sheet = Panels(
        width_in,
        f"{finding(history)}\n{subject(history)}",
        _caption(history, shown, letters),
        _ENTRIES if history.shifts else {},
        count=len(shown),
        across=2 if width_in > COLUMN_IN and len(shown) > 1 else 1,
        panel_in=_PANEL_IN,
        own_y=True,
        left_in=_LEFT_IN,
    )
    for index, series in enumerate(shown):
        axes = sheet.panel(index, fitting(series.label, 7, sheet.panel_width_in))
        _panel(axes, history, series)
        _changes(axes, [s for s in history.shifts if s.label == series.label], letters, sheet.panel_width_in)
        sheet.label(index, "commit")
    return sheet.figure


def _largest(history: History) -> list[Series]:
    """The cells that changed, the largest change first; all cells if none changed."""
    sizes: dict[str, float] = {}
    for shift in history.shifts:
        sizes[shift.label] = max(sizes.get(shift.label, 0.0), shift.size)
    changed = [series for series in history.series if series.label in sizes]
    return sorted(changed, key=lambda series: -sizes[series.label]) or list(history.series)


def _letters(history: History, labels: Collection[str]) -> dict[int, str]:
    """A letter for each commit with the largest changes of these cells, in order."""
    shifts = [shift for shift in history.shifts if shift.label in labels and not shift.drift]
    largest = dict.fromkeys(shift.at for shift in sorted(shifts, key=lambda shift: -shift.size))
    return dict(zip(sorted([*largest][:_MOST_NAMED]), ascii_lowercase, strict=False))


def _caption(history: History, shown: Sequence[Series], letters: Mapping[int, str]) -> str:
    parts = [f"{history.metric} at each commit, the oldest first"]
    if any(value is not None and value.repeats > 1 for series in shown for value in series.values):
        parts.append("medians of repetitions, whiskers: minimum and maximum")
    if any(0 < level.half < math.inf for series in shown for level in series.steps.levels):
        parts.append("bands: 95 % intervals of the levels")
    changed = len({shift.label for shift in history.shifts})
    if len(shown) < (changed or len(history.series)):
        parts.append(f"the {len(shown)} cells that changed the most" if changed else f"{len(shown)} cells")
    parts += [f"{letter}: {_named(history, at)}" for at, letter in letters.items()]
    return f"{history.experiment}: {'; '.join(parts)}."


def _named(history: History, at: int) -> str:
    subject = history.outcomes[at].subject
    return " ".join(
        filter(None, (history.title(at), subject and textwrap.shorten(subject, _LONGEST, placeholder=" …")))
    )


def _panel(axes: Axes, history: History, series: Series) -> None:
    there = [(at, value) for at, value in enumerate(series.values) if value is not None]
    size = max(1.2, min(3.2, 60 / len(history.outcomes)))
    axes.plot([at for at, _ in there], [value.middle for _, value in there], linestyle="", marker="o", color=FAINT,
              markersize=size, markeredgewidth=0, zorder=3)  # fmt: skip
    axes.vlines([at for at, _ in there], [value.low for _, value in there], [value.high for _, value in there],
                color=FAINT, linewidth=0.5, zorder=2)  # fmt: skip
    for at, value in there:
        note(axes, at, value.middle, f"{series.label}: {_said(history.metric, value)} at {commit_line(history, at)}")
    _levels(axes, series)
    last = len(history.outcomes) - 1
    axes.set_xlim(-0.5, last + 0.5)
    _limit(axes, [end for _, value in there for end in (value.low, value.high)])
    ends = sorted({0, last})
    axes.set_xticks(ends, [history.title(at) for at in ends])
    if last:
        axes.get_xticklabels()[0].set_horizontalalignment("left")
        axes.get_xticklabels()[1].set_horizontalalignment("right")


def _levels(axes: Axes, series: Series) -> None:
    drift, levels = series.steps.drift, series.steps.levels
    if drift is not None:
        axes.plot([levels[0].first, levels[0].last], [drift.begin, drift.end], color=INK, linewidth=1.0, zorder=4)
        return
    for level in levels:
        ends = [level.first - 0.4, level.last + 0.4]
        axes.plot(ends, [level.mean] * 2, color=INK, linewidth=1.0, zorder=4, solid_capstyle="butt")
        if 0 < level.half < math.inf:
            axes.fill_between(ends, level.mean - level.half, level.mean + level.half, color=INK, alpha=0.12,
                              linewidth=0, zorder=0)  # fmt: skip


def _limit(axes: Axes, values: Sequence[float]) -> None:
    low, high = min(values), max(values)
    middle = (low + high) / 2
    half = 0.62 * max(high - low, _LEAST_SPAN * abs(middle)) or 0.5
    axes.set_ylim(middle - half, middle + 1.25 * half)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.locator_params(axis="y", nbins=4)


def _changes(axes: Axes, shifts: Sequence[Shift], letters: Mapping[int, str], width_in: float) -> None:
    """A line for each change, and beside it its size and the letter of its commit, where there is room."""
    left, right = axes.get_xlim()
    taken: list[tuple[float, float, float]] = []
    for shift in sorted(shifts, key=lambda shift: -shift.size):
        colour, at = _BETTER if shift.better else _WORSE, (shift.last if shift.drift else shift.at) - 0.5
        if not shift.drift:
            axes.axvline(at, color=colour, linewidth=0.8, linestyle=_DASHES, zorder=1)
        text = " ".join(filter(None, (letters.get(shift.at) if not shift.drift else None, percent(shift.change))))
        room = (text_in(text, _SMALL_PT) + 0.06) * (right - left) / width_in
        places = ((y, low, side) for y in _ROWS for low, side in ((at, "left"), (at - room, "right")))
        for y, low, side in places:
            others = [(begin, end) for row, begin, end in taken if row == y]
            if left <= low and low + room <= right and all(low + room <= a or b <= low for a, b in others):
                taken.append((y, low, low + room))
                axes.annotate(text, (at, y), xytext=(2 if side == "left" else -2, 0), textcoords="offset points",
                              xycoords=axes.get_xaxis_transform(), ha=side, va="top", color=colour,
                              fontsize=_SMALL_PT, zorder=5)  # fmt: skip
                break


def _said(metric: str, value: Value) -> str:
    spread = f" ({value.low:.4g} to {value.high:.4g}, {value.repeats} repetitions)" if value.repeats > 1 else ""
    return f"{metric} {value.middle:.4g}{spread}"


def points(history: History) -> list[Point]:
    """One point per cell and commit, with its level."""
    return [
        {
            "cell": series.label,
            "commit": outcome.commit,
            "date": outcome.date,
            history.metric: value.middle,
            f"{history.metric}_min": value.low,
            f"{history.metric}_max": value.high,
            "repetitions": value.repeats,
            "level": next((level.mean for level in series.steps.levels if level.first <= at <= level.last), None),
        }
        for series in history.series
        for at, (outcome, value) in enumerate(zip(history.outcomes, series.values, strict=True))
        if value is not None
    ]
