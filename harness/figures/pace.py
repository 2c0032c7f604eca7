"""How long steps take as the network changes: step time against time, one panel an algorithm, changes marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.analysis import AnalysisError
from harness.figures.hover import note
from harness.figures.layout import Panels, Sheet
from harness.figures.style import FAINT, INK, PAGE_IN, Style, styles, wanbench_style

_PANEL_IN = 0.62
_MOST_NAMED = 8
MARK: dict[str, Any] = {"color": INK, "linewidth": 0.7, "linestyle": (0, (3, 2)), "zorder": 1}
MARKS = (
    "one repetition each: the slowest worker's time of each step, drawn over the time that the step took; dashed: the "
    "network changes"
)


@dataclass(frozen=True)
class Pace:
    """One repetition.

    Attributes:
        label, kind, params: of the algorithm.
        end_s, step_time_s: of each step, the slowest worker's; since all workers began.
        events: (seconds, what) of each change of the network, when it really came.
    """

    label: str
    kind: str
    params: Mapping[str, Any]
    end_s: Sequence[float]
    step_time_s: Sequence[float]
    events: Sequence[tuple[float, str]]


def pace(paces: Sequence[Pace], title: str, about: str, width_in: float = PAGE_IN) -> Figure:
    """One panel an algorithm, from top to bottom, on one time axis.

    Args:
        title: above. about: the caption. width_in: of the figure.

    Raises:
        AnalysisError: nothing to draw.
    """
    if not paces:
        raise AnalysisError("no repetition has kept its steps; there is no step time to draw against time")
    looks = styles([(one.label, one.kind, one.params) for one in paces])
    panels = Panels(len(paces), 1, _PANEL_IN)
    span_s = max(one.end_s[-1] for one in paces)
    with wanbench_style():
        sheet = Sheet(width_in, panels.height_in, title, about, ["step time", "the network changes"])
        for index, one in enumerate(paces):
            axes = panels.axes(sheet, index)
            _draw(axes, one, looks[one.label])
            axes.set_xlim(0, span_s)
            axes.tick_params(labelbottom=index == len(paces) - 1)
            if index == len(paces) // 2:
                axes.set_ylabel("step time (s)")
        axes.set_xlabel("seconds since all workers began")
        sheet.legend([Line2D([], [], color=INK, linewidth=1.2), Line2D([], [], **MARK)])
    return sheet.figure


def _draw(axes: Axes, one: Pace, look: Style) -> None:
    times: list[float] = []
    values: list[float] = []
    for end, seconds in zip(one.end_s, one.step_time_s, strict=True):
        times += [max(end - seconds, times[-1] if times else 0.0), end]
        values += [seconds, seconds]
        note(axes, end - seconds / 2, seconds, f"{one.label}: a step of {seconds:.3f} s, ended at {end:.2f} s")
    axes.plot(times, values, color=look.colour, linewidth=1.2, zorder=3)
    longest = max(one.step_time_s)
    axes.set_title(
        f"{one.label}: {len(one.end_s)} steps, the longest {longest:.2f} s", fontsize=7, fontweight="normal", pad=2
    )
    axes.set_ylim(0, longest * 1.25)
    for place, (seconds, what) in enumerate(one.events):
        axes.axvline(seconds, **MARK)
        note(axes, seconds, longest, f"{what}, at {seconds:.2f} s")
        if place < _MOST_NAMED and len(one.events) <= _MOST_NAMED:
            axes.annotate(
                what, (seconds, 1.0), (2, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                fontsize=5.5, color=FAINT, va="top", clip_on=True, parse_math=False,
            )  # fmt: skip
