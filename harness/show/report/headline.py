"""What comes first: may it be published, and which algorithm is best on each network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbench.harness.analysis.best import NetworkStandings, Standing
from wanbench.harness.analysis.summary import axis_value
from wanbench.harness.results.verify import ACCURACY_BAND, Objection
from wanbench.harness.show.data_set import data_set
from wanbench.harness.show.report.plain import Row, plain


@dataclass(frozen=True)
class Best:
    """A row of the headline table."""

    where: str
    best: str
    params: str
    scalability: str
    faster: str
    accuracy: str
    megabytes: str
    also: str


def verdict_of(rows: Sequence[Row], broken: Sequence[Objection], unjudged: str | None) -> tuple[str, str]:
    """publishable, objections or nothing, and a sentence."""
    if not any(row["status"] == "ok" for row in rows):
        what = "Nothing was measured yet." if not rows else "No repetition is valid: there is nothing to compare."
        return "nothing", what
    if unjudged:
        return "objections", "Whether this may be published cannot be said: see what could not be read."
    if broken:
        rules = ", ".join(dict.fromkeys(one.rule for one in broken))
        count = f"{len(broken)} objection{'s' if len(broken) > 1 else ''}"
        return "objections", f"Not to be published as it is: {count} ({rules})."
    simulated = all(row["testbed"] == "virtual" for row in rows)
    what = "these numbers, as those of a simulation" if simulated else "these numbers"
    return "publishable", f"Nothing speaks against publishing {what}."


def headline_of(found: Sequence[NetworkStandings]) -> str:
    """Which algorithm is best on how many networks."""
    wins: dict[str, int] = {}
    for network in found:
        if network.best is not None:
            wins[network.best.algorithm] = wins.get(network.best.algorithm, 0) + 1
    if not wins:
        return ""
    total = sum(wins.values())
    ranked = sorted(wins.items(), key=lambda item: -item[1])
    said = ", ".join(f"{algorithm} on {count}" for algorithm, count in ranked)
    return f"Best of {total} network{'s' if total > 1 else ''}: {said}."


def best_of(network: NetworkStandings) -> Best:
    """The row of a network."""
    where = where_text(network.where)
    best = network.best
    if best is None:
        said = "nothing valid" if not network.standings else "no step time of one worker to compare with"
        return Best(where, "-", said, "-", "-", "-", "-", ", ".join(network.lost))
    reference = next((s for s in network.standings if s.kind == "ssgd"), None)
    faster = "-" if reference is None else f"{reference.step_time_s / best.step_time_s:.2f}"
    others = [s.algorithm for s in network.as_fast if s is not best]
    return Best(
        where=where,
        best=best.algorithm,
        params=", ".join(f"{k} = {plain(v)}" for k, v in best.params.items()) or "none",
        scalability=_spread(best),
        faster=faster,
        accuracy=_accuracy(best),
        megabytes="-" if best.megabytes_per_step is None else f"{best.megabytes_per_step:.3g}",
        also=", ".join(others) or "-",
    )


def _spread(standing: Standing) -> str:
    if standing.repeats == 1:
        return f"{standing.scalability:.3f}"
    return f"{standing.scalability:.3f} ({standing.low:.3f} to {standing.high:.3f})"


def _accuracy(standing: Standing) -> str:
    if standing.accuracy is None:
        return "not measured"
    if standing.change is None:
        return f"{100 * standing.accuracy:.2f} %, no ssgd"
    points, _, interval = standing.change_text.partition(" ")
    return f"{points} points {interval}".rstrip()


def best_note(found: Sequence[NetworkStandings]) -> str:
    """What "best" means, and who was left out."""
    slower = sorted({s.algorithm for network in found for s in network.standings if not s.accurate})
    text = (
        "Best: the highest scalability T(1)/T(N); within a hundredth, or where repetitions overlap, algorithms count "
        "as equally fast, and the one that sends least is named. MB: payload of one worker, a step. "
    )
    learned = sorted({s.workload for n in found for s in n.standings if s.accuracy is not None})
    if any(s.change is not None for network in found for s in network.standings):
        text += f"Accuracy: on {' and '.join(map(data_set, learned))}, against ssgd"
        paired = any(s.paired is not None and s.paired.pairs > 2 for network in found for s in network.standings)
        text += ", the mean over equal seeds with its 95 % interval. " if paired else ". "
        text += f"Algorithms more than {100 * ACCURACY_BAND:g} points of accuracy below ssgd are left out"
        return text + (f" (somewhere: {', '.join(slower)})." if slower else " (none is).")
    return text + "Nothing is learned in this run, so what speed costs in accuracy was not measured."


def where_text(where: Mapping[str, Any]) -> str:
    """The swept axes of a network in words."""
    return ", ".join(axis_value(axis, value) for axis, value in where.items()) or "the only one"
