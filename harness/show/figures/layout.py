"""Figures laid out in inches: title, legend, axes and caption each have their own strip and cannot overlap.

Names at the ends of curves are in a strip to the right of the axes: each beside its curve, with a sample of its line.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath

from wanbench.harness.show.figures.caption import wrapped
from wanbench.harness.show.figures.style import FAINT, INK, wanbench_style

_TITLE_PT, _SUBJECT_PT, _CAPTION_PT = 8.5, 7.0, 6.0
_TITLE_ROW_IN, _SUBJECT_ROW_IN, _LEGEND_ROW_IN, _CAPTION_ROW_IN = 0.15, 0.125, 0.145, 0.108
_LEFT_IN, _RIGHT_IN, _BELOW_AXES_IN = 0.45, 0.10, 0.38
_MOST_TICKS = 7
_MARGIN_IN = 0.08
_LEAST_AXES_IN = 0.9
_PANEL_TITLE_IN = 0.19
_GAP_IN, _OWN_Y_GAP_IN = 0.16, 0.55  # between two panels of a row

# Names at the ends of curves.
_END_ROW_IN = 0.125
_END_PT = 6.5
_LEADER_IN, _SAMPLE_IN, _SPACE_IN, _END_MARGIN_IN = 0.14, 0.24, 0.05, 0.05
_APART_IN = 0.05  # between labels that do not belong together
_NEAR_IN = 0.4  # a curve that ends farther from the edge has no line to its label
_EQUAL_IN = 0.02  # curves that end closer than this, about a line's width, share a label


class Sheet:
    """An empty figure whose strips are reserved beforehand.

    Args:
        width_in: figure width. axes_in: height of the axes area, between legend and x labels.
        title: top left; the first line is the finding, in bold, the next one the subject.
        caption: small, bottom. entries: of the legend, a handle by label.
        left_in: room for the y labels. right_in: room for labels on the right.
    """

    def __init__(
        self,
        width_in: float,
        axes_in: float,
        title: str,
        caption: str,
        entries: Mapping[str, Artist],
        left_in: float = _LEFT_IN,
        right_in: float = _RIGHT_IN,
    ) -> None:
        self.width_in = width_in
        finding, _, subject = title.partition("\n")
        title_lines = wrapped(finding, width_in, _TITLE_PT, bold=True)
        subject_lines = wrapped(subject, width_in, _SUBJECT_PT)
        caption_lines = wrapped(caption, width_in, _CAPTION_PT)
        columns = _legend_columns([*entries], width_in) if entries else 1
        finding_in = 0.07 + _TITLE_ROW_IN * len(title_lines) + 0.02
        title_in = finding_in + _SUBJECT_ROW_IN * len(subject_lines) + 0.06
        legend_in = _LEGEND_ROW_IN * math.ceil(len(entries) / columns) + 0.06
        caption_in = _CAPTION_ROW_IN * len(caption_lines) + 0.10
        self.height_in = title_in + legend_in + axes_in + _BELOW_AXES_IN + caption_in
        self.figure = Figure(figsize=(width_in, self.height_in))
        # Long names leave some room for the axes, and are shortened to fit theirs.
        share = min(1.0, (width_in - _LEAST_AXES_IN) / (left_in + right_in))
        left_in, right_in = left_in * share, right_in * share
        self.left = left_in / width_in
        self.right = 1 - right_in / width_in
        self.top = 1 - (title_in + legend_in) / self.height_in
        self.bottom = (_BELOW_AXES_IN + caption_in) / self.height_in
        self._text(title_lines, 1 - 0.07 / self.height_in, "top", fontsize=_TITLE_PT, fontweight="bold")
        self._text(subject_lines, 1 - finding_in / self.height_in, "top", fontsize=_SUBJECT_PT, color=FAINT)
        self._text(caption_lines, 0.06 / self.height_in, "bottom", fontsize=_CAPTION_PT, color=FAINT)
        if entries:
            self._legend(entries, columns, 1 - title_in / self.height_in)

    def _text(self, lines: Sequence[str], y: float, va: str, **look: Any) -> None:
        self.figure.text(_MARGIN_IN / self.width_in, y, "\n".join(lines), va=va, **look)

    def _legend(self, entries: Mapping[str, Artist], columns: int, top: float) -> None:
        """Fill the strip under the title line by line; matplotlib would fill columns first."""
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

    @property
    def axes_in(self) -> tuple[float, float]:
        """Width and height of the axes area."""
        return (self.right - self.left) * self.width_in, (self.top - self.bottom) * self.height_in

    def axes(self) -> Axes:
        """One set of axes that fills the area."""
        return self.figure.add_axes((self.left, self.bottom, self.right - self.left, self.top - self.bottom))


class Panels(Sheet):
    """A sheet of equal axes in rows, each with its own title.

    Args:
        count: of panels. across: panels per row. panel_in: height of one, without its title.
        between_in: room under every row but the last, for x labels of its own.
        own_y: each panel has its own y axis; otherwise each row has one.
        title_in: room for the title of a panel. gap_in: between the panels of a row.
    """

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
        title_in: float = _PANEL_TITLE_IN,
        gap_in: float | None = None,
        left_in: float = _LEFT_IN,
        right_in: float = _RIGHT_IN,
    ) -> None:
        self._count, self.across, self._panel_in, self._own_y = count, across, panel_in, own_y
        self._title_in = title_in
        self._gap_in = gap_in if gap_in is not None else _OWN_Y_GAP_IN if own_y else _GAP_IN
        self._pitch_in = panel_in + title_in + between_in
        axes_in = math.ceil(count / across) * self._pitch_in - between_in
        super().__init__(width_in, axes_in, title, caption, entries, left_in, right_in)

    @property
    def panel_width_in(self) -> float:
        """Width of the axes of a panel."""
        return max(_LEAST_AXES_IN / 3, (self.axes_in[0] + self._gap_in) / self.across - self._gap_in)

    def panel(self, index: int, title: str = "") -> Axes:
        """Number `index`, in reading order."""
        width = self.panel_width_in / self.width_in
        pitch = width + self._gap_in / self.width_in
        left_x = self.left + (index % self.across) * pitch
        top = self.top - (index // self.across) * self._pitch_in / self.height_in
        bottom = top - (self._panel_in + self._title_in) / self.height_in
        axes = self.figure.add_axes((left_x, bottom, width, self._panel_in / self.height_in))
        if title:
            axes.set_title(title, fontsize=7, fontweight="normal", pad=2)
        return axes

    def label(self, index: int, x: str, y: str = "", **look: Any) -> None:
        """Label the axes of number `index`; labels shared with the axes beside and below are written once."""
        axes = self.figure.axes[index]
        first, last = index % self.across == 0, index + self.across >= self._count
        axes.tick_params(labelleft=first or self._own_y, labelbottom=last)
        if first and y:
            axes.set_ylabel(y, **look)
        if last:
            axes.set_xlabel(x)


def _legend_columns(entries: Sequence[str], width_in: float) -> int:
    """As many as fit the width; each column is as wide as its widest entry."""
    widths = [(6.5 * (2.2 + 0.8 + 1.4) + 0.6 * 6.5 * len(entry)) / 72 for entry in entries]
    for columns in range(len(entries), 1, -1):
        if sum(max(widths[column::columns]) for column in range(columns)) <= width_in - 2 * _MARGIN_IN:
            return columns
    return 1


@lru_cache(maxsize=4096)
def text_in(text: str, font_pt: float) -> float:
    """The width of a text in inches, with a reserve for rounding to pixels.

    It is kept: matplotlib takes 5 ms for one, and the panels of a figure repeat their names.
    """
    with wanbench_style():
        return 1.03 * float(TextPath((0, 0), text, size=font_pt, usetex=False).get_extents().width) / 72 + 0.02


def fitting(text: str, font_pt: float, room_in: float) -> str:
    """Each line of the text, without its middle if it is wider than the room."""
    return "\n".join(_fitting(line, font_pt, room_in) for line in text.split("\n"))


def _fitting(line: str, font_pt: float, room_in: float) -> str:
    kept, shown = len(line), line
    while kept > 6 and (width := text_in(shown, font_pt)) > room_in:
        kept = min(kept - 1, int(kept * room_in / width))
        shown = f"{line[: kept - kept // 3]}…{line[len(line) - kept // 3 :]}"
    return shown


def logarithmic(axis: Axis, low: float, high: float) -> None:
    """Make an axis logarithmic between two limits, with plain numbers at round values."""
    axes = axis.axes
    scale, limit = (axes.set_xscale, axes.set_xlim) if axis is axes.xaxis else (axes.set_yscale, axes.set_ylim)
    scale("log")
    limit(low, high)
    ticks = _round_numbers(low, high)
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def _round_numbers(low: float, high: float) -> list[float]:
    """Powers of ten if three are in view, else 1, 2, 5, then 3 of every decade; 1 and 3 if they are many, else more."""
    choices = ((1,), (1, 2, 5), (1, 2, 3, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(tenth / 10 for tenth in range(10, 100, 2)))
    for digits in choices:
        ticks = _with_digits(digits, low, high)
        if len(ticks) >= (3 if digits == (1,) else 4):
            break
    return ticks if len(ticks) <= _MOST_TICKS else _with_digits((1, 3), low, high)


def _with_digits(digits: Sequence[float], low: float, high: float) -> list[float]:
    ticks = (digit * 10.0**power for power in range(-9, 10) for digit in digits)
    return [tick for tick in ticks if low <= tick <= high]


def mark_break(axis: Axis) -> None:
    """Two strokes across a linear axis that does not begin at 0. Its limits must be final."""
    axes, is_x = axis.axes, axis is axis.axes.xaxis
    if axis.get_scale() != "linear" or min(axis.get_view_interval()) <= 0:
        return
    xs, ys = ((0.012, 0.022), (0.0, 0.0)) if is_x else ((0.0, 0.0), (0.03, 0.05))
    stroke = [(-0.5, -1), (0.5, 1)] if is_x else [(-1, -0.5), (1, 0.5)]
    look: dict[str, Any] = {"marker": stroke, "markersize": 5, "markeredgecolor": INK, "markeredgewidth": 0.6}
    axes.figure.add_artist(Line2D(xs, ys, color="white", transform=axes.transAxes, zorder=10, **look))


@dataclass(frozen=True)
class End:
    """The last point of a curve.

    Attributes:
        label: its name. look: keywords of its line. x, y: data coordinates. value: y as text.
        at: x as text if the curve ends before others, because its last cells have no valid repetition.
    """

    label: str
    look: dict[str, Any]
    x: float
    y: float
    value: str
    at: str = ""

    @property
    def text(self) -> str:
        """The name, and below it where the curve ends if others go on."""
        return f"{self.label}\nends at {self.at}" if self.at else self.label


def marked(ends: Sequence[End], unit: str) -> list[End]:
    """The ends of curves over one axis: those before the last of them say where they are."""
    last = max((end.x for end in ends), default=0.0)
    return [end if end.x == last else replace(end, at=unit.format(end.x)) for end in ends]


def strip_in(labels: Sequence[str]) -> float:
    """Width of the strip to the right of the axes that holds these labels."""
    widest = (
        _SAMPLE_IN
        + _SPACE_IN
        + max((text_in(part, _END_PT) for label in labels for part in label.split("\n")), default=0.0)
    )
    return _LEADER_IN + max(widest, text_in("3 curves at 98.3–98.4 %", _END_PT)) + _END_MARGIN_IN


def least_in(labels: Sequence[str]) -> float:
    """Height of axes beside which all these labels fit."""
    return sum(_row_in(label) + _APART_IN for label in labels) + _END_ROW_IN


def label_ends(axes: Axes, ends: Sequence[End], axes_in: tuple[float, float]) -> None:
    """Label the curves on the right of the axes, whose limits must be final.

    Args:
        ends: one per curve. axes_in: width and height of the axes.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    heights_in = [(float(to_axes.transform((end.x, end.y))[1]) * axes_in[1], end) for end in ends]
    groups = _grouped(sorted(heights_in, key=lambda entry: entry[0]))
    heights = [
        sum(_row_in(end.text) for _, end in group) + _END_ROW_IN * (len(group) > 1) + _APART_IN for group in groups
    ]
    centres = [sum(y for y, _ in group) / len(group) for group in groups]
    for group, height, y, centre in zip(groups, heights, centres, spread(centres, heights, axes_in[1]), strict=True):
        if max(float(to_axes.transform((end.x, end.y))[0]) * axes_in[0] for _, end in group) > axes_in[0] - _NEAR_IN:
            _leader(axes, y, centre, axes_in)
        _rows(axes, [end for _, end in reversed(group)], centre + (height - _APART_IN) / 2, axes_in)


