"""Figures laid out in inches: title, legend, axes and caption have a strip each, so that nothing overlaps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wanbench.harness.analysis.summary import Pivot
from wanbench.harness.show.figures.caption import has_law, wrapped
from wanbench.harness.show.figures.style import FAINT, INK, PUBLISHED

_TITLE_PT, _CAPTION_PT = 8.5, 6.0
_TITLE_ROW_IN, _LEGEND_ROW_IN, _CAPTION_ROW_IN = 0.15, 0.155, 0.108
_LEFT_IN, _RIGHT_IN, _BELOW_AXES_IN = 0.48, 0.10, 0.44
_MARGIN_IN = 0.08
_GAP_IN, _OWN_Y_GAP_IN = 0.16, 0.55  # between two panels of a row


class Sheet:
    """An empty figure whose strips are reserved beforehand.

    Args:
        width_in: figure width. axes_in: height of the axes area, between legend and x labels.
        title: bold, top left. caption: small, bottom. entries: of the legend, a handle by label.
        left_in: room for the y labels.
    """

    def __init__(
        self,
        width_in: float,
        axes_in: float,
        title: str,
        caption: str,
        entries: Mapping[str, Artist],
        left_in: float = _LEFT_IN,
    ) -> None:
        self.width_in = width_in
        title_lines = wrapped(title, width_in, _TITLE_PT, bold=True)
        caption_lines = wrapped(caption, width_in, _CAPTION_PT)
        columns = _legend_columns([*entries], width_in) if entries else 1
        title_in = _TITLE_ROW_IN * len(title_lines) + 0.11
        legend_in = _LEGEND_ROW_IN * math.ceil(len(entries) / columns) + 0.08
        caption_in = _CAPTION_ROW_IN * len(caption_lines) + 0.10
        self.height_in = title_in + legend_in + axes_in + _BELOW_AXES_IN + caption_in
        self.figure = Figure(figsize=(width_in, self.height_in))
        self.left = left_in / width_in
        self.right = 1 - _RIGHT_IN / width_in
        self.top = 1 - (title_in + legend_in) / self.height_in
        self.bottom = (_BELOW_AXES_IN + caption_in) / self.height_in
        self._text(title_lines, 1 - 0.07 / self.height_in, "top", fontsize=_TITLE_PT, fontweight="bold")
        self._text(caption_lines, 0.06 / self.height_in, "bottom", fontsize=_CAPTION_PT, color=FAINT)
        if entries:
            self._legend(entries, columns, 1 - title_in / self.height_in)

    def _text(self, lines: Sequence[str], y: float, va: str, **look: Any) -> None:
        # A user's "$" is a dollar sign, not mathematics.
        self.figure.text(_MARGIN_IN / self.width_in, y, "\n".join(lines), va=va, parse_math=False, **look)

    def _legend(self, entries: Mapping[str, Artist], columns: int, top: float) -> None:
        """In its strip under the title, read line by line: matplotlib fills columns first."""
        labels = [label for column in range(columns) for label in [*entries][column::columns]]
        self.figure.legend(
            [entries[label] for label in labels],
            labels,
            ncols=columns,
            loc="upper left",
            bbox_to_anchor=(_MARGIN_IN / self.width_in, top),
            borderpad=0.0,
            borderaxespad=0.0,
        )

    def axes(self) -> Axes:
        """One set of axes that fills the area."""
        return self.figure.add_axes((self.left, self.bottom, self.right - self.left, self.top - self.bottom))


class Panels(Sheet):
    """A sheet of equal axes in rows, each with a title of its own.

    Args:
        count: of panels. across: in a row. panel_in: height of one, without its title.
        between_in: room under every row but the last, where rows have x labels of their own.
        own_y: each panel has a y axis of its own, not one a row.
    """

    TITLE_IN = 0.22

    def __init__(
        self,
        width_in: float,
        title: str,
        caption: str,
        entries: Mapping[str, Artist],
        *,
        count: int,
        across: int,
        panel_in: float,
        between_in: float = 0.0,
        own_y: bool = False,
        left_in: float = _LEFT_IN,
    ) -> None:
        self._count, self._across, self._panel_in, self._own_y = count, across, panel_in, own_y
        self._pitch_in = panel_in + self.TITLE_IN + between_in
        axes_in = math.ceil(count / across) * self._pitch_in - between_in
        super().__init__(width_in, axes_in, title, caption, entries, left_in)

    def panel(self, index: int, title: str = "") -> Axes:
        """Number `index`, in reading order."""
        gap = (_OWN_Y_GAP_IN if self._own_y else _GAP_IN) / self.width_in
        pitch = (self.right - self.left + gap) / self._across
        left = self.left + (index % self._across) * pitch
        top = self.top - (index // self._across) * self._pitch_in / self.height_in
        bottom = top - (self._panel_in + self.TITLE_IN) / self.height_in
        axes = self.figure.add_axes((left, bottom, pitch - gap, self._panel_in / self.height_in))
        if title:
            axes.set_title(title, fontsize=7, fontweight="normal", pad=2)
        return axes

    def label(self, index: int, x: str, y: str = "", **look: Any) -> None:
        """Say once what the axes of number `index` have in common with those beside and below it."""
        axes = self.figure.axes[index]
        first, last = index % self._across == 0, index + self._across >= self._count
        axes.tick_params(labelleft=first or self._own_y, labelbottom=last)
        if first and y:
            axes.set_ylabel(y, **look)
        if last:
            axes.set_xlabel(x)


def entries_beside(pivot: Pivot, tick: str) -> dict[str, Artist]:
    """Of the legend: the law, drawn as a tick on every bar, and what a paper printed; none where there is none."""
    found: dict[str, Artist] = {}
    if has_law(pivot):
        found["step-time law"] = Line2D([], [], color=INK, linestyle="", marker=tick, markersize=7)
    if pivot.published:
        found["published"] = Line2D([], [], **PUBLISHED)
    return found


def _legend_columns(entries: Sequence[str], width_in: float) -> int:
    """As many as fit the width, but no more than five."""
    entry_in = (7 * (3.0 + 0.8 + 1.4) + 0.6 * 7 * max(len(entry) for entry in entries)) / 72
    return max(1, min(len(entries), 5, int((width_in - _MARGIN_IN) / entry_in)))
