"""Scalability against accuracy: one point per algorithm and setting, one panel per network; up and right is better."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wanbench.harness.analysis.best import REFERENCE, NetworkStandings, Standing
from wanbench.harness.analysis.summary import ALONE
from wanbench.harness.results.rules import ACCURACY_BAND
from wanbench.harness.show.figures.drawing import Point
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels, mark_break, text_in
from wanbench.harness.show.figures.names import standing_name
from wanbench.harness.show.figures.style import COLUMN_IN, FAINT, INK, PAGE_IN, Style, point, styles, wanbench_style

_PANEL_IN = 1.7
_HALF = 0.5  # an axis of scalabilities above it does not begin at 0
_FRONT: dict[str, Any] = {"color": FAINT, "linewidth": 0.6, "linestyle": (0, (2, 1.5))}


@wanbench_style()
def pareto(
    networks: Sequence[NetworkStandings],
    data_set: str,
    subject: str,
    about: str,
    provenance: str,
    width_in: float = PAGE_IN,
) -> Figure:
    """Every network of a run that trains a model.

    Args:
        networks: from `harness.analysis.best.networks`. data_set: of the accuracy.
        subject: below the title. about: the caption: workload, testbed, repetitions.
        provenance: "emulated", "simulated" or both.
    """
    shown = [network for network in networks if drawn_points(network)]
    standings = {s.algorithm: s for network in shown for s in network.standings}
    looks = styles([(s.algorithm, s.kind, s.params) for s in standings.values()], provenance)
    title = f"{_finding(shown[-1])}\n{data_set}: {subject}"
    entries = {standing_name(s): looks[s.algorithm] for network in shown for s in drawn_points(network)}
    # Where there are too many points for names beside them, there is a legend.
    figure = _sheet(shown, looks, {}, title, about, width_in) or _sheet(shown, looks, entries, title, about, width_in)
    assert figure is not None
    return figure


def _sheet(
    shown: Sequence[NetworkStandings],
    looks: dict[str, Style],
    legend: dict[str, Style],
    title: str,
    about: str,
    width_in: float,
) -> Figure | None:
    """The figure; None if there is no legend, and no room for a name beside every point."""
    across = min(len(shown), 3 if width_in > COLUMN_IN else 1)
    low, high = _limits(shown)
    slowest = min(standing.low for network in shown for standing in drawn_points(network))
    begin = 0.0 if slowest < _HALF else slowest - 0.15 * (1 - slowest)
    entries: dict[str, Artist] = {label: Line2D([], [], **point(look)) for label, look in legend.items()}
    sheet = Panels(width_in, title, about, entries, count=len(shown), across=across, panel_in=_PANEL_IN, left_in=0.56)
    for index, network in enumerate(shown):
        axes = sheet.panel(index, network.title if len(shown) > 1 else "")
        _panel(axes, network, looks)
        axes.set_xlim(begin, 1 + 0.06 * (1 - begin))
        mark_break(axes.xaxis)
        axes.set_ylim(low, high)
        sheet.label(index, "scalability  T(1) / T(N)", "accuracy against SSGD (points)", fontsize=6.5)
        if not legend:
            size = (sheet.panel_width_in, _PANEL_IN)
            placed = name_places(axes, [_place_of(s) for s in drawn_points(network)], size)
            if placed is None:
                return None
            _write(axes, placed, size)
    return sheet.figure


def _finding(network: NetworkStandings) -> str:
    """ "At 500 ms, DTS d20 p4 is 21 times as fast as SSGD; accuracy -1.4 to +2.1 points", the 95 % interval.

    It is the fastest on the front that is accurate.
    """
    reference = next((s for s in network.standings if s.kind == REFERENCE), None)
    best = next((s for s in reversed(pareto_front(drawn_points(network))) if s.accurate and s.kind != ALONE), reference)
    if best is None or reference is None or best.kind == REFERENCE:
        return "Speed and accuracy"
    times, name = reference.step_time_s / best.step_time_s, standing_name(best)
    where = f"At {network.title.removeprefix('RTT ')}, " if network.where else ""
    return f"{where}{name} is {times:.2g} times as fast as SSGD; accuracy {_change(best)} points"


def _change(standing: Standing) -> str:
    paired = standing.paired
    if paired is None or not paired.bounded:
        return standing.change_text
    return f"{100 * paired.low:+z.1f} to {100 * paired.high:+z.1f}"


def _place_of(standing: Standing) -> Place:
    change, accuracy = standing.accuracy_change or 0.0, standing.accuracy or 0.0
    low, high = (
        100 * ((accuracy if end is None else end) - accuracy + change)
        for end in (standing.accuracy_low, standing.accuracy_high)
    )
    return Place(standing_name(standing), standing.scalability, 100 * change, low, high)


def drawn_points(network: NetworkStandings) -> list[Standing]:
    """The algorithms that have both a scalability and an accuracy to compare."""
    return [s for s in network.standings if s.accuracy_change is not None and not math.isnan(s.scalability)]


def _limits(networks: Sequence[NetworkStandings]) -> tuple[float, float]:
    places = [_place_of(standing) for network in networks for standing in drawn_points(network)]
    changes = [end for place in places for end in (place.low, place.high)]
    margin = 0.15 * max(max(changes) - min(changes), 1.0)
    return min(*changes, 0.0) - 2 * margin, max(*changes, 0.0) + margin


def _panel(axes: Axes, network: NetworkStandings, looks: dict[str, Style]) -> None:
    drawn = drawn_points(network)
    front = pareto_front(drawn)
    axes.axhspan(-100 * ACCURACY_BAND, 0, color=FAINT, alpha=0.10, linewidth=0, zorder=0)
    axes.plot(
        [s.scalability for s in front], [100 * (s.accuracy_change or 0.0) for s in front],
        zorder=1, **_FRONT,
    )  # fmt: skip
    for standing in drawn:
        place, look = _place_of(standing), looks[standing.algorithm]
        axes.plot([place.x], [place.y], clip_on=False, **point(look))
        if standing.repeats > 1:
            axes.hlines(place.y, standing.low, standing.high, color=look.colour, linewidth=0.7)
            axes.vlines(place.x, place.low, place.high, color=look.colour, linewidth=0.7)
        text = f"{standing.algorithm}, {network.title}: scalability {place.x:.3f}, accuracy {place.y:+.2f} points"
        note(axes, place.x, place.y, text)


def pareto_front(standings: Sequence[Standing]) -> list[Standing]:
    """The algorithms to which no other one is preferable, slowest first.

    One that is more accurate is preferable unless all its repetitions are slower; of equally accurate ones, the faster.
    """
    merits = [(s.accuracy_change or 0.0, s.scalability, s.high) for s in standings]
    front = [
        s
        for s, merit in zip(standings, merits, strict=True)
        if not any(other[:2] > merit[:2] and other[2] >= s.low for other in merits)
    ]
    return sorted(front, key=lambda s: s.scalability)


def pareto_points(networks: Sequence[NetworkStandings]) -> list[Point]:
    """One point per algorithm and network; accuracies are shares, changes are percentage points against ssgd."""
    return [
        {
            **network.where,
            "algorithm": standing.algorithm,
            "repetitions": standing.repeats,
            "scalability": standing.scalability,
            "scalability_min": standing.low,
            "scalability_max": standing.high,
            "accuracy": standing.accuracy,
            "accuracy_min": standing.accuracy_low,
            "accuracy_max": standing.accuracy_high,
            "accuracy_change_points": 100 * (standing.accuracy_change or 0.0),
            "dominated": "no" if standing in front else "yes",
        }
        for network in networks
        for drawn in [drawn_points(network)]
        for front in [pareto_front(drawn)]
        for standing in drawn
    ]


# Names beside points: each near its point, none over another name or point.

_FONT_PT, _HEIGHT_IN = 6.0, 0.1
_BACKGROUND: dict[str, Any] = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.4}
_MARKER_IN, _SAME_IN = 0.045, 0.03
_DIRECTIONS = ((1, 0), (-1, 0), (0.6, 1), (-0.6, 1), (0.6, -1), (-0.6, -1), (0, 1), (0, -1))
_DISTANCES_IN = (0.06, 0.1, 0.16, 0.24)

Box = tuple[float, float, float, float]  # left, bottom, right, top in inches


@dataclass(frozen=True)
class Place:
    """A point and its whiskers.

    Attributes:
        label: its name. x, y: data coordinates. low, high: ends of the vertical whisker.
    """

    label: str
    x: float
    y: float
    low: float
    high: float


def name_places(
    axes: Axes, points: Sequence[Place], axes_in: tuple[float, float]
) -> list[tuple[str, float, float]] | None:
    """(label, left, middle) in inches from the corner of the axes; None if there is no room for a label.

    Points that coincide share a label. The limits of the axes must be final.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    drawn_in = []
    for drawn in points:
        (x, y), (_, low), (_, high) = (
            to_axes.transform((drawn.x, end)) * axes_in for end in (drawn.y, drawn.low, drawn.high)
        )
        drawn_in.append((drawn.label, float(x), float(y), float(low), float(high)))
    taken: list[Box] = [(x - _MARKER_IN, y - _MARKER_IN, x + _MARKER_IN, y + _MARKER_IN) for _, x, y, _, _ in drawn_in]
    whiskers: list[Box] = [(x - 0.01, low, x + 0.01, high) for _, x, _, low, high in drawn_in]
    placed = []
    for label, x, y in _merged([(label, x, y) for label, x, y, _, _ in drawn_in]):
        neighbours = [(at_x, at_y) for _, at_x, at_y, _, _ in drawn_in if abs(at_x - x) + abs(at_y - y) > 2 * _SAME_IN]
        free = [box for box in _candidates(label, x, y, axes_in) if not _hits(box, taken)]
        if not free:
            return None
        best = min(free, key=lambda box: _cost(box, (x, y), neighbours, whiskers))
        taken.append(best)
        placed.append((label, best[0], (best[1] + best[3]) / 2))
    return placed


