"""Names at the ends of curves: each beside its curve, with a sample of its line, and none over another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from wanbench.harness.show.figures.layout import fitting, text_in
from wanbench.harness.show.figures.style import FAINT, INK

ROW_IN = 0.125
_FONT_PT = 6.5
_LEADER_IN, _SAMPLE_IN, _SPACE_IN, _MARGIN_IN = 0.14, 0.24, 0.05, 0.05
_APART_IN = 0.05  # between labels that do not belong together
_EQUAL_IN = 0.02  # curves that end closer than this, about a line's width, share a label


@dataclass(frozen=True)
class End:
    """The last point of a curve.

    Attributes:
        label: its name. look: keywords of its line. x, y: data coordinates. value: y as text.
        aside_in: how far the curve is drawn to the right of its coordinates.
        at: x as text if the curve ends before others, because its last cells have no valid repetition.
    """

    label: str
    look: dict[str, Any]
    x: float
    y: float
    value: str
    aside_in: float = 0.0
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
        + max((text_in(part, _FONT_PT) for label in labels for part in label.split("\n")), default=0.0)
    )
    return _LEADER_IN + max(widest, text_in("3 curves near 98.3 %", _FONT_PT)) + _MARGIN_IN


def least_in(labels: Sequence[str]) -> float:
    """Height of axes beside which all these labels fit."""
    return sum(_row_in(label) + _APART_IN for label in labels) + ROW_IN


def label_ends(axes: Axes, ends: Sequence[End], axes_in: tuple[float, float]) -> None:
    """Label the curves on the right of the axes, whose limits must be final.

    Args:
        ends: one per curve. axes_in: width and height of the axes.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    places = [(float(to_axes.transform((end.x, end.y))[1]) * axes_in[1], end) for end in ends]
    groups = _grouped(sorted(places, key=lambda place: place[0]))
    heights = [sum(_row_in(end.text) for _, end in group) + ROW_IN * (len(group) > 1) + _APART_IN for group in groups]
    wanted = [sum(y for y, _ in group) / len(group) for group in groups]
    for group, height, y, centre in zip(groups, heights, wanted, spread(wanted, heights, axes_in[1]), strict=True):
        start = max(float(to_axes.transform((end.x, end.y))[0]) * axes_in[0] + end.aside_in for _, end in group)
        _leader(axes, (start, y), (axes_in[0] + _LEADER_IN, centre), axes_in)
        _rows(axes, [end for _, end in reversed(group)], centre + (height - _APART_IN) / 2, axes_in)


def _grouped(places: Sequence[tuple[float, End]]) -> list[list[tuple[float, End]]]:
    groups: list[list[tuple[float, End]]] = []
    for place in places:
        if groups and place[0] - groups[-1][0][0] < _EQUAL_IN and place[1].at == groups[-1][0][1].at:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def spread(wanted: Sequence[float], heights: Sequence[float], room: float) -> list[float]:
    """Centres as near as possible to those wanted (ascending), without overlap, and within `room` if it suffices."""
    below = [sum(heights[:index]) + height / 2 for index, height in enumerate(heights)]
    blocks: list[tuple[float, int]] = []  # (mean shift, how many)
    for centre, offset in zip(wanted, below, strict=True):
        shift, count = centre - offset, 1
        while blocks and blocks[-1][0] > shift:
            before, many = blocks.pop()
            shift, count = (before * many + shift * count) / (many + count), many + count
        blocks.append((shift, count))
    shifts = [shift for shift, count in blocks for _ in range(count)]
    return [max(0.0, min(shift, room - sum(heights))) + offset for shift, offset in zip(shifts, below, strict=True)]


def _leader(axes: Axes, start: tuple[float, float], end: tuple[float, float], axes_in: tuple[float, float]) -> None:
    bend = max(start[0], axes_in[0]) + 0.04
    xs, ys = (start[0], bend, end[0] - 0.03), (start[1], start[1], end[1])
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
    left = axes_in[0] + _LEADER_IN
    place = axes.get_position()
    room_in = (1 - place.x1) / place.width * axes_in[0] - _LEADER_IN - _SAMPLE_IN - _SPACE_IN
    text: dict[str, Any] = {
        "transform": axes.transAxes,
        "fontsize": _FONT_PT,
        "va": "center",
        "linespacing": 1.0,
    }
    if len(ends) > 1:
        values = list(dict.fromkeys(end.value for end in ends))
        at = f"at {values[0]}" if len(values) == 1 else f"near {values[len(values) // 2]}"
        y = (top_in - ROW_IN / 2) / axes_in[1]
        axes.text(left / axes_in[0], y, f"{len(ends)} curves {at}", color=FAINT, **text)
        top_in -= ROW_IN
    for end in ends:
        y = (top_in - _row_in(end.text) / 2) / axes_in[1]
        top_in -= _row_in(end.text)
        xs = [(left + share * _SAMPLE_IN) / axes_in[0] for share in (0.0, 0.5, 1.0)]
        size = 0.8 * end.look.get("markersize", 0.0)
        look = {**end.look, "markersize": size, "transform": axes.transAxes, "clip_on": False}
        axes.add_line(Line2D(xs, [y, y, y], markevery=[1], **look))
        label = fitting(end.text, _FONT_PT, room_in)
        axes.text((left + _SAMPLE_IN + _SPACE_IN) / axes_in[0], y, label, color=INK, **text)


def _row_in(label: str) -> float:
    return ROW_IN * (1 + label.count("\n"))
