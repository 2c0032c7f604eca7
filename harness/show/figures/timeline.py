"""One worker on a time axis: its steps, its stalls, and its messages in flight, as recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from wanbench.harness.analysis.summary import AnalysisError, records
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels
from wanbench.harness.show.figures.pace import MARK
from wanbench.harness.show.figures.step_time import PARTS, filled
from wanbench.harness.show.figures.style import INK, PAGE_IN, wanbench_style

_STEPS_SHOWN = 12
_COMPUTE, _STALL = PARTS[0], PARTS[1]
_FLYING, _WAITING = "#4477AA", "#BBBBBB"
_LANE_IN, _STEP_LANES = 0.052, 3
_MOST_LANES = 14
MARKS = (
    "rank 0 of one repetition each; upper bar: steps, with the stalls inside them; lower bars: messages, from issue to "
    "arrival and until they are used"
)


@dataclass(frozen=True)
class Trace:
    """Rank 0 of one repetition.

    Attributes:
        label: of the algorithm.
        steps: `steps.parquet` of this rank: step, end_ns, step_time_s, compute_s.
        messages: `messages.parquet`: issued_ns, ended_ns, collected_ns, stall_ns; times of the same clock.
        first: the first measured step.
        events: (time of the same clock, what) of each change of the network.
    """

    label: str
    steps: pd.DataFrame
    messages: pd.DataFrame
    first: int
    events: Sequence[tuple[int, str]] = ()


@wanbench_style()
def timeline(traces: Sequence[Trace], title: str, about: str, width_in: float = PAGE_IN) -> Figure:
    """One row per algorithm, all on one time axis that begins with the first measured step.

    Args:
        traces: from top to bottom. title: the subject, below the finding. about: the caption, with `MARKS`.
        width_in: of the figure.

    Raises:
        AnalysisError: there is no trace.
    """
    if not traces:
        raise AnalysisError("no repetition has recorded its messages; there is no timeline to draw")
    shown, span_s = views(traces)
    lanes = min(_MOST_LANES, max([2, *(len(view.lanes) for view in shown)]))
    entries = {label: filled(colour, hatch) for _, label, colour, hatch in (_COMPUTE, _STALL)}
    entries["in flight"] = Patch(facecolor=_FLYING, linewidth=0)
    entries["arrived, not yet used"] = Patch(facecolor=_WAITING, linewidth=0)
    panel_in = _LANE_IN * (lanes + _STEP_LANES)
    heading = f"{_finding(shown, span_s)}\n{title}"
    sheet = Panels(width_in, heading, about, entries, count=len(shown), across=1, panel_in=panel_in, left_in=0.12)
    for index, view in enumerate(shown):
        axes = sheet.panel(index, f"{view.label}: {_steps(view.done)}")
        _draw(axes, view, lanes)
        axes.set_xlim(0, span_s)
        sheet.label(index, "seconds since the first measured step began")
    return sheet.figure


@dataclass(frozen=True)
class View:
    """The visible part of a trace, in seconds since its first measured step began.

    Attributes:
        label: of the algorithm. done: complete steps in view. steps: (number, begin, end).
        lanes: (begin, arrival, use, note) of messages.
    """

    label: str
    done: int
    steps: list[tuple[int, float, float]]
    stalls: list[tuple[float, float]]
    lanes: list[list[tuple[float, float, float, str]]]
    events: list[tuple[float, str]]


def views(traces: Sequence[Trace]) -> tuple[list[View], float]:
    """What is drawn of each trace, and the seconds in view."""
    span_s = _STEPS_SHOWN * min(float(trace.steps["compute_s"].median()) for trace in traces)
    return [_view(trace, span_s) for trace in traces], span_s


def _view(trace: Trace, span_s: float) -> View:
    rows = records(trace.steps)
    begins = {row["step"]: float(row["end_ns"]) - row["step_time_s"] * 1e9 for row in rows}
    origin = begins[trace.first]
    steps = [
        (int(row["step"]), (begins[row["step"]] - origin) / 1e9, (float(row["end_ns"]) - origin) / 1e9) for row in rows
    ]
    stalls, flights = [], []
    for row in records(trace.messages):
        begin = (row["issued_ns"] - origin) / 1e9
        used = span_s if pd.isna(row["collected_ns"]) else (row["collected_ns"] - origin) / 1e9
        arrived = used if pd.isna(row["ended_ns"]) else (row["ended_ns"] - origin) / 1e9
        if used <= 0 or begin >= span_s:
            continue
        stalls.append((used - row["stall_ns"] / 1e9, used))
        times = f"issued at {begin:.3f} s, arrived {arrived:.3f} s, used {used:.3f} s"
        flights.append((begin, min(arrived, used), used, f"{row['nbytes'] / 1e6:.3g} MB {row['kind']}: {times}"))
    done = [step for step in steps if step[1] >= -1e-9 and step[2] <= span_s]
    events = [((at - origin) / 1e9, what) for at, what in trace.events if 0 <= (at - origin) / 1e9 < span_s]
    return View(
        trace.label,
        len(done),
        [step for step in steps if step[2] > 0 and step[1] < span_s],
        stalls,
        _lanes(flights),
        events,
    )


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _finding(shown: Sequence[View], span_s: float) -> str:
    """ "In 3.6 s, ssgd completes 3 steps; dts-d4-p4 11"; of equally fast ones, the one with fewer messages."""
    slow = min(shown, key=lambda view: (view.label != "ssgd", view.done))
    fast = max(shown, key=lambda view: (view.done, -sum(map(len, view.lanes))))
    text = f"In {span_s:.1f} s, {slow.label} completes {_steps(slow.done)}"
    return text if slow.done == fast.done else f"{text}; {fast.label} {fast.done}"


def _lanes(flights: list[tuple[float, float, float, str]]) -> list[list[tuple[float, float, float, str]]]:
    """Each message in the first lane that is free."""
    lanes: list[list[tuple[float, float, float, str]]] = []
    for flight in sorted(flights):
        free = next((lane for lane in lanes if lane[-1][2] <= flight[0] + 1e-9), None)
        if free is None:
            lanes.append([flight])
        else:
            free.append(flight)
    return lanes


def _draw(axes: Axes, view: View, lanes: int) -> None:
    for number, begin, end in view.steps:
        axes.barh(0.5, end - begin, 2.2, begin, color=_COMPUTE[2], edgecolor="white", linewidth=0.8, zorder=2)
        note(axes, (begin + end) / 2, 0.5, f"step {number}: {end - begin:.3f} s")
    for begin, end in view.stalls:
        if end > begin:
            look: dict[str, Any] = {"color": _STALL[2], "hatch": _STALL[3], "edgecolor": "white", "linewidth": 0}
            axes.barh(0.5, end - begin, 2.2, begin, zorder=3, **look)
    for place, lane in enumerate(view.lanes[:lanes]):
        for begin, arrived, used, text in lane:
            y = _STEP_LANES - 0.5 + place
            axes.barh(y, used - begin, 0.34, begin, color=_WAITING, linewidth=0, zorder=2)
            axes.barh(y, arrived - begin, 0.7, begin, color=_FLYING, linewidth=0, zorder=3)
            note(axes, max(begin, 0.0), y, text)
    for at, what in view.events:
        axes.axvline(at, **MARK)
        note(axes, at, -0.5, f"{what}, at {at:.3f} s")
    if len(view.lanes) > lanes:
        text = f"{len(view.lanes) - lanes} more at once"
        axes.text(0.004, 0.01, text, transform=axes.transAxes, fontsize=6, color=INK, va="bottom")
    axes.set_ylim(_STEP_LANES + lanes - 0.5, -0.8)
    axes.set_yticks([])
    axes.grid(False)
    axes.spines["left"].set_visible(False)
