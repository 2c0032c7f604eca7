"""Scalability against accuracy: one point an algorithm and setting, one panel a network; up and right is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wanbench.harness.analysis.best import NetworkStandings, Standing
from wanbench.harness.analysis.summary import AnalysisError, axis_value
from wanbench.harness.results.verify import ACCURACY_BAND
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels
from wanbench.harness.show.figures.style import COLUMN_IN, FAINT, PAGE_IN, Style, point, styles, wanbench_style

_PANEL_IN = 1.55
_FRONT: dict[str, Any] = {"color": FAINT, "linewidth": 0.6, "linestyle": (0, (2, 1.5))}


@wanbench_style()
def pareto(found: Sequence[NetworkStandings], data_set: str, about: str, width_in: float = PAGE_IN) -> Figure:
    """Every network of a run in which something is learned.

    Args:
        found: from `harness.analysis.best.networks`. data_set: what the accuracy is of; the axis says so.
        about: the caption: workload, testbed, repeats.

    Raises:
        AnalysisError: no algorithm has both a scalability and an accuracy beside that of ssgd.
    """
    shown = [network for network in found if any(_has_point(s) for s in network.standings)]
    if not shown:
        raise AnalysisError("no accuracy beside that of ssgd on the same network; there is no trade-off to draw")
    standings = {s.algorithm: s for network in shown for s in network.standings}
    looks = styles([(s.algorithm, s.kind, s.params) for s in standings.values()])
    across = min(len(shown), 3 if width_in > COLUMN_IN else 1)
    low, high = _limits(shown)
    entries = {label: Line2D([], [], **point(look)) for label, look in looks.items()}
    entries["not dominated"] = Line2D([], [], **_FRONT)
    heading = f"Speed and what it costs: {data_set}"
    sheet = Panels(width_in, heading, about, entries, count=len(shown), across=across, panel_in=_PANEL_IN, left_in=0.62)
    for index, network in enumerate(shown):
        axes = sheet.panel(index, _where(network))
        _panel(axes, network, looks)
        axes.set_xlim(0, 1.06)
        axes.set_ylim(low, high)
        y = f"{data_set}:\naccuracy, points against ssgd"
        sheet.label(index, "scalability  T(1) / T(N)", y, fontsize=7)
    return sheet.figure


def _has_point(standing: Standing) -> bool:
    return standing.accuracy_change is not None and not math.isnan(standing.scalability)


def _limits(found: Sequence[NetworkStandings]) -> tuple[float, float]:
    changes = [
        100 * (s.accuracy_change + end - s.accuracy)
        for n in found
        for s in n.standings
        for end in (s.accuracy_low, s.accuracy_high)
        if s.accuracy_change is not None and s.accuracy is not None and end is not None
    ]
    margin = 0.12 * max(max(changes) - min(changes), 2.0)
    return min(*changes, -100 * ACCURACY_BAND) - margin, max(*changes, 0.0) + margin


def _panel(axes: Axes, network: NetworkStandings, looks: dict[str, Style]) -> None:
    drawn = [s for s in network.standings if _has_point(s)]
    front = pareto_front(drawn)
    axes.axhspan(-100 * ACCURACY_BAND, 0, color=FAINT, alpha=0.10, linewidth=0, zorder=0)
    axes.plot(
        [s.scalability for s in front], [100 * (s.accuracy_change or 0.0) for s in front],
        zorder=1, **_FRONT,
    )  # fmt: skip
    for standing in drawn:
        y = 100 * (standing.accuracy_change or 0.0)
        look = looks[standing.algorithm]
        axes.plot([standing.scalability], [y], clip_on=False, zorder=3 if look.fill == "full" else 4, **point(look))
        if standing.repeats > 1:
            axes.hlines(y, standing.low, standing.high, color=look.colour, linewidth=0.7)
            reference = (standing.accuracy or 0.0) - (standing.accuracy_change or 0.0)
            ends = [100 * ((end or 0.0) - reference) for end in (standing.accuracy_low, standing.accuracy_high)]
            axes.vlines(standing.scalability, ends[0], ends[1], color=look.colour, linewidth=0.7)
        said = (
            f"{standing.algorithm}, {_where(network)}: scalability {standing.scalability:.3f}, accuracy {y:+.2f} points"
        )
        note(axes, standing.scalability, y, said)


def pareto_front(standings: Sequence[Standing]) -> list[Standing]:
    """Those that no other beats in scalability without being less accurate, slowest first."""
    front = [
        s
        for s in standings
        if not any(
            other.scalability >= s.scalability
            and (other.accuracy_change or 0.0) >= (s.accuracy_change or 0.0)
            and (other.scalability, other.accuracy_change) != (s.scalability, s.accuracy_change)
            for other in standings
        )
    ]
    return sorted(front, key=lambda s: s.scalability)


def _where(network: NetworkStandings) -> str:
    return ", ".join(axis_value(axis, value) for axis, value in network.where.items()) or "one network"
