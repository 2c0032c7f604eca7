"""Step time at one value of an axis against step time at another; they agree on the diagonal."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wanbench.harness.analysis.compare import NEAR, Comparison
from wanbench.harness.show.comparison import finding, summary
from wanbench.harness.show.figures.drawing import FORMATS, Drawing, Point, save_all
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Sheet, logarithmic
from wanbench.harness.show.figures.style import COLUMN_IN, FAINT, PAGE_IN, point, styles, wanbench_style


@wanbench_style()
def parity(comparison: Comparison, run_name: str, width_in: float = PAGE_IN) -> Figure:
    """One point per pair, by algorithm, on logarithmic axes; the band is 10 % to either side.

    Args:
        comparison: of one base with one or more other values. run_name: shown at the caption's beginning.
        width_in: `PAGE_IN` or `COLUMN_IN`.
    """
    pairs = comparison.pairs
    looks = styles(list({pair.algorithm: (pair.algorithm, pair.kind, pair.params) for pair in pairs}.values()))
    heads = " and ".join(dict.fromkeys(pair.head for pair in pairs))
    base = pairs[0].base
    times = [time for pair in pairs for time in (pair.base_s, pair.head_s)]
    ends = np.array([min(times) / 1.15, max(times) * 1.15])
    entries = {label: Line2D([], [], **point(look)) for label, look in looks.items()}
    entries[f"equal, and {100 * NEAR:.0f} % to either side"] = Line2D([], [], color=FAINT, linewidth=0.5)
    sheet = Sheet(
        width_in,
        3.2 if width_in > COLUMN_IN else 2.5,
        f"{finding(comparison)}\n{heads} against {base}",
        f"{run_name}: one point per cell, medians of repetitions; {summary(comparison)}.",
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
    logarithmic(axes.xaxis, *ends)
    logarithmic(axes.yaxis, *ends)
    axes.set_xlabel(f"step time, {base} (s)")
    axes.set_ylabel(f"step time, {heads} (s)")
    return sheet.figure


def draw_parity(comparison: Comparison, run_name: str, outdir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """The parity figure in both widths, as `parity-by-<axis>`; returns the files."""
    name = f"parity-by-{comparison.by}"
    drawing = Drawing(name, name, lambda width: parity(comparison, run_name, width), lambda: points(comparison))
    return save_all(drawing, outdir, formats)


def points(comparison: Comparison) -> list[Point]:
    """One point per pair of cells."""
    return [
        {
            "algorithm": pair.algorithm,
            "base": pair.base,
            "head": pair.head,
            "base_step_time_s": pair.base_s,
            "head_step_time_s": pair.head_s,
        }
        for pair in comparison.pairs
    ]
