"""A recording as lines: what was tuned, how accurate it became, and how far it is from the reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wanbench.harness.analysis.paired import PairedDifference, paired_difference, unequal_steps
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
    mine = final_accuracies(seeds.values())
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
        "diverged": sum(one.diverged for one in seeds.values()),
        "steps": max(one.steps[-1] for one in seeds.values()),
        **_interval("accuracy", mean_of(mine)),
        **_interval("difference", against),
        "not_compared": why_not,
    }


def difference(mine: Mapping[int, Trajectory], reference: Mapping[int, Trajectory]) -> PairedDifference | None:
    """The final accuracy minus that of the reference over equal seeds; None after unequal numbers of steps."""
    if _unequal(mine, reference) is not None:
        return None
    return paired_difference(final_accuracies(mine.values()), final_accuracies(reference.values()))


def _unequal(mine: Mapping[int, Trajectory], reference: Mapping[int, Trajectory]) -> str | None:
    steps, theirs = (max(one.steps[-1] for one in seeds.values()) for seeds in (mine, reference))
    return unequal_steps(steps, theirs)


def final_accuracies(trajectories: Iterable[Trajectory]) -> dict[int, float]:
    """The accuracy after the last step by seed. One that diverged has what was measured: usually that of a guess."""
    return {one.seed: value for one in trajectories if (value := one.accuracy[-1]) is not None}


def mean_of(values: dict[int, float]) -> PairedDifference | None:
    """The mean over the seeds with its interval."""
    return paired_difference(values, dict.fromkeys(values, 0.0))


def _interval(name: str, found: PairedDifference | None) -> dict[str, float | None]:
    if found is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    ends = [round(end, 5) if math.isfinite(end) else None for end in (found.low, found.high)]
    return {name: round(found.mean, 5), f"{name}_low": ends[0], f"{name}_high": ends[1]}


def text(recordings: Sequence[Recording]) -> str:
    """The lines as a table."""
    found = lines(recordings)
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
        for line in found
    ]
    header = ["setting", "design", "condition", "lr", "outer lr", "accuracy %", f"points from {REFERENCE}", ""]
    note = "+- is the 95 % interval over paired seeds. * The best learning rate is an end of its grid."
    return f"{aligned(header, body)}{note}" if body else "nothing recorded yet; `wanbench learn` records"


def percent(mean: float | None, high: float | None, *, signed: bool = False) -> str:
    """A share as percent, with half of its interval."""
    if mean is None:
        return "-"
    half = "" if high is None else f" +- {100 * (high - mean):.1f}"
    return f"{100 * mean:{'+' if signed else ''}.1f}{half}"
