"""Scalability of runs without an RTT axis: one bar per algorithm, with the law as a tick on each."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbench.harness.analysis.summary import Pivot
from wanbench.harness.results.scalability import formula
from wanbench.harness.show.figures import bar_rows
from wanbench.harness.show.figures.caption import caption, has_law, titled
from wanbench.harness.show.figures.finding import speed
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import entries_beside
from wanbench.harness.show.figures.style import INK, PAGE_IN, Style, looks_of, wanbench_style


@wanbench_style()
def scalability_bars(pivot: Pivot, run_name: str, width_in: float = PAGE_IN, progress: str | None = None) -> Figure:
    """One panel per value of the column axis: workers, profile, rate ...

    Args:
        pivot: median, minimum and maximum of every cell. run_name: shown at the caption's beginning.
        width_in: `PAGE_IN` or `COLUMN_IN`. progress: of a run that is not finished, "14 of 42 cells".
    """
    looks, panels = looks_of(pivot), bar_rows.panels(pivot)
    about = caption(pivot, run_name, "black ticks: step-time law" if has_law(pivot) else None, progress)
    sheet = bar_rows.sheet(pivot, width_in, titled(pivot, speed(pivot)), about, entries_beside(pivot, "|"))
    found = [_end(pivot, key) for _, bars in panels for _, key in bars]
    limit = bar_rows.limit(found, sheet.panel_width_in, at_least=1.03)
    for index, (title, bars) in enumerate(panels):
        axes = sheet.panel(index, title)
        for place, (name, key) in enumerate(bars):
            _bar(axes, pivot, key, name, place, looks[key[0]])
        bar_rows.finish(axes, [name for name, _ in bars], limit)
        axes.set_xticks([0, 0.5, 1.0] if sheet.across > 1 else [0, 0.2, 0.4, 0.6, 0.8, 1.0])
        sheet.label(index, f"scalability  {formula(pivot.lines.values())}")
    return sheet.figure


def _end(pivot: Pivot, key: bar_rows.Key) -> tuple[float, str]:
    """Where the text of a bar begins, and the text."""
    line, published = pivot.lines.get(key), pivot.published.get(key)
    if line is None or math.isnan(line["scalability"]):
        return published or 0.0, bar_rows.end_text("not run" if line is None else str(line["status"]), published)
    other = _other(pivot, key)
    height, law = line["scalability"], line["predicted_scalability"]
    end = max(height, line["scalability_max"], 0.0 if math.isnan(law) else law, published or 0.0, other or 0.0)
    text = bar_rows.end_text(_value(height), published)
    return end, text if other is None or pivot.beside is None else f"{text} ({pivot.beside.network} {_value(other)})"


def _value(scalability: float) -> str:
    return f"{scalability:.2f}" if scalability >= 0.1 else f"{scalability:.3f}"


def _other(pivot: Pivot, key: bar_rows.Key) -> float | None:
    """The scalability of the other run."""
    line = pivot.beside.lines.get(key) if pivot.beside else None
    return None if line is None or math.isnan(line["scalability"]) else float(line["scalability"])


def _bar(axes: Axes, pivot: Pivot, key: bar_rows.Key, name: str, place: int, look: Style) -> None:
    line = pivot.lines.get(key)
    if line is not None and not math.isnan(line["scalability"]):
        height, law = line["scalability"], line["predicted_scalability"]
        axes.barh(place, height, 0.7, color=look.colour, linewidth=0, zorder=2)
        text = f"{name}: scalability {height:.3f}"
        note(axes, height, place, text + ("" if math.isnan(law) else f", law {law:.3f}"))
        if line["repeats"] > 1:
            axes.hlines(place, line["scalability_min"], line["scalability_max"], color=INK, linewidth=0.7, zorder=3)
        if not math.isnan(law):
            axes.vlines(law, place - 0.42, place + 0.42, color=INK, linewidth=1.0, zorder=3)
    if (other := _other(pivot, key)) is not None and pivot.beside is not None:
        axes.barh(place, other, 0.7, fill=False, edgecolor="white", linewidth=1.4, zorder=4)  # on a dark bar
        axes.barh(place, other, 0.7, fill=False, edgecolor=INK, linewidth=0.7, linestyle=(0, (3, 2)), zorder=4)
        note(axes, other, place, f"{name}, {pivot.beside.run}: scalability {other:.3f}")
    bar_rows.mark_published(axes, place, pivot.published.get(key), name)
    bar_rows.write_end(axes, place, *_end(pivot, key))