def _grouped(ends: Sequence[tuple[float, End]]) -> list[list[tuple[float, End]]]:
    groups: list[list[tuple[float, End]]] = []
    for end in ends:
        if groups and end[0] - groups[-1][-1][0] < _EQUAL_IN and end[1].at == groups[-1][-1][1].at:
            groups[-1].append(end)
        else:
            groups.append([end])
    return groups


def spread(centres: Sequence[float], heights: Sequence[float], room: float) -> list[float]:
    """Centres as near as possible to those wanted (ascending), without overlap, and within `room` if it suffices."""
    below = [sum(heights[:index]) + height / 2 for index, height in enumerate(heights)]
    blocks: list[tuple[float, int]] = []  # (mean shift, how many)
    for centre, offset in zip(centres, below, strict=True):
        shift, count = centre - offset, 1
        while blocks and blocks[-1][0] > shift:
            before, many = blocks.pop()
            shift, count = (before * many + shift * count) / (many + count), many + count
        blocks.append((shift, count))
    shifts = [shift for shift, count in blocks for _ in range(count)]
    return [max(0.0, min(shift, room - sum(heights))) + offset for shift, offset in zip(shifts, below, strict=True)]


def _leader(axes: Axes, y: float, centre: float, axes_in: tuple[float, float]) -> None:
    """A line from the right edge of the axes to a label: one across the data would look like a curve."""
    xs, ys = (axes_in[0], axes_in[0] + 0.04, axes_in[0] + _LEADER_IN - 0.03), (y, y, centre)
    look: dict[str, Any] = {
        "color": FAINT,
        "linewidth": 0.4,
        "clip_on": False,
        "zorder": 1,
        "transform": axes.transAxes,
    }
    axes.add_line(Line2D([x / axes_in[0] for x in xs], [y / axes_in[1] for y in ys], **look))


