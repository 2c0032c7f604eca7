"""Curves of a measure, one for each algorithm: scalability against RTT, with the step-time law as a thin line, and
goodput against the time between failures."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wanbench.harness.analysis.axes import absent
from wanbench.harness.analysis.best import REFERENCE
from wanbench.harness.analysis.summary import Beside, Line, Pivot
from wanbench.harness.results.scalability import formula
from wanbench.harness.show.figures.caption import caption, column_of, has_law, names_of, speed, titled, unclear
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import End, Sheet, label_ends, least_in, marked, strip_in
from wanbench.harness.show.figures.names import line_name
from wanbench.harness.show.figures.style import (
    COLUMN_IN,
    FAINT,
    INK,
    PAGE_IN,
    SIMULATED,
    Style,
    as_line,
    looks_of,
    wanbench_style,
)
from wanbench.harness.text import percent

_COLUMN: dict[str, Any] = {"color": FAINT, "linewidth": 0.6, "linestyle": (0, (1, 2)), "zorder": 1}
_LABEL_GAP_IN = 0.27
_APART = 0.03  # of two runs of an algorithm, about the size of a marker
_MARGIN = 1.25  # of the logarithmic axis of failures, on both sides


@wanbench_style()
def scalability_by_rtt(pivot: Pivot, run_name: str, width_in: float = PAGE_IN) -> Figure:
    """The figure of one pivot whose column axis is `rtt_ms`.

    Args:
        pivot: median, minimum and maximum of every cell; points without a valid repetition are left out.
        run_name: shown at the caption's beginning.
        width_in: `PAGE_IN` or `COLUMN_IN`.
    """
    looks, names = looks_of(pivot), names_of(pivot)
    if width_in <= COLUMN_IN:
        names = {label: name.replace(" + ", "\n+ ") for label, name in names.items()}
    text = caption(pivot, run_name, "thin lines: step-time law" if has_law(pivot) else None)
    ends = marked(_ends(pivot, "scalability", looks, names), "{:g} ms")
    labels = [end.text for end in ends]
    height_in = max(2.7 if width_in > COLUMN_IN else 2.1, least_in(labels))
    sheet = Sheet(width_in, height_in, titled(pivot, speed(pivot)), text, _entries(pivot), right_in=strip_in(labels))
    axes = sheet.axes()
    _scale(axes, [float(rtt) for rtt in pivot.columns], sheet.axes_in[0])
    for label, look in looks.items():
        _law(axes, [pivot.lines[label, rtt] for rtt in pivot.columns if (label, rtt) in pivot.lines], look)
        for rtt, value in _curve(axes, pivot, label, "scalability", pivot.columns, look):
            law = pivot.lines[label, rtt]["predicted_scalability"]
            text = f"{label}, RTT {rtt:g} ms: scalability {value:.3f}"
            note(axes, rtt, value, text + (f", law {law:.3f}" if law > 0 else ""))
        if pivot.beside:
            _beside(axes, pivot.beside, label, look)
    axes.set_ylim(0, 1.06)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_ylabel(f"scalability  {formula(pivot.lines.values())}")
    axes.set_xlabel("round-trip time (ms)")
    if (column := column_of(pivot)) is not None:
        axes.axvline(column, **_COLUMN)
    label_ends(axes, ends, sheet.axes_in)
    return sheet.figure


@wanbench_style()
def goodput_by_mtbf(pivot: Pivot, run_name: str, width_in: float = PAGE_IN) -> Figure:
    """The figure of one pivot whose column axis is `mtbf_s`: what is left of the throughput of machines that fail.

    Args:
        pivot: median, minimum and maximum of every cell; those without losses are the unit, and are not drawn.
        run_name, width_in: as for `scalability_by_rtt`.
    """
    looks = looks_of(pivot)
    ends = marked(_ends(pivot, "goodput", looks, names_of(pivot)), "{:g} s")
    labels = [end.text for end in ends]
    text = caption(pivot, run_name, "1: the same algorithm without failures")
    sheet = Sheet(
        width_in, max(2.7, least_in(labels)), titled(pivot, _kept(pivot)), text, {}, right_in=strip_in(labels)
    )
    axes = sheet.axes()
    axes.set_xscale("log")
    times = sorted({x for label in looks for x, _ in _points(pivot.lines, label, "goodput")})
    axes.set_xlim(times[0] / _MARGIN, times[-1] * _MARGIN)
    axes.set_xticks(times, [f"{x:g}" for x in times])
    axes.set_xticks([], minor=True)
    for label, look in looks.items():
        for mtbf, value in _curve(axes, pivot, label, "goodput", times, look):
            note(axes, mtbf, value, f"{label}, a failure every {mtbf:g} s: goodput {value:.3f}")
    axes.set_ylim(bottom=0)
    axes.axhline(1, color="0.7", linewidth=0.6, zorder=1)
    axes.set_ylabel("goodput")
    axes.set_xlabel("mean time between failures of a machine (s)")
    label_ends(axes, ends, sheet.axes_in)
    return sheet.figure


def _kept(pivot: Pivot) -> str | None:
    """ "If each machine fails every 200 s, SSGD keeps 74 % of its throughput; DTS 81 %"; None if not known."""
    known = [line for line in pivot.lines.values() if not math.isnan(line["goodput"]) and not absent(line["mtbf_s"])]
    often = min((line["mtbf_s"] for line in known), default=math.nan)
    here = sorted((line for line in known if line["mtbf_s"] == often), key=lambda line: line["goodput"])
    if not here:
        return None
    low, high = next((line for line in here if line["kind"] == REFERENCE), here[0]), here[-1]
    kept = f"{line_name(low)} keeps {percent(low['goodput'])} of its throughput"
    more = f"; {line_name(high)} {percent(high['goodput'])}{unclear(low, high, 'goodput')}"
    return f"If each machine fails every {often:g} s, {kept}" + ("" if low is high else more)


def _points(lines: Mapping[tuple[str, Any], Line], label: str, measure: str) -> list[tuple[float, float]]:
    """(x, value) of the cells of an algorithm that have one, by x."""
    points = [(x, float(cell[measure])) for (name, x), cell in lines.items() if name == label and not absent(x)]
    return sorted((float(x), value) for x, value in points if not math.isnan(value))


def _curve(
    axes: Axes, pivot: Pivot, label: str, measure: str, columns: Sequence[Any], look: Style
) -> list[tuple[Any, float]]:
    """The curve of medians, interrupted at a cell without a valid repetition; returns what can be pointed at."""
    cells = [pivot.lines.get((label, x), {}) for x in columns]
    middle, low, high = (
        np.array([cell.get(name, math.nan) for cell in cells], dtype=float)
        for name in (measure, f"{measure}_min", f"{measure}_max")
    )
    axes.plot(columns, middle, clip_on=False, **as_line(look))
    if any(cell.get("repeats", 0) > 1 for cell in cells):
        axes.errorbar(
            columns, middle, yerr=[middle - low, high - middle], fmt="none", ecolor=look.colour,
            elinewidth=0.7, capsize=1.6, capthick=0.7 if measure == "scalability" else None, zorder=3,
        )  # fmt: skip
    return [(x, value) for x, value, cell in zip(columns, middle, cells, strict=True) if cell.get("repeats")]


def _ends(pivot: Pivot, measure: str, looks: Mapping[str, Style], names: Mapping[str, str]) -> list[End]:
    """The last valid point of every curve, and of a curve of the other run if it ends elsewhere."""
    ends = []
    for label, look in looks.items():
        own = _points(pivot.lines, label, measure)
        if own:
            ends.append(End(names[label], as_line(look), *own[-1], f"{own[-1][1]:.2f}"))
        if pivot.beside is None:
            continue
        other = _points(pivot.beside.lines, label, measure)
        if other and not (own and own[-1][0] == other[-1][0] and abs(own[-1][1] - other[-1][1]) < _APART):
            thin = _thin(look.colour, pivot.beside)
            ends.append(End(_other(names[label], pivot), thin, *other[-1], f"{other[-1][1]:.2f}"))
    return ends


def _other(name: str, pivot: Pivot) -> str:
    """The name of a curve of the other run: "SSGD, simulated"; if both runs are, "SSGD, tuned hosts": a condition that
    only the other run has, or its name."""
    run = pivot.beside
    assert run is not None
    return f"{name}, {run.network if run.network != pivot.network else (run.run, *run.different)[-1]}"


def _entries(pivot: Pivot) -> dict[str, Artist]:
    """A legend that tells the two runs apart; nothing for a single run."""
    other = pivot.beside
    if other is None:
        return {}
    own = as_line(Style(INK, "o", True, pivot.network == "simulated"))
    looks = {pivot.network: own, f"{other.run}, {other.network}": _thin(INK, other)}
    return {name: Line2D([], [], **look) for name, look in looks.items()}


def _thin(colour: str, run: Beside) -> dict[str, Any]:
    """A curve of the other run."""
    look: dict[str, Any] = {"color": colour, "linewidth": 0.8}
    return look | ({"linestyle": SIMULATED, "marker": ""} if run.network == "simulated" else {"marker": "."})


def _beside(axes: Axes, run: Beside, label: str, look: Style) -> None:
    """The curve of the other run, if it has one."""
    points = _points(run.lines, label, "scalability")
    if points:
        axes.plot(*zip(*points, strict=True), clip_on=False, zorder=6, **_thin(look.colour, run))
    for rtt, value in points:
        note(axes, rtt, value, f"{label}, {run.run}, RTT {rtt:g} ms: scalability {value:.3f}")


def _scale(axes: Axes, rtts: Sequence[float], width_in: float) -> None:
    """Zero and a second on one axis: linear up to the smallest RTT, then logarithmic; ticks at the RTTs of the run."""
    positive = [rtt for rtt in rtts if rtt > 0]
    if positive and max(positive) > 8 * min(positive):
        axes.set_xscale("symlog", linthresh=min(positive), linscale=0.6)
    transform = axes.xaxis.get_transform()
    low, high = transform.transform([min(rtts), max(rtts)])
    margin = 0.03 * (high - low) or 0.5
    axes.set_xlim(*transform.inverted().transform([low - margin, high + margin]))
    kept: list[float] = []
    per_in = (high - low + 2 * margin) / width_in
    for rtt in sorted(rtts):
        here = float(transform.transform([rtt])[0])
        if not kept or here - float(transform.transform([kept[-1]])[0]) >= _LABEL_GAP_IN * per_in:
            kept.append(rtt)
    axes.set_xticks(kept, [f"{rtt:g}" for rtt in kept])
    axes.set_xticks([], minor=True)


def _law(axes: Axes, lines: Sequence[Mapping[str, Any]], look: Style) -> None:
    """The predictions of the cells. Between them it is straight, as the curve is: how a collective sends depends on the
    round trip, and was decided for those of the cells."""
    values = [(line["rtt_ms"], line["predicted_scalability"]) for line in lines]
    axes.plot(*zip(*values, strict=True), color=look.colour, linewidth=0.5, zorder=2)
