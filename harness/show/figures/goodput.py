"""Goodput against the time between failures: what is left of the throughput of machines that fail and return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbench.harness.analysis.summary import Pivot
from wanbench.harness.show.figures.caption import caption, titled
from wanbench.harness.show.figures.ends import End, label_ends, least_in, marked, strip_in
from wanbench.harness.show.figures.finding import names_of, percent
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Sheet
from wanbench.harness.show.figures.style import PAGE_IN, Style, line, looks_of, wanbench_style

_MARGIN = 1.25  # of the logarithmic axis, on both sides
Line = Mapping[str, Any]


@wanbench_style()
def goodput_by_mtbf(pivot: Pivot, run_name: str, width_in: float = PAGE_IN, progress: str | None = None) -> Figure:
    """The figure of one pivot whose column axis is `mtbf_s`.

    Args:
        pivot: median, minimum and maximum of every cell; those without losses are the unit, and are not drawn.
        run_name, width_in, progress: as for `scalability_by_rtt`.
    """
    looks, names = looks_of(pivot), names_of(pivot)
    points = {label: _points(pivot, label) for label in looks}
    own = [
        End(names[label], line(looks[label]), *found[-1][:2], f"{found[-1][1]:.2f}")
        for label, found in points.items()
        if found
    ]
    ends = marked(own, "{:g} s")
    labels = [end.text for end in ends]
    text = caption(pivot, run_name, "1: the same algorithm without failures", progress)
    sheet = Sheet(width_in, max(2.7, least_in(labels)), titled(pivot, left(pivot)), text, {}, right_in=strip_in(labels))
    axes = sheet.axes()
    axes.set_xscale("log")
    known = sorted({x for found in points.values() for x, *_ in found})
    axes.set_xlim(known[0] / _MARGIN, known[-1] * _MARGIN)
    axes.set_xticks(known, [f"{x:g}" for x in known])
    axes.set_xticks([], minor=True)
    for label, found in points.items():
        _curve(axes, label, found, looks[label])
    axes.set_ylim(bottom=0)
    axes.axhline(1, color="0.7", linewidth=0.6, zorder=1)
    axes.set_ylabel("goodput")
    axes.set_xlabel("mean time between failures of a machine (s)")
    label_ends(axes, ends, sheet.axes_in)
    return sheet.figure


def left(pivot: Pivot) -> str | None:
    """ "At a failure every 200 s a machine, SSGD keeps 74 % of its throughput; DTS 81 %"; None if nothing is known."""
    points = {label: _points(pivot, label) for label in pivot.algorithms}
    known = {label: found[0] for label, found in points.items() if found}
    if not known:
        return None
    often = min(x for x, *_ in known.values())
    here = {label: value for label, (x, value, *_) in known.items() if x == often}
    names = names_of(pivot)
    least, most = min(here, key=lambda label: here[label]), max(here, key=lambda label: here[label])
    text = f"With a failure every {often:g} s a machine, {names[least]} keeps {percent(here[least])} of its throughput"
    return text if least == most else f"{text}; {names[most]} {percent(here[most])}"


def _points(pivot: Pivot, label: str) -> list[tuple[float, float, float, float]]:
    """(MTBF in s, goodput, minimum, maximum) of the cells of an algorithm that have one, by MTBF."""
    lines = (each for (name, _), each in pivot.lines.items() if name == label)
    return sorted(
        (float(each["mtbf_s"]), float(each["goodput"]), float(each["goodput_min"]), float(each["goodput_max"]))
        for each in lines
        if not math.isnan(each["goodput"])
    )


def _curve(axes: Axes, label: str, found: list[tuple[float, float, float, float]], look: Style) -> None:
    if not found:
        return
    x, middle, low, high = (list(values) for values in zip(*found, strict=True))
    axes.plot(x, middle, clip_on=False, zorder=4 if look.fill == "full" else 5, **line(look))
    bars = [[m - a for m, a in zip(middle, low, strict=True)], [b - m for m, b in zip(middle, high, strict=True)]]
    axes.errorbar(x, middle, yerr=bars, fmt="none", ecolor=look.colour, elinewidth=0.7, capsize=1.6, zorder=3)
    for mtbf, value, *_ in found:
        note(axes, mtbf, value, f"{label}, a failure every {mtbf:g} s: goodput {value:.3f}")
