"""Step time against time, while the network changes: one panel per algorithm, with the changes marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath

from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels
from wanbench.harness.show.figures.style import FAINT, INK, PAGE_IN, Style, styles, wanbench_style

_PANEL_IN = 0.62
_NAME_PT, _GAP_PT, _PT_PER_IN = 6.0, 2.0, 72
_SLOWEST: dict[str, Any] = {"linewidth": 1.2, "zorder": 3}
_FASTEST: dict[str, Any] = {"linewidth": 0.8, "linestyle": (0, (1, 1)), "zorder": 4}
MARK: dict[str, Any] = {"color": INK, "linewidth": 0.7, "linestyle": (0, (3, 2)), "zorder": 1}
MARKS = (
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

    Raises:
        AnalysisError: nothing to draw.
    """
    if not paces:
        raise AnalysisError("no repetition has kept its steps; there is no step time to draw against time")
    looks = styles([(one.label, one.kind, one.params) for one in paces])
    span_s = max(one.slowest["end_s"][-1] for one in paces)
    lines = {
        "slowest worker": {"color": INK, **_SLOWEST},
        "fastest worker": {"color": INK, **_FASTEST},
        "a change": MARK,
    }
    entries = {label: Line2D([], [], **look) for label, look in lines.items()}
    heading = f"{_finding(paces)}\n{title}"
    sheet = Panels(width_in, heading, about, entries, count=len(paces), across=1, panel_in=_PANEL_IN)
    for index, one in enumerate(paces):
        axes = sheet.panel(index, _title(one))
        _draw(axes, one, looks[one.label])
        axes.set_xlim(0, span_s)
        _name(axes, one.events, span_s)
        sheet.label(index, "seconds since all workers began", "step time (s)" if index == len(paces) // 2 else "")
    return sheet.figure


def _title(one: Pace) -> str:
    return f"{one.label}: {len(one.slowest['end_s'])} steps, the longest {_longest_s(one):.2f} s"


def _finding(paces: Sequence[Pace]) -> str:
    """ "The longest step takes 5.3 s with ssgd; 0.31 s with dts-d20-p4"."""
    longest, shortest = max(paces, key=_longest_s), min(paces, key=_longest_s)
    text = f"The longest step takes {_longest_s(longest):.2g} s with {longest.label}"
    return text if longest is shortest else f"{text}; {_longest_s(shortest):.2g} s with {shortest.label}"


def _longest_s(one: Pace) -> float:
    return float(max(one.slowest["step_time_s"] + one.fastest["step_time_s"]))


def _draw(axes: Axes, one: Pace, look: Style) -> None:
    for worker, line in ((one.fastest, _FASTEST), (one.slowest, _SLOWEST)):
        times: list[float] = []
        values: list[float] = []
        for end, seconds in zip(worker["end_s"], worker["step_time_s"], strict=True):
            times += [end - seconds, end]
            values += [seconds, seconds]
            text = f"{one.label}, worker {worker['rank']}: a step of {seconds:.3f} s, ended at {end:.2f} s"
            note(axes, end - seconds / 2, seconds, text)
        axes.plot(times, values, color=look.colour, **line)
    longest = _longest_s(one)
    axes.set_ylim(0, longest * 1.25)
    for seconds, what in one.events:
        axes.axvline(seconds, **MARK)
        note(axes, seconds, longest, f"{what}, at {seconds:.2f} s")


def _name(axes: Axes, events: Sequence[tuple[float, str]], span_s: float) -> None:
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
