"""Figures laid out in inches: title, legend, axes and caption have a strip each, so that nothing overlaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbench.harness.show.figures.caption import wrapped
from wanbench.harness.show.figures.style import FAINT

_TITLE_PT, _CAPTION_PT = 8.5, 6.0
_TITLE_ROW_IN, _LEGEND_ROW_IN, _CAPTION_ROW_IN = 0.15, 0.155, 0.108
_LEFT_IN, _RIGHT_IN, _BELOW_AXES_IN = 0.48, 0.10, 0.44
_MARGIN_IN = 0.08


class Sheet:
    """An empty figure whose strips are reserved beforehand.

    Args:
        width_in: figure width. axes_in: height of the axes area, between legend and x labels.
        title: bold, top left. caption: small, bottom. entries: labels of the legend.
        left_in: room for the y labels.
    """

    def __init__(
        self,
        width_in: float,
        axes_in: float,
        title: str,
        caption: str,
        entries: Sequence[str],
        left_in: float = _LEFT_IN,
    ) -> None:
        self.width_in = width_in
        title_lines = wrapped(title, width_in, _TITLE_PT, bold=True)
        caption_lines = wrapped(caption, width_in, _CAPTION_PT)
        self.entries = entries
        self.legend_columns = _legend_columns(entries, width_in) if entries else 1
        title_in = _TITLE_ROW_IN * len(title_lines) + 0.11
        legend_in = _LEGEND_ROW_IN * math.ceil(len(entries) / self.legend_columns) + 0.08
        caption_in = _CAPTION_ROW_IN * len(caption_lines) + 0.10
        self.height_in = title_in + legend_in + axes_in + _BELOW_AXES_IN + caption_in
        self.figure = Figure(figsize=(width_in, self.height_in))
        self._legend_top = 1 - title_in / self.height_in
        self.left = left_in / width_in
        self.right = 1 - _RIGHT_IN / width_in
        self.top = 1 - (title_in + legend_in) / self.height_in
        self.bottom = (_BELOW_AXES_IN + caption_in) / self.height_in
        self._text(title_lines, 1 - 0.07 / self.height_in, "top", fontsize=_TITLE_PT, fontweight="bold")
        self._text(caption_lines, 0.06 / self.height_in, "bottom", fontsize=_CAPTION_PT, color=FAINT)

    def _text(self, lines: Sequence[str], y: float, va: str, **look: Any) -> None:
        # A user's "$" is a dollar sign, not mathematics.
        self.figure.text(_MARGIN_IN / self.width_in, y, "\n".join(lines), va=va, parse_math=False, **look)

    def axes(self) -> Axes:
        """One set of axes that fills the area."""
        return self.figure.add_axes((self.left, self.bottom, self.right - self.left, self.top - self.bottom))

    def legend(self, handles: Sequence[Artist]) -> None:
        """The legend, in its strip under the title, read line by line; `handles` in the order of the entries."""
        columns = self.legend_columns
        # matplotlib fills columns first; people read lines first.
        order = [i for column in range(columns) for i in range(column, len(handles), columns)]
        self.figure.legend(
            [handles[i] for i in order],
            [self.entries[i] for i in order],
            ncols=columns,
            loc="upper left",
            bbox_to_anchor=(_MARGIN_IN / self.width_in, self._legend_top),
            borderpad=0.0,
            borderaxespad=0.0,
        )


class Panels:
    """Equal axes in rows, each with a title of its own, in the axes area of a sheet.

    Args:
        count: of panels. across: in a row. panel_in: height of one, without its title.
        between_in: room under every row but the last, where rows have x labels of their own.
        gap_in: between two panels of a row; more where each has y labels of its own.
    """

    TITLE_IN = 0.22
    GAP_IN = 0.16

    def __init__(
        self, count: int, across: int, panel_in: float, between_in: float = 0.0, gap_in: float = GAP_IN
    ) -> None:
        rows = math.ceil(count / across)
        self.across = across
        self.panel_in = panel_in
        self._gap_in = gap_in
        self._pitch_in = panel_in + self.TITLE_IN + between_in
        self.height_in = rows * self._pitch_in - between_in

    def axes(self, sheet: Sheet, index: int) -> Axes:
        """Number `index`, in reading order."""
        gap = self._gap_in / sheet.width_in
        pitch = (sheet.right - sheet.left + gap) / self.across
        left = sheet.left + (index % self.across) * pitch
        top = sheet.top - (index // self.across) * self._pitch_in / sheet.height_in
        bottom = top - (self.panel_in + self.TITLE_IN) / sheet.height_in
        return sheet.figure.add_axes((left, bottom, pitch - gap, self.panel_in / sheet.height_in))


def _legend_columns(entries: Sequence[str], width_in: float) -> int:
    """As many as fit the width, but no more than five."""
    entry_in = (7 * (3.0 + 0.8 + 1.4) + 0.6 * 7 * max(len(entry) for entry in entries)) / 72
    return max(1, min(len(entries), 5, int((width_in - _MARGIN_IN) / entry_in)))
