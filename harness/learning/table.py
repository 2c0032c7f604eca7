"""Recordings as Markdown: all methods at equal steps, and at equal time on several networks."""

from __future__ import annotations

from collections.abc import Sequence

from wanbench.harness.learning.design import BASE
from wanbench.harness.learning.recording import Recording, Trajectory
from wanbench.harness.learning.summary import lines, mean_of, percent
from wanbench.harness.results.target import value_at


def tables(recording: Recording) -> str:
    """The accuracy of every setting of the base after the last step, and on each network at equal time.

    The time of a network is that in which its fastest setting ends, so no curve is extended.
    """
    base = [line for line in lines([recording]) if line["condition"] == BASE]
    budgets = {profile: _budget_s(recording, profile) for profile in recording.about.get("profiles", [])}
    header = ["setting", "lr", f"after {base[0]['steps']} steps", "points from ssgd"]
    header += [f"{profile}, {seconds:.3g} s" for profile, seconds in budgets.items()]
    body = []
    for line in base:
        rates = f"{line['lr']:g}" if line["outer_lr"] is None else f"{line['lr']:g}, outer {line['outer_lr']:g}"
        seeds = [*recording.by_setting[BASE, line["setting"]].values()]
        body.append(
            [
                f"`{line['setting']}`",
                rates,
                percent(line["accuracy"], line["accuracy_high"]),
                percent(line["difference"], line["difference_high"], signed=True),
                *(
                    _at_time(seeds, seconds, recording.step_time_s[profile].get(line["setting"]))
                    for profile, seconds in budgets.items()
                ),
            ]
        )
    return _markdown(header, body)


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
    step = seconds / step_time_s
    found = {one.seed: value for one in seeds if (value := value_at(one.steps, one.accuracy, step)) is not None}
    mean = mean_of(found) if len(found) == len(seeds) else None
    reached = percent(mean.mean, mean.high if len(found) > 2 else None) if mean is not None else "-"
    return f"{reached} ({step:.0f} steps)"


def _markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
