"""Accuracy against time, one panel per network, the fastest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbench.harness.analysis.paired import mean_interval
from wanbench.harness.show.figures.ends import End, label_ends, least_in, strip_in
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Panels, logarithmic
from wanbench.harness.show.figures.learning import Curve, Curves, Key, seconds_text
from wanbench.harness.show.figures.names import human
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN, Style, line, styles, wanbench_style


@dataclass(frozen=True)
class Course:
    """One algorithm on one network: an entry per evaluation.

    Attributes:
        step, end_s: medians over repetitions. accuracy: means, as shares.
        low, high: the 95 % interval of the mean; infinite for fewer than 3 repetitions. repetitions: their number.
    """

    step: list[float]
    end_s: list[float]
    accuracy: list[float]
    low: list[float]
    high: list[float]
    repetitions: int


def course(found: Sequence[Curve]) -> Course:
    """The course of the repetitions of one cell, up to the last evaluation that all of them have.

    An evaluation before the first step is left out: it has no place on a logarithmic time axis.
    """
    shortest = min(len(curve["step"]) for curve in found)
    step, end_s = (
        np.median([curve[name][:shortest] for curve in found], axis=0).tolist() for name in ("step", "end_s")
    )
    places = [place for place in range(shortest) if end_s[place] > 0]
    intervals = [mean_interval([curve["accuracy"][place] for curve in found]) for place in places]
    return Course(
        step=[step[place] for place in places],
        end_s=[end_s[place] for place in places],
        accuracy=[mean for mean, _, _ in intervals],
        low=[low for _, low, _ in intervals],
        high=[high for _, _, high in intervals],
        repetitions=len(found),
    )


def by_speed(networks: Mapping[str, Curves]) -> dict[str, dict[Key, Course]]:
    """The courses on every network, the one that ends first in front."""
    found = {name: {key: course(reps) for key, (_, reps) in curves.items()} for name, curves in networks.items()}
    return dict(sorted(found.items(), key=lambda entry: max(each.end_s[-1] for each in entry[1].values())))


@wanbench_style()
def learning_time(
    networks: Mapping[str, Curves], data_set: str, subject: str, about: str, width_in: float = PAGE_IN
) -> Figure:
    """Means over repetitions, with a band of 95 % if there are at least three, on one logarithmic time axis.

    Args:
        networks: name -> curves, as for `learning.learning`. data_set: of the accuracy. subject: below the title.
        about: the caption.
    """
    found = by_speed(networks)
    kinds = {key: params for curves in networks.values() for key, (params, _) in curves.items()}
    looks = styles([(label, kind, params) for (label, kind), params in kinds.items()])
    names = {key: human(*key, params).replace(" + ", "\n+ ") for key, params in kinds.items()}
    beside = width_in > COLUMN_IN
    panel_in, strip = max(1.7, least_in(list(names.values()))), strip_in(list(names.values()))
    sheet = Panels(
        width_in, f"{_finding(found, names)}\n{subject}", about, {},
        count=len(found), across=len(found) if beside else 1, panel_in=panel_in, left_in=0.5, right_in=strip,
    )  # fmt: skip
    times = [time for courses in found.values() for each in courses.values() for time in each.end_s]
    lowest = min(value for courses in found.values() for each in courses.values() for value in each.accuracy)
    for index, (network, courses) in enumerate(found.items()):
        axes = sheet.panel(index, network)
        for key, each in courses.items():
            _draw(axes, each, looks[key[0]], f"{key[0]}, {network}")
        axes.set_ylim(100 * lowest - 3, 101)
        logarithmic(axes.xaxis, min(times) / 1.2, max(times) * 1.2)
        sheet.label(index, "seconds, logarithmic", f"{data_set}: accuracy (%)", fontsize=6.5)
        if not beside or index == len(found) - 1:
            ends = [_end(each, names[key], looks[key[0]]) for key, each in courses.items()]
            label_ends(axes, ends, (sheet.panel_width_in, panel_in))
    return sheet.figure


def _draw(axes: Axes, course: Course, look: Style, about: str) -> None:
    percent, low, high = (100 * np.array(each) for each in (course.accuracy, course.low, course.high))
    axes.plot(course.end_s, percent, markevery=max(1, len(percent) // 6), **line(look))
    if np.isfinite(low).all():
        axes.fill_between(course.end_s, low, high, color=look.colour, alpha=0.15, linewidth=0)
    for seconds, value in zip(course.end_s, percent, strict=True):
        note(axes, seconds, float(value), f"{about}: {value:.2f} % at {seconds:.4g} s")


def _end(course: Course, name: str, look: Style) -> End:
    percent = 100 * course.accuracy[-1]
    return End(name, line(look), course.end_s[-1], percent, f"{percent:.1f} %")


def _finding(found: Mapping[str, Mapping[Key, Course]], names: Mapping[Key, str]) -> str:
    """ "On world4, ssgd takes 42 s to the end of training (96.7 %); dts-d20-p4 7.0 s (97.2 %)"."""
    network, courses = list(found.items())[-1]
    slow = min(courses, key=lambda key: (key[1] != "ssgd", -courses[key].end_s[-1]))
    fast = min(courses, key=lambda key: courses[key].end_s[-1])
    where = f"At {network.removeprefix('RTT ')}" if network.startswith("RTT ") else f"On {network}"
    text = f"{where}, {_takes(courses[slow], names[slow], ' takes')} to train"
    return text if slow == fast else f"{text}; {_takes(courses[fast], names[fast], '')}"


def _takes(course: Course, name: str, verb: str) -> str:
    return f"{name.replace(chr(10), ' ')}{verb} {seconds_text(course.end_s[-1])} ({100 * course.accuracy[-1]:.1f} %)"


def points(networks: Mapping[str, Curves]) -> list[dict[str, Any]]:
    """One point per network, algorithm and evaluation; accuracies are shares."""
    return [
        {
            "network": network,
            "algorithm": key[0],
            "repetitions": each.repetitions,
            "step": step,
            "end_s": end_s,
            "accuracy": accuracy,
            "accuracy_low_95": low if np.isfinite(low) else None,
            "accuracy_high_95": high if np.isfinite(high) else None,
        }
        for network, courses in by_speed(networks).items()
        for key, each in courses.items()
        for step, end_s, accuracy, low, high in zip(
            each.step, each.end_s, each.accuracy, each.low, each.high, strict=True
        )
    ]
