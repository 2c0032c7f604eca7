"""Where the time of a step goes: computing, waiting for the network, and the rest, for every cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from wanbench.harness.analysis.summary import Pivot
from wanbench.harness.show.figures import bar_rows
from wanbench.harness.show.figures.caption import caption, titled
from wanbench.harness.show.figures.finding import waiting
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import entries_beside
from wanbench.harness.show.figures.style import INK, PAGE_IN, wanbench_style

Parts = tuple[tuple[str, str, str, str], ...]
# (column, label, colour, hatch): light, dark and middle grey without colour.
PARTS: Parts = (
    ("compute_s", "compute", "#BBCCEE", ""),
    ("stall_s", "stall", "#CC5566", "////"),
    ("overhead_s", "overhead", "#CCBB44", ""),
)
# Only the whole step of a user's own program is known.
_WHOLE: Parts = (("step_time_s", "whole step", "#999999", ""),)
_MARKS = {
    PARTS: "stall: waiting for the network; black ticks: step-time law",
    _WHOLE: "a user's own program: the parts of its step are not known",
}
_SEEN = 0.005  # share of the longest bar


@wanbench_style()
def step_time(pivot: Pivot, run_name: str, width_in: float = PAGE_IN, progress: str | None = None) -> Figure:
    """One panel per value of the column axis, one stacked bar per algorithm, in seconds per step.

    Args:
        pivot: medians of every cell. run_name: shown at the caption's beginning.
        width_in: `PAGE_IN` or `COLUMN_IN`. progress: of a run that is not finished, "14 of 42 cells".
    """
    valid = [line for line in pivot.lines.values() if line["status"] == "ok"]
    parts = _WHOLE if all(math.isnan(line["compute_s"]) for line in valid) else PARTS
    panels = bar_rows.panels(pivot)
    entries = {label: filled(colour, hatch) for name, label, colour, hatch in parts if _seen(valid, name)}
    about = caption(pivot, run_name, _MARKS[parts], progress, whiskers=False)
    entries |= entries_beside(pivot, "|")
    sheet = bar_rows.sheet(pivot, width_in, titled(pivot, waiting(pivot)), about, entries)
    found = [_end(pivot, key) for _, bars in panels for _, key in bars]
    limit_s = bar_rows.limit(found, sheet.panel_width_in)
    for index, (title, bars) in enumerate(panels):
        axes = sheet.panel(index, title)
        _bars(axes, [pivot.lines.get(key) for _, key in bars], parts)
        for place, (name, key) in enumerate(bars):
            _about(axes, pivot.lines.get(key), name, place)
            bar_rows.mark_published(axes, place, pivot.published.get(key), name)
            bar_rows.write_end(axes, place, *_end(pivot, key))
        bar_rows.finish(axes, [name for name, _ in bars], limit_s)
        axes.locator_params(axis="x", nbins=4)
        sheet.label(index, "seconds per step")
    return sheet.figure


def _seen(lines: Sequence[Mapping[str, Any]], name: str) -> bool:
    """True if a part is wide enough in any bar to be seen."""
    longest_s = max((line["step_time_s"] for line in lines), default=0.0)
    return any(line[name] > _SEEN * longest_s for line in lines)


def filled(colour: str, hatch: str) -> Artist:
    """The legend handle of a part of a step."""
    return Patch(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0)


def _end(pivot: Pivot, key: bar_rows.Key) -> tuple[float, str]:
    """Where the text of a bar begins, and the text."""
    line, published = pivot.lines.get(key), pivot.published.get(key)
    if line is None or line["status"] != "ok":
        return published or 0.0, bar_rows.end_text("not run" if line is None else str(line["status"]), published)
    law_s = line["predicted_step_time_s"]
    end_s = max(line["step_time_s"], 0.0 if math.isnan(law_s) else law_s, published or 0.0)
    return end_s, bar_rows.end_text(f"{line['step_time_s']:#.3g}", published)


def _bars(axes: Axes, lines: Sequence[Mapping[str, Any] | None], parts: Parts) -> None:
    """All bars of a panel, in one call, because matplotlib takes milliseconds for each."""
    pieces: list[tuple[int, float, float, str, str]] = []
    for place, line in enumerate(lines):
        if line is None or line["status"] != "ok":
            continue
        left_s = 0.0
        for column, _, colour, hatch in parts:
            width_s = 0.0 if math.isnan(line[column]) else max(0.0, line[column])
            pieces.append((place, width_s, left_s, colour, hatch))
            left_s += width_s
    if pieces:
        places, widths_s, lefts_s, colours, hatches = map(list, zip(*pieces, strict=True))
        look: Any = {"color": colours, "hatch": hatches, "edgecolor": "white", "linewidth": 0, "zorder": 2}
        axes.barh(places, widths_s, 0.7, lefts_s, **look)


def _about(axes: Axes, line: Mapping[str, Any] | None, name: str, place: int) -> None:
    """The tick of the law on a bar, and its note."""
    if line is None or line["status"] != "ok":
        return
    law_s = line["predicted_step_time_s"]
    if not math.isnan(law_s):
        axes.plot([law_s, law_s], [place - 0.42, place + 0.42], color=INK, linewidth=0.9, zorder=3)
    known_parts = [f"{label} {line[column]:.4f} s" for column, label, _, _ in PARTS if not math.isnan(line[column])]
    text = ", ".join([f"{line['step_time_s']:.4f} s per step", *known_parts])
    note(axes, line["step_time_s"] / 2, place, f"{name}: {text}")
