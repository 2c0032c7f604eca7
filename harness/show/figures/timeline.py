"""A run against time: steps and messages of one worker, and the step time while the network changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from wanbench.harness.analysis.summary import records
from wanbench.harness.show.figures.bars import PARTS, bar_look
from wanbench.harness.show.figures.drawing import Point
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels
from wanbench.harness.show.figures.style import FAINT, INK, PAGE_IN, Style, styles, wanbench_style

_CHANGE: dict[str, Any] = {"color": INK, "linewidth": 0.7, "linestyle": (0, (3, 2)), "zorder": 1}

_STEPS_SHOWN = 12
_COMPUTE, _STALL = PARTS[0], PARTS[1]
_FLYING, _WAITING = "#4477AA", "#BBBBBB"
_LANE_IN, _STEP_LANES = 0.052, 3
_MOST_LANES = 14
TIMELINE_MARKS = (
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
        traces: from top to bottom. title: the subject, below the finding. about: the caption, with `TIMELINE_MARKS`.
        width_in: of the figure.
    """
    shown, span_s = views(traces)
    lanes = min(_MOST_LANES, max([2, *(len(view.lanes) for view in shown)]))
    entries = {label: Patch(**bar_look(colour, hatch, "emulated")) for _, label, colour, hatch in (_COMPUTE, _STALL)}
    entries["in flight"] = Patch(facecolor=_FLYING, linewidth=0)
    entries["arrived, not yet used"] = Patch(facecolor=_WAITING, linewidth=0)
    panel_in = _LANE_IN * (lanes + _STEP_LANES)
    heading = f"{_timeline_finding(shown, span_s)}\n{title}"
    sheet = Panels(width_in, heading, about, entries, count=len(shown), across=1, panel_in=panel_in, left_in=0.12)
    for index, view in enumerate(shown):
        axes = sheet.panel(index, f"{view.label}: {_steps(view.done)}")
        _draw_view(axes, view, lanes)
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


def _timeline_finding(shown: Sequence[View], span_s: float) -> str:
    """ "In 3.6 s, SSGD completes 3 steps; DTS d4 p4 11"; of equally fast ones, the one with fewer messages."""
    slow = min(shown, key=lambda view: (view.label != "SSGD", view.done))
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


def _draw_view(axes: Axes, view: View, lanes: int) -> None:
    for number, begin, end in view.steps:
        axes.barh(0.5, end - begin, 2.2, begin, color=_COMPUTE[2], edgecolor="white", linewidth=0.8, zorder=2)
        note(axes, (begin + end) / 2, 0.5, f"step {number}: {end - begin:.3f} s")
    for begin, end in view.stalls:
        if end > begin:
            look: dict[str, Any] = {"color": _STALL[2], "hatch": _STALL[3], "edgecolor": "white", "linewidth": 0}
            axes.barh(0.5, end - begin, 2.2, begin, zorder=3, **look)
    for lane_index, lane in enumerate(view.lanes[:lanes]):
        for begin, arrived, used, text in lane:
            y = _STEP_LANES - 0.5 + lane_index
            axes.barh(y, used - begin, 0.34, begin, color=_WAITING, linewidth=0, zorder=2)
            axes.barh(y, arrived - begin, 0.7, begin, color=_FLYING, linewidth=0, zorder=3)
            note(axes, max(begin, 0.0), y, text)
    for at, what in view.events:
        axes.axvline(at, **_CHANGE)
        note(axes, at, -0.5, f"{what}, at {at:.3f} s")
    if len(view.lanes) > lanes:
        text = f"{len(view.lanes) - lanes} more at once"
        axes.text(0.004, 0.01, text, transform=axes.transAxes, fontsize=6, color=INK, va="bottom")
    axes.set_ylim(_STEP_LANES + lanes - 0.5, -0.8)
    axes.set_yticks([])
    axes.grid(False)
    axes.spines["left"].set_visible(False)


def timeline_points(traces: Sequence[Trace]) -> list[Point]:
    """One point per bar in view: steps, stalls, messages, changes; seconds since the first measured step began."""
    return [point for view in views(traces)[0] for point in _of_view(view)]


def _of_view(view: View) -> Iterator[Point]:
    def bar(what: str, begin_s: float, end_s: float, arrived_s: float | None = None, note: str = "") -> Point:
        times = {"begin_s": begin_s, "end_s": end_s, "arrived_s": arrived_s}
        return {"algorithm": view.label, "what": what, **times, "note": note}

    yield from (bar("step", begin, end, note=str(number)) for number, begin, end in view.steps)
    yield from (bar("stall", begin, end) for begin, end in view.stalls if end > begin)
    flights = [flight for lane in view.lanes for flight in lane]
    yield from (bar("message", begin, used, arrived, note) for begin, arrived, used, note in flights)
    yield from (bar("change", at, at, note=what) for at, what in view.events)


# Step time against time.

