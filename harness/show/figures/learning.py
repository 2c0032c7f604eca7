"""Learning curves: accuracy against steps and time, and against time on several networks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbench.harness.analysis.paired import mean_interval
from wanbench.harness.show.figures.drawing import Point
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import (
    End,
    Panels,
    label_ends,
    least_in,
    logarithmic,
    mark_break,
    marked,
    strip_in,
)
from wanbench.harness.show.figures.names import human
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN, Style, as_line, styles, wanbench_style
from wanbench.harness.text import seconds

Curve = Mapping[str, Sequence[float]]
Key = tuple[str, str]  # label and kind
Curves = Mapping[Key, tuple[Mapping[str, Any], Sequence[Curve]]]


@dataclass(frozen=True)
class Course:
    """One algorithm on one network, over its repetitions: an entry per evaluation that all of them have.

    Attributes:
        step, end_s: medians. accuracy: as a share. low, high: its band. repetitions: their number.
        before_drain: the median accuracy of rank 0's own model; empty if it was not measured, and of means.
    """

    step: list[float]
    end_s: list[float]
    accuracy: list[float]
    low: list[float]
    high: list[float]
    repetitions: int
    before_drain: list[float] = field(default_factory=list)

    @property
    def entries(self) -> Iterator[tuple[float, ...]]:
        """Step, seconds, accuracy and its band at each evaluation."""
        return zip(self.step, self.end_s, self.accuracy, self.low, self.high, strict=True)

    @property
    def result(self) -> str:
        """The last accuracy in per cent."""
        return f"{100 * self.accuracy[-1]:.1f} %"


Courses = Mapping[Key, Course]
_SHOWN_ERRORS = 6
MOST_BANDS = 4
"""With more curves, bands and dotted lines hide them: `learning` then draws the spread at the ends alone."""


def medians(curves: Sequence[Curve]) -> Course:
    """The median accuracy, with a band from minimum to maximum."""
    shortest = min(len(curve["step"]) for curve in curves)
    step, end_s, accuracy = (np.array([c[name][:shortest] for c in curves]) for name in ("step", "end_s", "accuracy"))
    own = [curve["before_drain"][:shortest] for curve in curves if "before_drain" in curve]
    return Course(
        step=np.median(step, axis=0).tolist(),
        end_s=np.median(end_s, axis=0).tolist(),
        accuracy=np.median(accuracy, axis=0).tolist(),
        low=accuracy.min(axis=0).tolist(),
        high=accuracy.max(axis=0).tolist(),
        repetitions=len(curves),
        before_drain=np.median(own, axis=0).tolist() if len(own) == len(curves) else [],
    )


def means(curves: Sequence[Curve]) -> Course:
    """The mean accuracy, with its 95 % interval as a band, which is infinite for fewer than 3 repetitions.

    An evaluation before the first step is left out: it has no place on a logarithmic time axis.
    """
    course = medians(curves)
    kept = [index for index, step in enumerate(course.step) if step]
    intervals = [mean_interval([curve["accuracy"][index] for curve in curves]) for index in kept]
    return Course(
        step=[course.step[index] for index in kept],
        end_s=[course.end_s[index] for index in kept],
        accuracy=[interval.mean for interval in intervals],
        low=[interval.low for interval in intervals],
        high=[interval.high for interval in intervals],
        repetitions=len(curves),
    )


@wanbench_style()
def learning(
    curves: Curves, data_set: str, subject: str, about: str, provenance: str, width_in: float = PAGE_IN
) -> Figure:
    """One curve per algorithm against steps, and against time if that shows more.

    Args:
        curves: (label, kind) -> (params, one curve per repetition, as `results.evidence.Evidence.curve` gives them).
        data_set: of the accuracy; the axis names it. subject, about, provenance: as for `learning_time`.
    """
    courses = {key: medians(reps) for key, (_, reps) in curves.items()}
    looks, names = _looks(curves, provenance), {key: human(*key, curves[key][0]) for key in courses}
    apart = _paces_differ(courses, 1)
    # Where workers make steps at their own pace, only the ends are at the same time.
    racing = not apart and _paces_differ(courses, 2)
    timed = apart or racing
    side_by_side = timed and width_in > COLUMN_IN
    ends = marked(_ends(courses, looks, names, side_by_side), "step {:g}")
    strip, panel_in = strip_in([end.text for end in ends]), max(1.9, least_in([end.text for end in ends]))
    more = "; in parentheses: time of the last step" if side_by_side else ""
    finding = _race(courses, names) if racing else _finding(courses, names, apart)
    sheet = Panels(
        width_in, f"{finding}\n{subject}", f"{about.removesuffix('.')}{more}.", {},
        count=2 if timed else 1, across=2 if side_by_side else 1, panel_in=panel_in, left_in=0.35,
        between_in=0.0 if side_by_side else 0.36, gap_in=strip + 0.27, right_in=0.1 if side_by_side else strip,
    )  # fmt: skip
    steps = sheet.panel(0, f"{data_set}: accuracy (%)")
    for key, course in courses.items():
        _draw(steps, course, "step", looks[key], key[0], "step {:g}", crowded=len(courses) > MOST_BANDS)
    steps.set(xlim=(0, None), xlabel="step")
    _limit(steps, min(course.accuracy[-1] for course in courses.values()))
    label_ends(steps, ends, (sheet.panel_width_in, panel_in))
    if timed:
        by_time = sheet.panel(1, f"{data_set}: accuracy (%)")
        times = [at for course in courses.values() for step, at in zip(course.step, course.end_s, strict=True) if step]
        for key, course in courses.items():
            _draw(by_time, course, "end_s", looks[key], key[0], "end {:g}", crowded=len(courses) > MOST_BANDS)
        logarithmic(by_time.xaxis, min(times) / 1.1, max(times) * 1.1)
        by_time.set(xlabel="seconds, logarithmic", ylim=steps.get_ylim())
        mark_break(by_time.yaxis)
    return sheet.figure


def _limit(axes: Axes, least: float) -> None:
    """Cut off what is far below the ends of the curves, which are apart by a fraction of the errors there.

    Args:
        least: of the last accuracies, as a share.
    """
    bottom = max(axes.get_ylim()[0], 100 - _SHOWN_ERRORS * (100 - 100 * least))
    axes.set_ylim(bottom=bottom, top=100 + (100 - bottom) / 20)
    mark_break(axes.yaxis)


def _ends(courses: Courses, looks: Mapping[Key, Style], names: Mapping[Key, str], side_by_side: bool) -> list[End]:
    """The end of each curve; beside a panel over time, its name says the seconds."""
    return [
        End(
            f"{names[key]} ({seconds(course.end_s[-1])})" if side_by_side else names[key].replace(", ", ",\n"),
            as_line(looks[key]),
            course.step[-1],
            100 * course.accuracy[-1],
            course.result,
        )
        for key, course in courses.items()
    ]


def learning_points(curves: Curves) -> list[Point]:
    """One point per algorithm and evaluation of `learning`."""
    return [
        {
            "algorithm": label,
            "repetitions": course.repetitions,
            "step": step,
            "end_s": end_s,
            "accuracy": accuracy,
            "accuracy_min": low,
            "accuracy_max": high,
            "accuracy_before_drain": before_drain,
        }
        for (label, _), (_, reps) in curves.items()
        for course in [medians(reps)]
        for (step, end_s, accuracy, low, high), before_drain in zip_longest(course.entries, course.before_drain)
    ]


@wanbench_style()
def learning_time(
    networks: Mapping[str, Curves], data_set: str, subject: str, about: str, provenance: str, width_in: float = PAGE_IN
) -> Figure:
    """Means over repetitions against one logarithmic time axis, one panel per network, the fastest first.

    Args:
        networks: name -> curves, as for `learning`. data_set: of the accuracy. subject: below the title.
        about: the caption. provenance: "emulated", "simulated" or both.
    """
    by_network = by_speed(networks)
    merged = {key: entry for curves in networks.values() for key, entry in curves.items()}
    looks = _looks(merged, provenance)
    names = {key: human(*key, params).replace(", ", ",\n") for key, (params, _) in merged.items()}
    beside = width_in > COLUMN_IN
    panel_in, strip = max(1.7, least_in(list(names.values()))), strip_in(list(names.values()))
    sheet = Panels(
        width_in, f"{_finding_by_time(by_network, names)}\n{subject}", about, {},
        count=len(by_network), across=len(by_network) if beside else 1, panel_in=panel_in, left_in=0.5, right_in=strip,
    )  # fmt: skip
    every = [course for courses in by_network.values() for course in courses.values()]
    times = [time for course in every for time in course.end_s]
    for index, (network, courses) in enumerate(by_network.items()):
        axes = sheet.panel(index, network)
        for key, course in courses.items():
            _draw(axes, course, "end_s", looks[key], f"{key[0]}, {network}", "{:.4g} s")
        axes.set_ylim(100 * min(min(course.accuracy) for course in every) - 3, 101)
        logarithmic(axes.xaxis, min(times) / 1.2, max(times) * 1.2)
        mark_break(axes.yaxis)
        sheet.label(index, "seconds, logarithmic", f"{data_set}: accuracy (%)", fontsize=6.5)
        if not beside or index == len(by_network) - 1:
            ends = [
                End(names[key], as_line(looks[key]), course.end_s[-1], 100 * course.accuracy[-1], course.result)
                for key, course in courses.items()
            ]
            label_ends(axes, ends, (sheet.panel_width_in, panel_in))
    return sheet.figure


def by_speed(networks: Mapping[str, Curves]) -> dict[str, Courses]:
    """The courses on every network, the one that ends first in front."""
    courses = {name: {key: means(reps) for key, (_, reps) in curves.items()} for name, curves in networks.items()}
    return dict(sorted(courses.items(), key=lambda entry: max(course.end_s[-1] for course in entry[1].values())))


def learning_time_points(networks: Mapping[str, Curves]) -> list[Point]:
    """One point per network, algorithm and evaluation of `learning_time`."""
    return [
        {
            "network": network,
            "algorithm": label,
            "repetitions": course.repetitions,
            "step": step,
            "end_s": end_s,
            "accuracy": accuracy,
            "accuracy_low_95": low if np.isfinite(low) else None,
            "accuracy_high_95": high if np.isfinite(high) else None,
        }
        for network, courses in by_speed(networks).items()
        for (label, _), course in courses.items()
        for step, end_s, accuracy, low, high in course.entries
    ]


def _looks(curves: Curves, provenance: str) -> dict[Key, Style]:
    looks = styles([(label, kind, params) for (label, kind), (params, _) in curves.items()], provenance)
    return {key: looks[key[0]] for key in curves}


def _draw(axes: Axes, course: Course, x: str, look: Style, name: str, at: str, *, crowded: bool = False) -> None:
    """A curve, its band, and a note on every point, in which `at` is the format of x."""
    xs = np.array(getattr(course, x))
    # An evaluation before the first step has no place on a logarithmic time axis.
    shown = xs > (-1 if x == "step" else 0)
    xs = xs[shown]
    percent, low, high = (100 * np.array(values)[shown] for values in (course.accuracy, course.low, course.high))
    axes.plot(xs, percent, markevery=max(1, len(xs) // 6), **as_line(look))
    if course.before_drain and not crowded:
        axes.plot(xs, 100 * np.array(course.before_drain)[shown], color=look.colour, linewidth=0.7, linestyle=":")
    if course.repetitions > 1 and np.isfinite(low).all():
        if crowded:
            axes.vlines(xs[-1], low[-1], high[-1], color=look.colour, linewidth=0.7)
        else:
            axes.fill_between(xs, low, high, color=look.colour, alpha=0.15, linewidth=0)
    for x_value, value in zip(xs, percent, strict=True):
        note(axes, x_value, float(value), f"{name}: {value:.2f} % at {at.format(x_value)}")


def _paces_differ(courses: Courses, part: int) -> bool:
    """False if time against accuracy would show what steps show already, to the end or to the middle (`part` 2)."""
    evaluations = [[*course.entries][len(course.step) // 2 if part == 2 else -1] for course in courses.values()]
    paces = [end_s / step for step, end_s, *_ in evaluations if step]
    return bool(paces) and max(paces) > 1.05 * min(paces)


def _finding(courses: Courses, names: Mapping[Key, str], apart: bool) -> str:
    """ "SSGD trains to 96.7 % in 42 s; DTS d20 p4 to 97.2 % in 7.0 s"; of equally fast ones, the accuracies alone."""
    if apart:
        slow = min(courses, key=lambda key: (key[1] != "ssgd", -courses[key].end_s[-1]))
        fast = min(
            reversed(list(courses)), key=lambda key: (round(courses[key].end_s[-1], 1), -courses[key].accuracy[-1])
        )
    else:
        slow, fast = (pick(courses, key=lambda key: courses[key].accuracy[-1]) for pick in (max, min))
    spread = [(courses[key].low[-1], courses[key].high[-1]) for key in (slow, fast)]
    overlap = max(spread)[0] <= min(high for _, high in spread)
    tie = ("; their accuracies overlap" if apart else ": no clear difference") if overlap else ""
    took = {key: f" in {seconds(courses[key].end_s[-1])}" if apart else "" for key in (slow, fast)}
    first, second = (f"to {courses[key].result}{took[key]}" for key in (slow, fast))
    if courses[slow].step[-1] != courses[fast].step[-1]:
        first, second = (f"{text} ({courses[key].step[-1]:g} steps)" for text, key in ((first, slow), (second, fast)))
    text = f"{names[slow]} trains {first}"
    return text if slow == fast else f"{text}; {names[fast]} {second}{tie}"


def _race(courses: Courses, names: Mapping[Key, str]) -> str:
    """ "ssgd is at 95 % after 114 s; async-local-sgd-p10 after 50 s": at what all reach, in steps of 5 %."""
    level = np.floor(20 * min(course.accuracy[-1] for course in courses.values())) / 20
    times = {
        key: next((s for s, a in zip(course.end_s, course.accuracy, strict=True) if a >= level), course.end_s[-1])
        for key, course in courses.items()
    }
    slow = min(times, key=lambda key: (key[1] != "ssgd", -times[key]))
    fast = min(times, key=lambda key: times[key])
    text = f"{names[slow]} is at {100 * level:.0f} % after {seconds(times[slow])}"
    return text if slow == fast else f"{text}; {names[fast]} after {seconds(times[fast])}"


def _finding_by_time(by_network: Mapping[str, Courses], names: Mapping[Key, str]) -> str:
    """ "On world4, ssgd takes 42 s (96.7 %) to train; dts-d20-p4 7.0 s (97.2 %)"."""
    network, courses = list(by_network.items())[-1]
    slow = min(courses, key=lambda key: (key[1] != "ssgd", -courses[key].end_s[-1]))
    fast = min(courses, key=lambda key: courses[key].end_s[-1])
    where = f"At {network.removeprefix('RTT ')}" if network.startswith("RTT ") else f"On {network}"
    first, second = (f"{seconds(courses[key].end_s[-1])} ({courses[key].result})" for key in (slow, fast))
    text = f"{where}, {names[slow].replace(chr(10), ' ')} takes {first} to train"
    return text if slow == fast else f"{text}; {names[fast].replace(chr(10), ' ')} {second}"
