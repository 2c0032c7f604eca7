"""Figures laid out in inches: title, legend, axes, caption, each in a strip of its own, so that nothing overlaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.figures.caption import caption_lines, put_caption
from harness.figures.style import PAGE_IN

_TITLE_IN, _LEGEND_ROW_IN, _CAPTION_ROW_IN = 0.26, 0.155, 0.108
_LEFT_IN, _RIGHT_IN, _BELOW_AXES_IN = 0.48, 0.10, 0.44


class Sheet:
    """An empty figure whose strips are reserved beforehand.

    Args:
        width_in: figure width. axes_in: height of the axes area, between legend and x labels.
        title: bold, top left. caption: small, bottom. entries: how many the legend has.
        left_in: room for the y labels.
    """

    def __init__(
        self,
        width_in: float,
        axes_in: float,
        title: str,
        caption: str,
        entries: int,
        left_in: float = _LEFT_IN,
    ) -> None:
        self.width_in = width_in
        self.legend_columns = max(1, min(entries, 5 if width_in >= PAGE_IN else 3))
        legend_in = _LEGEND_ROW_IN * math.ceil(entries / self.legend_columns) + 0.08
        caption_in = _CAPTION_ROW_IN * len(caption_lines(caption, width_in)) + 0.10
        self.height_in = _TITLE_IN + legend_in + axes_in + _BELOW_AXES_IN + caption_in
        self.figure = Figure(figsize=(width_in, self.height_in))
        self._legend_top = 1 - _TITLE_IN / self.height_in
        self.left = left_in / width_in
        self.right = 1 - _RIGHT_IN / width_in
        self.top = 1 - (_TITLE_IN + legend_in) / self.height_in
        self.bottom = (_BELOW_AXES_IN + caption_in) / self.height_in
        self.figure.text(
            0.08 / width_in,
            1 - 0.07 / self.height_in,
            title,
            va="top",
            fontsize=8.5,
            fontweight="bold",
            parse_math=False,
        )
        put_caption(self.figure, caption)

    def axes(self) -> Axes:
        """One set of axes that fills the area."""
        return self.figure.add_axes((self.left, self.bottom, self.right - self.left, self.top - self.bottom))

    def legend(self, handles: Sequence[Artist], labels: Sequence[str]) -> None:
        """The legend, in its strip under the title, read line by line."""
        columns = self.legend_columns
        # matplotlib fills columns first; people read lines first.
        order = [i for column in range(columns) for i in range(column, len(labels), columns)]
        self.figure.legend(
            [handles[i] for i in order],
            [labels[i] for i in order],
            ncols=columns,
            loc="upper left",
            bbox_to_anchor=(0.08 / self.width_in, self._legend_top),
            borderpad=0.0,
            borderaxespad=0.0,
        )
