"""What methods cost in accuracy, from the recordings of the learning library, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wanbench.harness.learning.design import BASE, REFERENCE
from wanbench.harness.learning.recording import RECORDED, SUFFIX, Recording, Trajectory, read
from wanbench.harness.learning.summary import lines, mean_of, percent
from wanbench.harness.results.target import value_at
from wanbench.harness.show.grid import markdown


def recorded() -> list[str]:
    """Return the names of the designs that are recorded."""
    return sorted(path.name.removesuffix(SUFFIX) for path in RECORDED.glob(f"*{SUFFIX}"))


def of_learned(name: str) -> str:
    """Return the accuracy of every setting: at equal steps, at equal time, and under the other conditions."""
    return tables(read(RECORDED / f"{name}{SUFFIX}")) + "\n"


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
