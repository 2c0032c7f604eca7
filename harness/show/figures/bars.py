"""Bars of a measure, one for each algorithm: scalability without an RTT axis, and the parts of a step's time."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from wanbench.harness.analysis.axes import axis_value
from wanbench.harness.analysis.summary import Beside, Line, Pivot, provenance, speed_ups
from wanbench.harness.grouping import by_key
from wanbench.harness.results.scalability import formula
from wanbench.harness.show.figures.caption import (
    caption,
    chosen,
    has_choices,
    has_law,
    names_of,
    speed,
    titled,
    waiting,
)
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels, fitting, text_in
from wanbench.harness.show.figures.style import (
    COLUMN_IN,
    INK,
    PAGE_IN,
    PUBLISHED,
    SIMULATED,
    Style,
    looks_of,
    wanbench_style,
)

_BAR_IN = 0.165
_FONT_PT, _NAME_PT = 6.0, 6.5

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
_CHOSEN = ("#4477AA", "#EE7733", "#228833", "#AA3377", "#999999")  # of the values of a choice
_SEEN = 0.005  # share of the longest bar

Key = tuple[str, Any]
Bars = list[tuple[str, Key]]  # the name of each, and its key in the pivot


@wanbench_style()
def scalability_bars(pivot: Pivot, run_name: str, width_in: float = PAGE_IN) -> Figure:
    """One panel per value of the column axis: workers, profile, rate ...

    Args:
        pivot: median, minimum and maximum of every cell. run_name: shown at the caption's beginning.
        width_in: `PAGE_IN` or `COLUMN_IN`.
    """
    looks = looks_of(pivot)
    about = caption(pivot, run_name, "black ticks: step-time law" if has_law(pivot) else None)

    def draw(axes: Axes, row: int, name: str, key: Key) -> None:
        _scalability_bar(axes, pivot, key, name, row, looks[key[0]])

    sheet = _chart(pivot, width_in, titled(pivot, speed(pivot)), about, {}, _scalability_end, draw, at_least=1.03)
    for index, axes in enumerate(sheet.figure.axes):
        axes.set_xticks([0, 0.5, 1.0] if sheet.across > 1 else [0, 0.2, 0.4, 0.6, 0.8, 1.0])
        sheet.label(index, f"scalability  {formula(pivot.lines.values())}")
    return sheet.figure


@wanbench_style()
def step_time(pivot: Pivot, run_name: str, width_in: float = PAGE_IN) -> Figure:
    """One panel per value of the column axis, one stacked bar per algorithm, in seconds per step.

    Args:
        pivot, run_name, width_in: as for `scalability_bars`.
    """
    valid = [line for line in pivot.lines.values() if line["status"] == "ok"]
    parts = _WHOLE if all(math.isnan(line["compute_s"]) for line in valid) else PARTS
    longest_s = max((line["step_time_s"] for line in valid), default=0.0)
    entries = {
        label: Patch(**bar_look(colour, hatch, pivot.network))
        for name, label, colour, hatch in parts
        if any(line[name] > _SEEN * longest_s for line in valid)
    }
    colours = _by_choice(pivot) if parts is _WHOLE else {}
    entries = {text: Patch(**bar_look(colour, "", pivot.network)) for text, colour in colours.items()} or entries
    ratios = speed_ups(pivot)
    over = "×: how many times as fast as the slowest of its panel" if has_choices(pivot) else None
    about = caption(pivot, run_name, "; ".join(filter(None, [_MARKS[parts], over])), whiskers=False)

    def end(pivot: Pivot, key: Key) -> tuple[float, str]:
        end_s, text = _step_end(pivot, key)
        ratio = ratios.get(key) if over else None
        return end_s, text if ratio is None else f"{text}   {f'{ratio:.2g}' if ratio < 10 else f'{ratio:.0f}'}×"

    def draw(axes: Axes, row: int, name: str, key: Key) -> None:
        _mark_step(axes, pivot.lines.get(key), name, row)

    sheet = _chart(pivot, width_in, titled(pivot, chosen(pivot) or waiting(pivot)), about, entries, end, draw)
    for index, (axes, (_, bars)) in enumerate(zip(sheet.figure.axes, _panels(pivot), strict=True)):
        _stack(axes, [pivot.lines.get(key) for _, key in bars], parts, colours)
        axes.locator_params(axis="x", nbins=4)
        sheet.label(index, "seconds per step")
    return sheet.figure


def _by_choice(pivot: Pivot) -> dict[str, str]:
    """A colour for each value of the first choice, in the words of labels; empty without choices, or for too many."""
    texts = dict.fromkeys(filter(None, (first_choice(line) for line in pivot.lines.values())))
    return dict(zip(texts, _CHOSEN, strict=False)) if len(texts) <= len(_CHOSEN) else {}


def first_choice(line: Line) -> str:
    """The text of the first choice of a cell; "" without one."""
    return next((line["words"][axis] for axis in line["choices"]), "")


def bar_look(colour: str | list[str], hatch: str | list[str], network: str) -> dict[str, Any]:
    """A bar, or a part of one: filled if it is emulated, open and dashed if all of it is simulated."""
    if network == "simulated":
        return {"facecolor": "white", "edgecolor": colour, "hatch": hatch, "linewidth": 0.9, "linestyle": SIMULATED}
    return {"facecolor": colour, "edgecolor": "white", "hatch": hatch, "linewidth": 0}


def _chart(
    pivot: Pivot,
    width_in: float,
    title: str,
    about: str,
    entries: Mapping[str, Artist],
    end: Callable[[Pivot, Key], tuple[float, str]],
    draw: Callable[[Axes, int, str, Key], None],
    at_least: float = 0.0,
) -> Panels:
    """Panels that are high enough for their bars, with a strip for the names of the bars.

    Args:
        end: where the text of a bar begins, and the text. draw: draws the bar of a row of a panel.
        at_least: the end of the axis.
    """
    panels = _panels(pivot)
    sheet = Panels(
        width_in,
        title,
        about,
        {**entries, **_entries_beside(pivot)},
        count=len(panels),
        across=min(len(panels), 3 if width_in > COLUMN_IN else 1),
        panel_in=_BAR_IN * max(len(bars) for _, bars in panels) + 0.06,
        title_in=0.19 if panels[0][0] else 0.04,
        left_in=0.12 + max(text_in(name, _NAME_PT) for _, bars in panels for name, _ in bars),
    )
    ends = {key: end(pivot, key) for _, bars in panels for _, key in bars}
    limit = max(at_least, _limit(ends.values(), sheet.panel_width_in)) or 1.0
    for index, (heading, bars) in enumerate(panels):
        axes = sheet.panel(index, heading)
        for row, (name, key) in enumerate(bars):
            draw(axes, row, name, key)
            _end_bar(axes, row, name, *ends[key], pivot.published.get(key))
        _finish(axes, [name for name, _ in bars], limit)
    return sheet


def _entries_beside(pivot: Pivot) -> dict[str, Artist]:
    """Legend entries of the law, a tick on every bar, of another run and of published values, if the pivot has them."""
    entries: dict[str, Artist] = {}
    if has_law(pivot):
        entries["step-time law"] = Line2D([], [], color=INK, linestyle="", marker="|", markersize=7)
    if pivot.beside:
        entries[f"{pivot.beside.run}, {pivot.beside.network}"] = Patch(**_outline(pivot.beside))
    if pivot.published:
        entries["published"] = Line2D([], [], **PUBLISHED)
    return entries


def _outline(run: Beside) -> dict[str, Any]:
    """The look of another run's bar."""
    look = {"fill": False, "edgecolor": INK, "linewidth": 0.7}
    return look | {"linestyle": SIMULATED if run.network == "simulated" else "-"}


