"""Learning curves: accuracy against steps, and against time on the emulated network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN, Style, line, styles, wanbench_style

Curve = Mapping[str, Sequence[float]]


@wanbench_style()
def learning(
    curves: Mapping[tuple[str, str], tuple[Mapping[str, Any], Sequence[Curve]]],
    data_set: str,
    about: str,
    width_in: float = PAGE_IN,
) -> Figure:
    """One curve an algorithm: the median over repetitions, with the band from least to most.

    Args:
        curves: (label, kind) -> (params, one curve a repetition, as `results.evidence.Evidence.curve` gives them).
        data_set: what the accuracy is of; the axis says so. about: the caption.

    Raises:
        AnalysisError: there is no curve.
    """
    if not any(found for _, found in curves.values()):
        raise AnalysisError("no repetition has evaluated its accuracy; there is no learning curve to draw")
    looks = styles([(label, kind, params) for (label, kind), (params, _) in curves.items()])
    across = 2 if width_in > COLUMN_IN else 1
    entries = {label: Line2D([], [], **line(look)) for label, look in looks.items()}
    between_in = 0.42 if across == 1 else 0.0
    sheet = Panels(
        width_in, f"Learning {data_set}", about, entries,
        count=2, across=across, panel_in=1.9, between_in=between_in, left_in=0.62,
    )  # fmt: skip
    for index, (x, label) in enumerate((("step", "step"), ("end_s", "seconds on this network"))):
        axes = sheet.panel(index)
        for (name, _), (_, found) in curves.items():
            if found:
                _curve(axes, x, found, looks[name], name)
        axes.set_xlabel(label)
        axes.set_xlim(left=0)
        axes.set_ylim(top=101)
        if index == 0 or across == 1:
            axes.set_ylabel(f"{data_set}:\naccuracy (%)")
        else:
            axes.tick_params(labelleft=False)
    sheet.figure.axes[1].set_ylim(sheet.figure.axes[0].get_ylim())
    return sheet.figure


def _curve(axes: Axes, x: str, found: Sequence[Curve], look: Style, name: str) -> None:
    shortest = min(len(curve["step"]) for curve in found)
    at = np.median([curve[x][:shortest] for curve in found], axis=0)
    accuracy = 100 * np.array([curve["accuracy"][:shortest] for curve in found])
    middle = np.median(accuracy, axis=0)
    axes.plot(at, middle, markevery=max(1, shortest // 6), **line(look))
    if len(found) > 1:
        axes.fill_between(at, accuracy.min(axis=0), accuracy.max(axis=0), color=look.colour, alpha=0.15, linewidth=0)
    for place, value in zip(at, middle, strict=True):
        note(axes, float(place), float(value), f"{name}: {value:.2f} % at {x.removesuffix('_s')} {place:g}")