_PACE_IN = 0.62
_NAME_PT, _GAP_PT, _PT_PER_IN = 6.0, 2.0, 72
_SLOWEST: dict[str, Any] = {"linewidth": 1.2, "zorder": 3}
_FASTEST: dict[str, Any] = {"linewidth": 0.8, "linestyle": (0, (1, 1)), "zorder": 4}
PACE_MARKS = (
    "one repetition each: the length of each step, drawn over the time it took, of the worker that finished last and "
    "of the one that finished first"
)


@dataclass(frozen=True)
class Pace:
    """One repetition.

    Attributes:
        label, kind, params: of the algorithm.
        slowest, fastest: `end_s` and `step_time_s` of each step of these workers (`Evidence.pace`).
        events: (seconds, what) of each change of the network, at its real time.
    """

    label: str
    kind: str
    params: Mapping[str, Any]
    slowest: Mapping[str, Any]
    fastest: Mapping[str, Any]
    events: Sequence[tuple[float, str]]


@wanbench_style()
def pace(paces: Sequence[Pace], title: str, about: str, width_in: float = PAGE_IN) -> Figure:
    """One panel per algorithm, from top to bottom, on one time axis.

    Args:
        title: the subject, below the finding. about: the caption. width_in: of the figure.
    """
    looks = styles([(course.label, course.kind, course.params) for course in paces])
    span_s = max(course.slowest["end_s"][-1] for course in paces)
    lines = {
        "slowest worker": {"color": INK, **_SLOWEST},
        "fastest worker": {"color": INK, **_FASTEST},
        "a change": _CHANGE,
    }
    entries = {label: Line2D([], [], **look) for label, look in lines.items()}
    heading = f"{_pace_finding(paces)}\n{title}"
    sheet = Panels(width_in, heading, about, entries, count=len(paces), across=1, panel_in=_PACE_IN)
    for index, course in enumerate(paces):
        steps = f"{len(course.slowest['end_s'])} steps, the longest {_longest_s(course):.2f} s"
        axes = sheet.panel(index, f"{course.label}: {steps}")
        _draw_pace(axes, course, looks[course.label])
        axes.set_xlim(0, span_s)
        _name_changes(axes, course.events, span_s)
        sheet.label(index, "seconds since all workers began", "step time (s)" if index == len(paces) // 2 else "")
    return sheet.figure


def _pace_finding(paces: Sequence[Pace]) -> str:
    """ "The longest step takes 5.3 s with ssgd; 0.31 s with dts-d20-p4"."""
    longest, shortest = max(paces, key=_longest_s), min(paces, key=_longest_s)
    text = f"The longest step takes {_longest_s(longest):.2g} s with {longest.label}"
    return text if longest is shortest else f"{text}; {_longest_s(shortest):.2g} s with {shortest.label}"


def _longest_s(course: Pace) -> float:
    return float(max(course.slowest["step_time_s"] + course.fastest["step_time_s"]))


def _draw_pace(axes: Axes, course: Pace, look: Style) -> None:
    for worker, line in ((course.fastest, _FASTEST), (course.slowest, _SLOWEST)):
        times: list[float] = []
        values: list[float] = []
        for end, seconds in zip(worker["end_s"], worker["step_time_s"], strict=True):
            times += [end - seconds, end]
            values += [seconds, seconds]
            text = f"{course.label}, worker {worker['rank']}: a step of {seconds:.3f} s, ended at {end:.2f} s"
            note(axes, end - seconds / 2, seconds, text)
        axes.plot(times, values, color=look.colour, **line)
    longest = _longest_s(course)
    axes.set_ylim(0, longest * 1.25)
    for seconds, what in course.events:
        axes.axvline(seconds, **_CHANGE)
        note(axes, seconds, longest, f"{what}, at {seconds:.2f} s")


def _name_changes(axes: Axes, events: Sequence[tuple[float, str]], span_s: float) -> None:
    """Name each change beside its mark if it fits before the next one; the caption lists them all."""
    wide_pt = axes.get_position().width * axes.figure.get_figure(root=True).get_figwidth() * _PT_PER_IN
    ends = [*(seconds for seconds, _ in events[1:]), span_s]
    for (seconds, what), end in zip(events, ends, strict=True):
        name = what.removeprefix("everywhere: ")
        text_pt = TextPath((0, 0), name, size=_NAME_PT, usetex=False).get_extents().width
        if text_pt + 2 * _GAP_PT <= (end - seconds) / span_s * wide_pt:
            axes.annotate(
                name, (seconds, 1.0), (_GAP_PT, -_GAP_PT), xycoords=("data", "axes fraction"), fontsize=_NAME_PT,
                textcoords="offset points", color=FAINT, va="top", clip_on=True,
            )  # fmt: skip


def pace_points(paces: Sequence[Pace]) -> list[Point]:
    """One point per step of the slowest and of the fastest worker, in seconds since all workers began."""
    return [
        {"algorithm": course.label, "worker": which, "rank": worker["rank"], "end_s": end_s, "step_time_s": seconds}
        for course in paces
        for which, worker in (("slowest", course.slowest), ("fastest", course.fastest))
        for end_s, seconds in zip(worker["end_s"], worker["step_time_s"], strict=True)
    ]