def _cost(
    box: Box, own: tuple[float, float], neighbours: Sequence[tuple[float, float]], whiskers: Sequence[Box]
) -> float:
    """Low for a label near its point, away from other points, and on no whisker."""
    away = _distance(box, own)
    nearest = min((_distance(box, neighbour) for neighbour in neighbours), default=1.0)
    return away + 0.08 * sum(_hits(box, [whisker]) for whisker in whiskers) + max(0.0, 0.1 + away - nearest)


def _distance(box: Box, point: tuple[float, float]) -> float:
    aside = max(box[0] - point[0], point[0] - box[2], 0.0)
    above = max(box[1] - point[1], point[1] - box[3], 0.0)
    return math.hypot(aside, above)


def _write(axes: Axes, placed: Sequence[tuple[str, float, float]], axes_in: tuple[float, float]) -> None:
    """Write the labels."""
    for label, left_in, middle in placed:
        axes.text(
            left_in / axes_in[0], middle / axes_in[1], label, transform=axes.transAxes, fontsize=_FONT_PT, va="center",
            color=INK, zorder=6, bbox=_BACKGROUND,
        )  # fmt: skip


def _merged(points: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    groups: list[tuple[str, float, float]] = []
    for label, x, y in points:
        for index, (labels, at_x, at_y) in enumerate(groups):
            if abs(x - at_x) < _SAME_IN and abs(y - at_y) < _SAME_IN:
                groups[index] = (f"{labels}, {label}", at_x, at_y)
                break
        else:
            groups.append((label, x, y))
    return groups


def _candidates(label: str, x: float, y: float, axes_in: tuple[float, float]) -> Iterator[Box]:
    width = text_in(label, _FONT_PT) + 0.02
    for distance in _DISTANCES_IN:
        for right, up in _DIRECTIONS:
            left_in = x + right * distance - (width if right < 0 else width / 2 if right == 0 else 0)
            bottom = y + up * distance - (_HEIGHT_IN if up < 0 else _HEIGHT_IN / 2 if up == 0 else 0)
            if (
                left_in >= 0
                and bottom >= 0
                and left_in + width <= axes_in[0] + 0.05
                and bottom + _HEIGHT_IN <= axes_in[1]
            ):
                yield left_in, bottom, left_in + width, bottom + _HEIGHT_IN


def _hits(box: Box, boxes: Sequence[Box]) -> bool:
    return any(box[0] < right and left < box[2] and box[1] < top and low < box[3] for left, low, right, top in boxes)
