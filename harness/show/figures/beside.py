"""Names beside points: each near its point, none over another name or point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from wanbench.harness.show.figures.layout import text_in
from wanbench.harness.show.figures.style import INK

_FONT_PT, _HEIGHT_IN = 6.0, 0.1
_BACKGROUND: dict[str, Any] = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.4}
_MARKER_IN, _SAME_IN = 0.045, 0.03
_DIRECTIONS = ((1, 0), (-1, 0), (0.6, 1), (-0.6, 1), (0.6, -1), (-0.6, -1), (0, 1), (0, -1))
_DISTANCES_IN = (0.06, 0.1, 0.16, 0.24)

Box = tuple[float, float, float, float]  # left, bottom, right, top in inches


@dataclass(frozen=True)
class Point:
    """A point and its whiskers.

    Attributes:
        label: its name. x, y: data coordinates. low, high: ends of the vertical whisker.
    """

    label: str
    x: float
    y: float
    low: float
    high: float


def places(axes: Axes, points: Sequence[Point], axes_in: tuple[float, float]) -> list[tuple[str, float, float]] | None:
    """(label, left, middle) in inches from the corner of the axes; None if there is no room for a label.

    Points that coincide share a label. The limits of the axes must be final.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    found = []
    for point in points:
        (x, y), (_, low), (_, high) = (
            to_axes.transform((point.x, end)) * axes_in for end in (point.y, point.low, point.high)
        )
        found.append((point.label, float(x), float(y), float(low), float(high)))
    taken: list[Box] = [(x - _MARKER_IN, y - _MARKER_IN, x + _MARKER_IN, y + _MARKER_IN) for _, x, y, _, _ in found]
    whiskers: list[Box] = [(x - 0.01, low, x + 0.01, high) for _, x, _, low, high in found]
    placed = []
    for label, x, y in _merged([(label, x, y) for label, x, y, _, _ in found]):
        others = [(at_x, at_y) for _, at_x, at_y, _, _ in found if abs(at_x - x) + abs(at_y - y) > 2 * _SAME_IN]
        free = [box for box in _candidates(label, x, y, axes_in) if not _hits(box, taken)]
        if not free:
            return None
        best = min(free, key=lambda box: _cost(box, (x, y), others, whiskers))
        taken.append(best)
        placed.append((label, best[0], (best[1] + best[3]) / 2))
    return placed


def _cost(box: Box, own: tuple[float, float], others: Sequence[tuple[float, float]], whiskers: Sequence[Box]) -> float:
    """Low for a label near its point, away from other points, and on no whisker."""
    away = _distance(box, own)
    nearest = min((_distance(box, other) for other in others), default=1.0)
    return away + 0.08 * sum(_hits(box, [each]) for each in whiskers) + max(0.0, 0.1 + away - nearest)


def _distance(box: Box, point: tuple[float, float]) -> float:
    aside = max(box[0] - point[0], point[0] - box[2], 0.0)
    above = max(box[1] - point[1], point[1] - box[3], 0.0)
    return math.hypot(aside, above)


def write(axes: Axes, placed: Sequence[tuple[str, float, float]], axes_in: tuple[float, float]) -> None:
    """Write the labels."""
    for label, left, middle in placed:
        axes.text(
            left / axes_in[0], middle / axes_in[1], label, transform=axes.transAxes, fontsize=_FONT_PT, va="center",
            color=INK, zorder=6, bbox=_BACKGROUND,
        )  # fmt: skip


def _merged(points: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    groups: list[tuple[str, float, float]] = []
    for label, x, y in points:
        for index, (others, at_x, at_y) in enumerate(groups):
            if abs(x - at_x) < _SAME_IN and abs(y - at_y) < _SAME_IN:
                groups[index] = (f"{others}, {label}", at_x, at_y)
                break
        else:
            groups.append((label, x, y))
    return groups


def _candidates(label: str, x: float, y: float, axes_in: tuple[float, float]) -> Iterator[Box]:
    width = text_in(label, _FONT_PT) + 0.02
    for distance in _DISTANCES_IN:
        for right, up in _DIRECTIONS:
            left = x + right * distance - (width if right < 0 else width / 2 if right == 0 else 0)
            bottom = y + up * distance - (_HEIGHT_IN if up < 0 else _HEIGHT_IN / 2 if up == 0 else 0)
            if left >= 0 and bottom >= 0 and left + width <= axes_in[0] + 0.05 and bottom + _HEIGHT_IN <= axes_in[1]:
                yield left, bottom, left + width, bottom + _HEIGHT_IN


def _hits(box: Box, others: Sequence[Box]) -> bool:
    return any(box[0] < right and left < box[2] and box[1] < top and low < box[3] for left, low, right, top in others)
