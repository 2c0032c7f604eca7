"""Predicted against published: the figure of kind "published"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wanbench.harness.analysis.published import (
    NEAR,
    PREDICTIONS,
    Agreement,
    Line,
    Source,
    compared,
    counted,
    load,
    read,
)
from wanbench.harness.show.figures.drawing import Drawing, Point
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels, logarithmic
from wanbench.harness.show.figures.style import COLUMN_IN, FAINT, PAGE_IN, wanbench_style
from wanbench.harness.show.papers import PaperFigure

_MARKERS = "os^vDP*Xdph<>8H"
_COLOURS = ("#4477AA", "#EE6677", "#228833", "#AA3377", "#66CCEE", "#222222", "#CCBB44", "#EE7733", "#882255")
_AMBIGUOUS = 2  # tier


def agreement_drawing(figure: PaperFigure, folder: Path) -> Drawing:
    """The figure of kind "published". Raises: SpecError: nothing was predicted."""
    sources = load(folder)
    lines = counted(sources, read(folder / PREDICTIONS))
    blind = {name: of_source for name, of_source in lines.items() if not sources[name].seen}
    nearer, farther = compared({name: Agreement.of(sources[name], of_source) for name, of_source in blind.items()})
    together = Agreement.together(sources, blind)
    title = (
        f"Blind: {together.near} of {len(together.errors)} numbers are predicted within {100 * NEAR:.0f} %; "
        f"nearer than the plain law for {len(nearer)} sources, farther for {len(farther)}"
    )
    about = (
        "Simulated; nothing is fitted to what is drawn. Rates are shown as seconds for what was sent or trained, "
        "shares and ratios not at all. A source counts at its worst reading. Open marks: an ambiguous condition. "
        f"Band: {100 * NEAR:.0f} % to either side. Seen: compared before its tolerance was chosen."
    )
    about = " ".join(filter(None, [about, figure.note]))
    text = f"{title}\nPredicted against published, seconds"
    return Drawing(
        figure.name,
        title,
        lambda width: agreement(sources, lines, text, about, width),
        lambda: agreement_points(sources, lines),
    )


@wanbench_style()
def agreement(
    sources: Mapping[str, Source],
    lines: Mapping[str, Sequence[Line]],
    title: str,
    about: str,
    width_in: float = PAGE_IN,
) -> Figure:
    """A panel of blind predictions, and one of those that had been compared before.

    Args:
        lines: by source, under the reading at which it counts. title: the finding, and the subject. about: the caption.
    """
    drawn = {name: seconds for name, of_source in lines.items() if (seconds := _seconds(of_source))}
    looks = {name: _look(index, sources[name]) for index, name in enumerate(drawn)}
    values = [value for seconds in drawn.values() for pair in seconds for value in pair]
    ends = np.array([min(values) / 1.5, max(values) * 1.5])
    entries = {name: Line2D([], [], **look) for name, look in looks.items()}
    across = 2 if width_in > COLUMN_IN else 1
    sheet = Panels(width_in, title, about, entries, count=2, across=across, panel_in=2.6, between_in=0.0, left_in=0.55)
    for index, (seen, heading) in enumerate([(False, "blind"), (True, "seen before")]):
        axes = sheet.panel(index, heading)
        axes.fill_between(ends, ends * (1 - NEAR), ends * (1 + NEAR), color=FAINT, alpha=0.15, linewidth=0)
        axes.plot(ends, ends, color=FAINT, linewidth=0.5)
        for name, seconds in drawn.items():
            if sources[name].seen is seen:
                axes.plot(*zip(*seconds, strict=True), **looks[name])
                for published_s, predicted_s in seconds:
                    note(axes, published_s, predicted_s, f"{name}: {published_s:.4g} s, predicted {predicted_s:.4g} s")
        logarithmic(axes.xaxis, *ends)
        logarithmic(axes.yaxis, *ends)
        sheet.label(index, "published (s)", "predicted (s)")
    return sheet.figure


def _look(index: int, source: Source) -> dict[str, Any]:
    colour = _COLOURS[index % len(_COLOURS)]
    is_open = source.tier >= _AMBIGUOUS or len(source.reading) > 1
    return {
        "color": colour,
        "marker": _MARKERS[index % len(_MARKERS)],
        "markerfacecolor": "none" if is_open else colour,
        "markeredgewidth": 0.7,
        "markersize": 3.5,
        "linestyle": "none",
    }


def _seconds(lines: Sequence[Line]) -> list[tuple[float, float]]:
    """Published and predicted seconds of the numbers that are times, or rates of a known amount, and not fitted."""
    pairs = []
    for line in lines:
        if line["predicted"] is None or line.get("fitted"):
            continue
        if line["unit"] == "s":
            pairs.append((line["value"], line["predicted"]))
        elif line["amount"] is not None:
            pairs.append((line["amount"] / line["value"], line["amount"] / line["predicted"]))
    return pairs


def agreement_points(sources: Mapping[str, Source], lines: Mapping[str, Sequence[Line]]) -> list[Point]:
    """Every number with its errors, also those that are not drawn, or have no prediction."""
    return [
        {
            "source": name,
            "seen": sources[name].seen,
            "tier": sources[name].tier,
            "tolerance": sources[name].tolerance,
            "fitted": line.get("fitted", False),
            **{key: line[key] for key in ("reading", "where", "quantity", "unit", "printed", "value")},
            "smallest": (line["spread"] or [None, None])[0],
            "largest": (line["spread"] or [None, None])[1],
            **{key: line[key] for key in ("predicted", "error", "plain", "plain_error", "why")},
        }
        for name, of_source in lines.items()
        for line in of_source
    ]