def _panels(pivot: Pivot) -> list[tuple[str, Bars]]:
    """(title, bars) of each panel.

    There is a panel per value of the column axis. A single algorithm has one panel with a bar per value instead.
    """
    names, many = names_of(pivot), len(pivot.columns) > 1
    if len(pivot.algorithms) == 1 and many:
        (label,) = pivot.algorithms
        return [(names[label], [(axis_value(pivot.column_axis, column), (label, column)) for column in pivot.columns])]
    return [
        (
            axis_value(pivot.column_axis, column) if many else "",
            [(names[label], (label, column)) for label in pivot.algorithms],
        )
        for column in pivot.columns
    ]


def _limit(ends: Iterable[tuple[float, str]], axes_in: float) -> float:
    """The end of an axis on which every text fits behind the end of its bar."""
    return max((end / max(0.1, 1 - (text_in(text, _FONT_PT) + 0.1) / axes_in) for end, text in ends), default=0.0)


def _end_bar(axes: Axes, row: int, name: str, end: float, text: str, published: float | None) -> None:
    """Draw the diamond of a published value, if there is one, and write a text behind the end of a bar."""
    if published is not None and not math.isnan(published):
        axes.plot([published], [row], zorder=4, **PUBLISHED)
        note(axes, published, row, f"{name}: published {published:g}")
    axes.annotate(
        text, (end, row), (5, 0), textcoords="offset points", fontsize=_FONT_PT, va="center", color=INK,
        annotation_clip=False,
    )  # fmt: skip


