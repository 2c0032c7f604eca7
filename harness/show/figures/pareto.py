"""Scalability against accuracy: one point per algorithm and setting, one panel per network; up and right is better."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wanbench.harness.analysis.best import REFERENCE, NetworkStandings, Standing
from wanbench.harness.analysis.summary import ALONE
from wanbench.harness.results.rules import ACCURACY_BAND
from wanbench.harness.show.figures.drawing import Point
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels, mark_break
from wanbench.harness.show.figures.names import standing_name
from wanbench.harness.show.figures.style import COLUMN_IN, FAINT, PAGE_IN, Style, point, styles, wanbench_style

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
    standings = {s.algorithm: s for network in shown for s in drawn_points(network)}
    looks = styles([(s.algorithm, s.kind, s.params) for s in standings.values()], provenance)
    title = f"{_finding(shown[-1])}\n{data_set}: {subject}"
    entries = {standing_name(s): Line2D([], [], **point(looks[s.algorithm])) for s in standings.values()}
    sheet = Panels(
        width_in, title, about, entries,
        count=len(shown), across=min(len(shown), 3 if width_in > COLUMN_IN else 1), panel_in=_PANEL_IN, left_in=0.56,
    )  # fmt: skip
    low, high = _limits(shown)
    slowest = min(standing.low for network in shown for standing in drawn_points(network))
    begin = 0.0 if slowest < _HALF else slowest - 0.15 * (1 - slowest)
    for index, network in enumerate(shown):
        axes = sheet.panel(index, network.title if len(shown) > 1 else "")
        _panel(axes, network, looks)
        axes.set(xlim=(begin, 1 + 0.06 * (1 - begin)), ylim=(low, high))
        mark_break(axes.xaxis)
        sheet.label(index, "scalability  T(1) / T(N)", "accuracy against SSGD (points)", fontsize=6.5)
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


def _whisker(standing: Standing) -> tuple[float, float, float]:
    """The change of accuracy in points, of the median, of the minimum and of the maximum."""
    change, accuracy = standing.accuracy_change or 0.0, standing.accuracy or 0.0
    ends = (accuracy, standing.accuracy_low, standing.accuracy_high)
    middle, low, high = (100 * ((accuracy if end is None else end) - accuracy + change) for end in ends)
    return middle, low, high


def drawn_points(network: NetworkStandings) -> list[Standing]:
    """The algorithms that have both a scalability and an accuracy to compare."""
    return [s for s in network.standings if s.accuracy_change is not None and not math.isnan(s.scalability)]


def _limits(networks: Sequence[NetworkStandings]) -> tuple[float, float]:
    changes = [end for network in networks for standing in drawn_points(network) for end in _whisker(standing)]
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
        x, (y, low, high), look = standing.scalability, _whisker(standing), looks[standing.algorithm]
        axes.plot([x], [y], clip_on=False, **point(look))
        if standing.repeats > 1:
            axes.hlines(y, standing.low, standing.high, color=look.colour, linewidth=0.7)
            axes.vlines(x, low, high, color=look.colour, linewidth=0.7)
        note(axes, x, y, f"{standing.algorithm}, {network.title}: scalability {x:.3f}, accuracy {y:+.2f} points")


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
