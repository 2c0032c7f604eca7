"""Step time at one value of an axis against that at another: on the diagonal they agree."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from wanbench.harness.analysis.compare import NEAR, Comparison
from wanbench.harness.show.comparison import summary
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Sheet
from wanbench.harness.show.figures.style import COLUMN_IN, FAINT, PAGE_IN, point, styles, wanbench_style


@wanbench_style()
def parity(comparison: Comparison, run_name: str, width_in: float = PAGE_IN) -> Figure:
    """One point a pair, by algorithm, on logarithmic axes; the band is 10 % to either side.

    Args:
        comparison: of one base with one other value or more. run_name: shown at the caption's beginning.
        width_in: `PAGE_IN` or `COLUMN_IN`.
    """
    pairs = comparison.pairs
    looks = styles(list({pair.algorithm: (pair.algorithm, pair.kind, pair.params) for pair in pairs}.values()))
    heads = " and ".join(dict.fromkeys(pair.head for pair in pairs))
    base = pairs[0].base
    times = [time for pair in pairs for time in (pair.base_s, pair.head_s)]
    ends = np.array([min(times) / 1.15, max(times) * 1.15])
    entries = {label: Line2D([], [], **point(look)) for label, look in looks.items()}
    entries[f"equal, and {NEAR:.0%} to either side"] = Line2D([], [], color=FAINT, linewidth=0.5)
    sheet = Sheet(
        width_in,
        3.2 if width_in > COLUMN_IN else 2.5,
        f"Step time, {heads} against {base}",
        f"{run_name}: one point a cell, medians of repeats; {summary(comparison)}.",
        entries,
        left_in=0.55,
    )
    axes = sheet.axes()
    axes.fill_between(ends, ends * (1 - NEAR), ends * (1 + NEAR), color=FAINT, alpha=0.15, linewidth=0)
    axes.plot(ends, ends, color=FAINT, linewidth=0.5)
    for label, look in looks.items():
        points = [(pair.base_s, pair.head_s) for pair in pairs if pair.algorithm == label]
        axes.plot(*zip(*points, strict=True), **point(look))
        for base_s, head_s in points:
            note(axes, base_s, head_s, f"{label}: {base_s:.4f} s, {head_s:.4f} s, ratio {head_s / base_s:.3f}")
    _logarithmic(axes, ends)
    axes.set_xlabel(f"step time, {base} (s)")
    axes.set_ylabel(f"step time, {heads} (s)")
    return sheet.figure


def _logarithmic(axes: Axes, ends: NDArray[np.float64]) -> None:
    ticks = _round_numbers(*ends)
    for axis, scale, limit in (
        (axes.xaxis, axes.set_xscale, axes.set_xlim),
        (axes.yaxis, axes.set_yscale, axes.set_ylim),
    ):
        scale("log")
        limit(*ends)
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)


def _round_numbers(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: 1, 2, 5 of every decade, or more of them where few decades are shown."""
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(tenth / 10 for tenth in range(10, 100, 2))):
        ticks = [
            digit * 10.0**power for power in range(-6, 7) for digit in digits if low <= digit * 10.0**power <= high
        ]
        if len(ticks) >= 4:
            break
    return ticks