def _finish(axes: Axes, names: Sequence[str], limit: float) -> None:
    """Limits, names and grid of a panel."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    room_in = axes.get_position().x0 * axes.figure.get_figure(root=True).get_figwidth() - 0.08
    axes.set_yticks(range(len(names)), [fitting(name, _NAME_PT, room_in) for name in names])
    axes.set_xlim(0, limit)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")
    axes.tick_params(axis="y", length=0)


def _end_text(value: str, published: float | None) -> str:
    """The text at the end of a bar: "0.562 (published 0.377)"."""
    return value if published is None else f"{value} (published {published:g})"


def _without_value(line: Line | None, published: float | None) -> tuple[float, str]:
    """The end of a bar that is not drawn."""
    return published or 0.0, _end_text("not run" if line is None else str(line["status"]), published)


def _scalability_end(pivot: Pivot, key: Key) -> tuple[float, str]:
    line, published = pivot.lines.get(key), pivot.published.get(key)
    if line is None or math.isnan(line["scalability"]):
        return _without_value(line, published)
    other = _scalability_beside(pivot, key)
    height, law = line["scalability"], line["predicted_scalability"]
    end = max(height, line["scalability_max"], 0.0 if math.isnan(law) else law, published or 0.0, other or 0.0)
    text = _end_text(_digits(height), published)
    return end, text if other is None or pivot.beside is None else f"{text} ({pivot.beside.network} {_digits(other)})"


def _digits(scalability: float) -> str:
    return f"{scalability:.2f}" if scalability >= 0.1 else f"{scalability:.3f}"


def _scalability_beside(pivot: Pivot, key: Key) -> float | None:
    """The scalability of the other run."""
    line = pivot.beside.lines.get(key) if pivot.beside else None
    return None if line is None or math.isnan(line["scalability"]) else float(line["scalability"])


def _scalability_bar(axes: Axes, pivot: Pivot, key: Key, name: str, row: int, look: Style) -> None:
    line = pivot.lines.get(key)
    if line is not None and not math.isnan(line["scalability"]):
        height, law = line["scalability"], line["predicted_scalability"]
        axes.barh(row, height, 0.7, zorder=2, **bar_look(look.colour, "", provenance([line["testbed"]])))
        text = f"{name}: scalability {height:.3f}"
        note(axes, height, row, text + ("" if math.isnan(law) else f", law {law:.3f}"))
        if line["repeats"] > 1:
            axes.hlines(row, line["scalability_min"], line["scalability_max"], color=INK, linewidth=0.7, zorder=3)
        if not math.isnan(law):
            axes.vlines(law, row - 0.42, row + 0.42, color=INK, linewidth=1.0, zorder=3)
    if (other := _scalability_beside(pivot, key)) is not None and pivot.beside is not None:
        axes.barh(row, other, 0.7, fill=False, edgecolor="white", linewidth=1.4, zorder=4)  # on a dark bar
        axes.barh(row, other, 0.7, zorder=4, **_outline(pivot.beside))
        note(axes, other, row, f"{name}, {pivot.beside.run}: scalability {other:.3f}")


def _step_end(pivot: Pivot, key: Key) -> tuple[float, str]:
    line, published = pivot.lines.get(key), pivot.published.get(key)
    if line is None or line["status"] != "ok":
        return _without_value(line, published)
    law_s = line["predicted_step_time_s"]
    end_s = max(line["step_time_s"], 0.0 if math.isnan(law_s) else law_s, published or 0.0)
    return end_s, _end_text(f"{line['step_time_s']:#.3g}", published)


def _stack(axes: Axes, lines: Sequence[Line | None], parts: Parts, colours: Mapping[str, str]) -> None:
    """All bars of a panel, in a call for each network, because matplotlib takes milliseconds for each. `colours`: of
    first choices."""
    pieces: list[tuple[str, tuple[int, float, float, str, str]]] = []
    for row, line in enumerate(lines):
        if line is None or line["status"] != "ok":
            continue
        left_s = 0.0
        for column, _, colour, hatch in parts:
            width_s = 0.0 if math.isnan(line[column]) else max(0.0, line[column])
            fill = colours.get(first_choice(line), colour)
            pieces.append((provenance([line["testbed"]]), (row, width_s, left_s, fill, hatch)))
            left_s += width_s
    for network, of_network in by_key(piece for piece in pieces if piece[1][1]).items():
        rows, widths_s, lefts_s, fills, hatches = map(list, zip(*of_network, strict=True))
        axes.barh(rows, widths_s, 0.7, lefts_s, zorder=2, **bar_look(fills, hatches, network))


def _mark_step(axes: Axes, line: Line | None, name: str, row: int) -> None:
    """The tick of the law on a bar, and its note."""
    if line is None or line["status"] != "ok":
        return
    law_s = line["predicted_step_time_s"]
    if not math.isnan(law_s):
        axes.plot([law_s, law_s], [row - 0.42, row + 0.42], color=INK, linewidth=0.9, zorder=3)
    parts = [f"{label} {line[column]:.4f} s" for column, label, _, _ in PARTS if not math.isnan(line[column])]
    text = ", ".join([f"{line['step_time_s']:.4f} s per step", *parts])
    note(axes, line["step_time_s"] / 2, row, f"{name}: {text}")