def _rows(axes: Axes, ends: Sequence[End], top_in: float, axes_in: tuple[float, float]) -> None:
    """A line of a group of equal curves says how many they are; then a row per curve."""
    left_in = axes_in[0] + _LEADER_IN
    box = axes.get_position()
    room_in = (1 - box.x1) / box.width * axes_in[0] - _LEADER_IN - _SAMPLE_IN - _SPACE_IN
    text: dict[str, Any] = {
        "transform": axes.transAxes,
        "fontsize": _END_PT,
        "va": "center",
        "linespacing": 1.0,
    }
    if len(ends) > 1:
        high, low = ends[0].value, ends[-1].value
        at = high if high == low else f"{low.partition(' ')[0]}–{high}"
        y = (top_in - _END_ROW_IN / 2) / axes_in[1]
        axes.text(left_in / axes_in[0], y, f"{len(ends)} curves at {at}", color=FAINT, **text)
        top_in -= _END_ROW_IN
    for end in ends:
        y = (top_in - _row_in(end.text) / 2) / axes_in[1]
        top_in -= _row_in(end.text)
        xs = [(left_in + share * _SAMPLE_IN) / axes_in[0] for share in (0.0, 0.5, 1.0)]
        size = 0.8 * end.look.get("markersize", 0.0)
        look = {**end.look, "markersize": size, "transform": axes.transAxes, "clip_on": False}
        axes.add_line(Line2D(xs, [y, y, y], markevery=[1], **look))
        label = fitting(end.text, _END_PT, room_in)
        axes.text((left_in + _SAMPLE_IN + _SPACE_IN) / axes_in[0], y, label, color=INK, **text)


def _row_in(label: str) -> float:
    return _END_ROW_IN * (1 + label.count("\n"))
