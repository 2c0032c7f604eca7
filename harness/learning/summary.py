"""Recordings for people: a line for each design, condition and setting."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wanbench.harness.analysis.paired import MeanInterval, paired_difference, unequal_steps
from wanbench.harness.learning.design import REFERENCE
from wanbench.harness.learning.recording import Recording, Trajectory
from wanbench.harness.show.grid import aligned


def lines(recordings: Iterable[Recording]) -> list[dict[str, Any]]:
    """One line per design, condition and setting. Intervals are those of 95 %, None with fewer than 3 seeds."""
    return [
        _line(recording, condition, setting) for recording in recordings for condition, setting in recording.by_setting
    ]


def _line(recording: Recording, condition: str, setting: str) -> dict[str, Any]:
    seeds = recording.by_setting[condition, setting]
    first = next(iter(seeds.values()))
    reference = recording.reference_of(condition)
    against = why_not = None
    if reference is not None and setting != REFERENCE:
        against, why_not = difference(seeds, reference), _unequal(seeds, reference)
    return {
        "design": recording.design,
        "condition": condition,
        "setting": setting,
        "kind": first.kind,
        "params": dict(first.params),
        "workers": first.workers,
        "lr": first.lr,
        "outer_lr": first.outer_lr,
        "lr_at_end_of_grid": first.at_end,
        "seeds": len(seeds),
        "diverged": sum(trajectory.diverged for trajectory in seeds.values()),
        "steps": max(trajectory.steps[-1] for trajectory in seeds.values()),
        **_interval("accuracy", mean_of(final_accuracies(seeds.values()))),
        **_interval("difference", against),
        "not_compared": why_not,
    }


def difference(seeds: Mapping[int, Trajectory], reference: Mapping[int, Trajectory]) -> MeanInterval | None:
    """The final accuracy minus that of the reference over equal seeds; None after unequal numbers of steps."""
    if _unequal(seeds, reference) is not None:
        return None
    return paired_difference(final_accuracies(seeds.values()), final_accuracies(reference.values()))


def _unequal(own: Mapping[int, Trajectory], reference: Mapping[int, Trajectory]) -> str | None:
    steps, reference_steps = (max(trajectory.steps[-1] for trajectory in seeds.values()) for seeds in (own, reference))
    return unequal_steps(steps, reference_steps)


def final_accuracies(trajectories: Iterable[Trajectory]) -> dict[int, float]:
    """The accuracy after the last step by seed. One that diverged has what was measured: usually that of a guess."""
    return {trajectory.seed: value for trajectory in trajectories if (value := trajectory.accuracy[-1]) is not None}


def mean_of(values: dict[int, float]) -> MeanInterval | None:
    """The mean over the seeds with its interval."""
    return paired_difference(values, dict.fromkeys(values, 0.0))


def _interval(name: str, difference: MeanInterval | None) -> dict[str, float | None]:
    if difference is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    ends = [round(end, 5) if math.isfinite(end) else None for end in (difference.low, difference.high)]
    return {name: round(difference.mean, 5), f"{name}_low": ends[0], f"{name}_high": ends[1]}


def text(recordings: Sequence[Recording]) -> str:
    """The lines as a table."""
    body = [
        [
            line["setting"],
            line["design"],
            line["condition"],
            f"{line['lr']:g}" + "*" * line["lr_at_end_of_grid"],
            "-" if line["outer_lr"] is None else f"{line['outer_lr']:g}",
            percent(line["accuracy"], line["accuracy_high"]),
            percent(line["difference"], line["difference_high"], signed=True),
            line["not_compared"]
            or (f"{line['diverged']} of {line['seeds']} seeds diverged" if line["diverged"] else ""),
        ]
        for line in lines(recordings)
    ]
    header = ["setting", "design", "condition", "lr", "outer lr", "accuracy %", f"points from {REFERENCE}", ""]
    note = "+- is the 95 % interval over paired seeds. * The best learning rate is an end of its grid."
    return f"{aligned(header, body)}{note}" if body else "nothing recorded yet; `wanbench learn` records"


def percent(mean: float | None, high: float | None, *, signed: bool = False) -> str:
    """A share as percent, with half of its interval."""
    if mean is None:
        return "-"
    return f"{100 * mean:{'+' if signed else ''}.1f}" + ("" if high is None else f" +- {100 * (high - mean):.1f}")
