"""What the bar charts share: their panels, the bars of each with their names, and the text at the end of a bar."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from wanbench.harness.analysis.summary import Pivot, axis_value
from wanbench.harness.show.figures.finding import names_of
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels, fitting, text_in
from wanbench.harness.show.figures.style import COLUMN_IN, INK, PUBLISHED

_BAR_IN = 0.165
_FONT_PT, _NAME_PT = 6.0, 6.5

Key = tuple[str, Any]


def panels(pivot: Pivot) -> list[tuple[str, list[tuple[str, Key]]]]:
    """(title, bars) of each panel; a bar is its name, and its key in the pivot.

    There is a panel per value of the column axis. A single algorithm has one panel with a bar per value instead.
    """
    names = names_of(pivot)
    if len(pivot.algorithms) == 1 and len(pivot.columns) > 1:
        (label,) = pivot.algorithms
        bars = [(axis_value(pivot.column_axis, column), (label, column)) for column in pivot.columns]
        return [(names[label], bars)]
    many = len(pivot.columns) > 1
    return [
        (
            axis_value(pivot.column_axis, column) if many else "",
            [(names[label], (label, column)) for label in pivot.algorithms],
        )
        for column in pivot.columns
    ]


def sheet(pivot: Pivot, width_in: float, title: str, about: str, entries: Mapping[str, Artist]) -> Panels:
    """The empty panels of `panels`, high enough for their bars, with a strip for the names of the bars."""
    shown = panels(pivot)
    return Panels(
        width_in,
        title,
        about,
        entries,
        count=len(shown),
        across=min(len(shown), 3 if width_in > COLUMN_IN else 1),
        panel_in=_BAR_IN * max(len(bars) for _, bars in shown) + 0.06,
        title_in=0.19 if shown[0][0] else 0.04,
        left_in=0.12 + max(text_in(name, _NAME_PT) for _, bars in shown for name, _ in bars),
    )


def end_text(value: str, published: float | None) -> str:
    """The text at the end of a bar: "0.562 (published 0.377)"."""
    return value if published is None else f"{value} (published {published:g})"


def limit(ends: Iterable[tuple[float, str]], axes_in: float, at_least: float = 0.0) -> float:
    """The end of an axis on which every text fits behind the end of its bar."""
    limits = [end / max(0.1, 1 - (text_in(text, _FONT_PT) + 0.1) / axes_in) for end, text in ends]
    return max([at_least, *limits]) or 1.0


def write_end(axes: Axes, place: int, end: float, text: str) -> None:
    """Write a text behind the end of bar number `place`."""
    axes.annotate(
        text, (end, place), (5, 0), textcoords="offset points", fontsize=_FONT_PT, va="center", color=INK,
        annotation_clip=False,
    )  # fmt: skip


def mark_published(axes: Axes, place: int, value: float | None, about: str) -> float:
    """Draw the diamond of a published value; returns where it is, or 0 if there is none."""
    if value is None or math.isnan(value):
        return 0.0
    axes.plot([value], [place], zorder=4, **PUBLISHED)
    note(axes, value, place, f"{about}: published {value:g}")
    return value


def finish(axes: Axes, names: Sequence[str], limit: float) -> None:
    """Limits, names and grid of a panel."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    room_in = axes.get_position().x0 * axes.figure.get_figure(root=True).get_figwidth() - 0.08
    axes.set_yticks(range(len(names)), [fitting(name, _NAME_PT, room_in) for name in names])
    axes.set_xlim(0, limit)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")
    axes.tick_params(axis="y", length=0)
