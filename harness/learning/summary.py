"""Recordings for people: as lines, and as tables in Markdown at equal steps and at equal time on several networks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wanbench.harness.analysis.paired import MeanInterval, paired_difference, unequal_steps
from wanbench.harness.learning.design import BASE, REFERENCE
from wanbench.harness.learning.recording import Recording, Trajectory
from wanbench.harness.results.target import value_at
from wanbench.harness.show.grid import aligned, markdown


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
    half = "" if high is None else f" +- {100 * (high - mean):.1f}"
    return f"{100 * mean:{'+' if signed else ''}.1f}{half}"


def tables(recording: Recording) -> str:
    """Two tables: every setting of the base at equal steps and at equal time, and all under the other conditions."""
    return "\n\n".join(filter(None, (_of_base(recording), _of_conditions(recording))))


def _of_base(recording: Recording) -> str:
    """The accuracy after the last step, and on each network at equal time.

    The time of a network is that in which its fastest setting ends, so no curve is extended. A setting that was
    recorded on that network has the curve from there.
    """
    base = [line for line in lines([recording]) if line["condition"] == BASE]
    budgets = {profile: _budget_s(recording, profile) for profile in recording.about.get("profiles", [])}
    header = ["setting", "lr", f"after {base[0]['steps']} steps", "points from ssgd"]
    header += [f"{profile}, {seconds:.3g} s" for profile, seconds in budgets.items()]
    body = []
    for line in base:
        rates = f"{line['lr']:g}" if line["outer_lr"] is None else f"{line['lr']:g}, outer {line['outer_lr']:g}"
        setting = line["setting"]
        body.append(
            [
                f"`{setting}`",
                rates,
                percent(line["accuracy"], line["accuracy_high"]),
                percent(line["difference"], line["difference_high"], signed=True),
                *(
                    _at_time(_on(recording, profile, setting), seconds, recording.step_time_s[profile].get(setting))
                    for profile, seconds in budgets.items()
                ),
            ]
        )
    return markdown(header, body, marked=True).rstrip("\n")


def _on(recording: Recording, profile: str, setting: str) -> list[Trajectory]:
    seeds = recording.by_setting.get((profile, setting)) or recording.by_setting[BASE, setting]
    return [*seeds.values()]


def _of_conditions(recording: Recording) -> str:
    """The accuracy of ssgd, and of the others the points from it, under every condition but the networks."""
    by_key = {(line["condition"], line["setting"]): line for line in lines([recording])}
    networks = recording.about.get("profiles", [])
    conditions = [name for name in dict.fromkeys(name for name, _ in by_key) if name not in {BASE, *networks}]
    if not conditions:
        return ""
    settings = dict.fromkeys(setting for condition, setting in by_key if condition in conditions)
    body = [
        [f"`{setting}`", *(_against(by_key.get((condition, setting))) for condition in conditions)]
        for setting in settings
    ]
    return markdown(["setting", *conditions], body, marked=True).rstrip("\n")


def _against(line: Mapping[str, Any] | None) -> str:
    if line is None:
        return ""
    name, signed = ("accuracy", False) if line["setting"] == REFERENCE else ("difference", True)
    diverged = f" ({line['diverged']} of {line['seeds']} diverged)" if line["diverged"] else ""
    return percent(line[name], line[f"{name}_high"], signed=signed) + diverged


def _budget_s(recording: Recording, profile: str) -> float:
    times = recording.step_time_s[profile]
    return min(
        times[setting] * max(trajectory.steps[-1] for trajectory in seeds.values())
        for (condition, setting), seeds in recording.by_setting.items()
        if condition == BASE and setting in times
    )


def _at_time(seeds: Sequence[Trajectory], seconds: float, step_time_s: float | None) -> str:
    """The accuracy that a setting has reached by then, and its steps; "-" before its first evaluation."""
    if step_time_s is None:
        return "-"
    step = min(seconds / step_time_s, max(seed.steps[-1] for seed in seeds))  # the fastest ends exactly then
    values = {seed.seed: value for seed in seeds if (value := value_at(seed.steps, seed.accuracy, step)) is not None}
    mean = mean_of(values) if len(values) == len(seeds) else None
    reached = percent(mean.mean, mean.high if len(values) > 2 else None) if mean is not None else "-"
    return f"{reached} ({step:.0f} steps)"
