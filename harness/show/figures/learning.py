"""Learning curves: accuracy against steps, and against time on the emulated or simulated network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.show.figures.ends import End, label_ends, least_in, marked, strip_in
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels, logarithmic
from wanbench.harness.show.figures.names import human
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN, Style, line, styles, wanbench_style

Curve = Mapping[str, Sequence[float]]
Key = tuple[str, str]  # label and kind
Curves = Mapping[Key, tuple[Mapping[str, Any], Sequence[Curve]]]


@wanbench_style()
def learning(
    curves: Curves,
    data_set: str,
    subject: str,
    about: str,
    width_in: float = PAGE_IN,
) -> Figure:
    """One curve per algorithm: the median over repetitions, with a band from minimum to maximum.

    Args:
        curves: (label, kind) -> (params, one curve per repetition, as `results.evidence.Evidence.curve` gives them).
        data_set: of the accuracy; the axis names it. subject: below the title. about: the caption.

    Raises:
        AnalysisError: there is no curve.
    """
    known = {key: found for key, (_, found) in curves.items() if found}
    if not known:
        raise AnalysisError("no repetition has evaluated its accuracy; there is no learning curve to draw")
    looks = styles([(label, kind, params) for (label, kind), (params, _) in curves.items()])
    ends = {key: _last(found) for key, found in known.items()}
    names = {key: human(*key, curves[key][0]) for key in known}
    apart = not _times_differ(list(ends.values())) and _times_differ([_middle(found) for found in known.values()])
    timed = apart or _times_differ(list(ends.values()))
    side_by_side = timed and width_in > COLUMN_IN
    labels = {
        key: f"{name} ({seconds_text(ends[key].seconds)})" if side_by_side else name.replace(" + ", "\n+ ")
        for key, name in names.items()
    }
    last = marked(
        [
            End(labels[key], line(looks[key[0]]), end.step, 100 * end.accuracy, _percent(end))
            for key, end in ends.items()
        ],
        "step {:g}",
    )
    texts = [end.text for end in last]
    strip, panel_in = strip_in(texts), max(1.9, least_in(texts))
    more = "; in parentheses: time of the last step" if side_by_side else ""
    finding = _race(known, ends, names) if apart else _finding(ends, names)
    sheet = Panels(
        width_in, f"{finding}\n{subject}", f"{about.removesuffix('.')}{more}.", {},
        count=2 if timed else 1, across=2 if side_by_side else 1, panel_in=panel_in, left_in=0.35,
        between_in=0.0 if side_by_side else 0.36, gap_in=strip + 0.27, right_in=0.1 if side_by_side else strip,
    )  # fmt: skip
    steps = sheet.panel(0, f"{data_set}: accuracy (%)")
    _by_step(steps, known, looks)
    label_ends(steps, last, (sheet.panel_width_in, panel_in))
    if timed:
        seconds = sheet.panel(1, f"{data_set}: accuracy (%)")
        _by_time(seconds, known, looks)
        seconds.set_ylim(steps.get_ylim())
    return sheet.figure


def _by_step(axes: Axes, known: Mapping[Key, Sequence[Curve]], looks: Mapping[str, Style]) -> None:
    _draw(axes, "step", known, looks)
    axes.set_xlim(left=0)
    axes.set_ylim(top=101)
    axes.set_xlabel("step")


def _by_time(axes: Axes, known: Mapping[Key, Sequence[Curve]], looks: Mapping[str, Style]) -> None:
    _draw(axes, "end_s", known, looks)
    times = [time for found in known.values() for curve in found for time in curve["end_s"] if time > 0]
    logarithmic(axes.xaxis, min(times) / 1.1, max(times) * 1.1)
    axes.set_xlabel("seconds, logarithmic")


def _draw(axes: Axes, x: str, known: Mapping[Key, Sequence[Curve]], looks: Mapping[str, Style]) -> None:
    for (name, _), found in known.items():
        _curve(axes, x, found, looks[name], name)


@dataclass(frozen=True)
class _Last:
    """Medians of one evaluation, usually the last."""

    step: float
    seconds: float
    accuracy: float


def _last(found: Sequence[Curve]) -> _Last:
    return _at(found, min(len(curve["step"]) for curve in found) - 1)


def _middle(found: Sequence[Curve]) -> _Last:
    """The evaluation in the middle: where workers make steps at their own pace, only the ends are at the same time."""
    return _at(found, min(len(curve["step"]) for curve in found) // 2)


def _at(found: Sequence[Curve], place: int) -> _Last:
    step, seconds, accuracy = (
        float(np.median([curve[name][place] for curve in found])) for name in ("step", "end_s", "accuracy")
    )
    return _Last(step, seconds, accuracy)


def _times_differ(ends: Sequence[_Last]) -> bool:
    """False if time against accuracy would show what steps show already."""
    paces = [end.seconds / end.step for end in ends if end.step]
    return bool(paces) and max(paces) > 1.05 * min(paces)


def _finding(ends: Mapping[Key, _Last], names: Mapping[Key, str]) -> str:
    """ "ssgd trains to 96.7 % in 42 s; dts-d20-p4 to 97.2 % in 7.0 s"."""
    if _times_differ(list(ends.values())):
        slow = min(ends, key=lambda key: (key[1] != "ssgd", -ends[key].seconds))
        fast = min(reversed(list(ends)), key=lambda key: (round(ends[key].seconds, 1), -ends[key].accuracy))
    else:
        slow, fast = (pick(ends, key=lambda key: ends[key].accuracy) for pick in (max, min))
    first, second = (f"to {_percent(ends[key])} in {seconds_text(ends[key].seconds)}" for key in (slow, fast))
    if ends[slow].step != ends[fast].step:
        first, second = (f"{text} ({ends[key].step:g} steps)" for text, key in ((first, slow), (second, fast)))
    text = f"{names[slow]} trains {first}"
    return text if slow == fast else f"{text}; {names[fast]} {second}"


def _race(known: Mapping[Key, Sequence[Curve]], ends: Mapping[Key, _Last], names: Mapping[Key, str]) -> str:
    """ "ssgd is at 95 % after 114 s; async-local-sgd-p10 after 50 s": at what all reach, in steps of 5 %."""
    level = np.floor(20 * min(end.accuracy for end in ends.values())) / 20
    times = {}
    for key, found in known.items():
        _, seconds, accuracy, *_ = middle(found)
        times[key] = next((s for s, a in zip(seconds, accuracy, strict=True) if a >= level), ends[key].seconds)
    slow = min(times, key=lambda key: (key[1] != "ssgd", -times[key]))
    fast = min(times, key=lambda key: times[key])
    text = f"{names[slow]} is at {100 * level:.0f} % after {seconds_text(times[slow])}"
    return text if slow == fast else f"{text}; {names[fast]} after {seconds_text(times[fast])}"


def _percent(end: _Last) -> str:
    return f"{100 * end.accuracy:.1f} %"


def seconds_text(seconds: float) -> str:
    """A time in a title: "42 s", "7.0 s"."""
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _curve(axes: Axes, x: str, found: Sequence[Curve], look: Style, name: str) -> None:
    step, end_s, *accuracy = middle(found)
    at = np.array(step if x == "step" else end_s)
    # An evaluation before the first step has no place on a logarithmic time axis.
    drawn = at > (-1 if x == "step" else 0)
    at, (percent, low, high) = at[drawn], (100 * np.array(each)[drawn] for each in accuracy)
    axes.plot(at, percent, markevery=max(1, len(at) // 6), **line(look))
    if len(found) > 1:
        axes.fill_between(at, low, high, color=look.colour, alpha=0.15, linewidth=0)
    for place, value in zip(at, percent, strict=True):
        note(axes, place, float(value), f"{name}: {value:.2f} % at {x.removesuffix('_s')} {place:g}")


def middle(found: Sequence[Curve]) -> tuple[list[float], ...]:
    """Step, seconds, accuracy, its minimum and its maximum at each evaluation: medians over repetitions."""
    shortest = min(len(curve["step"]) for curve in found)
    step, end_s, accuracy = (np.array([c[name][:shortest] for c in found]) for name in ("step", "end_s", "accuracy"))
    medians = (np.median(each, axis=0) for each in (step, end_s, accuracy))
    return tuple(each.tolist() for each in (*medians, accuracy.min(axis=0), accuracy.max(axis=0)))
