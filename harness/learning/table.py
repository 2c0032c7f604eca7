"""Recordings as Markdown: all methods at equal steps, and at equal time on several networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wanbench.harness.learning.design import BASE, REFERENCE
from wanbench.harness.learning.recording import Recording, Trajectory
from wanbench.harness.learning.summary import lines, mean_of, percent
from wanbench.harness.results.target import value_at


def tables(recording: Recording) -> str:
    """Two tables: every setting of the base at equal steps and at equal time, and all under the other conditions."""
    found = [_of_base(recording), _of_conditions(recording)]
    return "\n\n".join(filter(None, found))


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
    return _markdown(header, body)


def _on(recording: Recording, profile: str, setting: str) -> list[Trajectory]:
    found = recording.by_setting
    return [*(found.get((profile, setting)) or found[BASE, setting]).values()]


def _of_conditions(recording: Recording) -> str:
    """The accuracy of ssgd, and of the others the points from it, under every condition but the networks."""
    found = {(line["condition"], line["setting"]): line for line in lines([recording])}
    networks = recording.about.get("profiles", [])
    conditions = [name for name in dict.fromkeys(name for name, _ in found) if name not in {BASE, *networks}]
    if not conditions:
        return ""
    settings = dict.fromkeys(setting for condition, setting in found if condition in conditions)
    body = [
        [f"`{setting}`", *(_against(found.get((condition, setting))) for condition in conditions)]
        for setting in settings
    ]
    return _markdown(["setting", *conditions], body)


def _against(line: Mapping[str, Any] | None) -> str:
    if line is None:
        return ""
    name, signed = ("accuracy", False) if line["setting"] == REFERENCE else ("difference", True)
    diverged = f" ({line['diverged']} of {line['seeds']} diverged)" if line["diverged"] else ""
    return percent(line[name], line[f"{name}_high"], signed=signed) + diverged


def _budget_s(recording: Recording, profile: str) -> float:
    times = recording.step_time_s[profile]
    return min(
        times[setting] * max(one.steps[-1] for one in seeds.values())
        for (condition, setting), seeds in recording.by_setting.items()
        if condition == BASE and setting in times
    )


def _at_time(seeds: Sequence[Trajectory], seconds: float, step_time_s: float | None) -> str:
    """The accuracy that a setting has reached by then, and its steps; "-" before its first evaluation."""
    if step_time_s is None:
        return "-"
    step = min(seconds / step_time_s, max(one.steps[-1] for one in seeds))  # the fastest ends exactly then
    found = {one.seed: value for one in seeds if (value := value_at(one.steps, one.accuracy, step)) is not None}
    mean = mean_of(found) if len(found) == len(seeds) else None
    reached = percent(mean.mean, mean.high if len(found) > 2 else None) if mean is not None else "-"
    return f"{reached} ({step:.0f} steps)"


def _markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *([entry.replace("|", "\\|") for entry in line] for line in body)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
