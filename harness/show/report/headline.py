"""The first lines about a run: whether it can be published, and the best algorithm on each network."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from wanbench.harness.analysis.best import NetworkStandings, Standing
from wanbench.harness.analysis.summary import axis_value, provenance
from wanbench.harness.results.verify import ACCURACY_BAND, Objection, problems_text
from wanbench.harness.show.data_set import data_set
from wanbench.harness.show.grid import sent, some
from wanbench.harness.show.report.plain import Row, plain

_NAMED = 6


@dataclass(frozen=True)
class Best:
    """A row of the table of best algorithms."""

    where: str
    best: str
    params: str
    scalability: str
    speed_up: str
    accuracy: str
    target: str
    sent: str
    also: str


_TITLES = {
    "where": "network",
    "best": "best algorithm",
    "scalability": "scalability",
    "speed_up": "speed-up\nover ssgd",
    "accuracy": "accuracy\nagainst ssgd",
    "target": "time\nto target",
    "sent": "sent per step\nper worker",
    "also": "equally fast",
    "params": "parameters",
}
_NOTHING = {"-", "none", "not measured"}


def best_titles(rows: Sequence[Best]) -> dict[str, str]:
    """Titles of the columns that have something to show, by field of `Best`. Without accuracy, none is "best"."""
    found = {
        field: title
        for field, title in _TITLES.items()
        if field in ("where", "best") or any(getattr(row, field) not in _NOTHING for row in rows)
    }
    return found if "accuracy" in found else found | {"best": "fastest algorithm"}


def verdict_of(rows: Sequence[Row], broken: Sequence[Objection], unjudged: str | None) -> tuple[str, str]:
    """publishable, objections or nothing, and a sentence."""
    if not any(row["status"] == "ok" for row in rows):
        return "nothing", "No repetition is valid, so there is nothing to compare." if rows else "No results yet."
    if unjudged:
        return "objections", "The checks could not run: do not publish yet. See “Files that could not be read”."
    if broken:
        rules = ", ".join(dict.fromkeys(one.rule for one in broken))
        return "objections", f"{problems_text(broken)} ({rules})."
    simulated = all(row["testbed"] == "virtual" for row in rows)
    return "publishable", f"All checks passed{' (simulated results)' if simulated else ''}."


def headline_of(found: Sequence[NetworkStandings]) -> str:
    """The fastest algorithm and the number of networks on which it is, as a sentence; "" if there is none."""
    wins = Counter(network.best.algorithm for network in found if network.best is not None)
    if not wins:
        return ""
    (first, count), *others = wins.most_common()
    if len(found) == 1:
        name = network_name(found[0])
        where = f"{'at' if name.startswith('RTT') else 'on'} {name}"
    elif count == len(found):
        where = f"on {'both' if count == 2 else f'all {count}'} networks"
    else:
        where = "; ".join([f"on {count} of {len(found)} networks", *(f"{name} on {times}" for name, times in others)])
    kind = "fastest"
    if _inaccurate(found):
        kind = f"the fastest within {100 * ACCURACY_BAND:g} points of ssgd's accuracy"
    testbeds = {testbed for network in found if network.best is not None for testbed in network.testbeds}
    return f"{first} is {kind} {where} ({provenance(testbeds)})."


def best_of(network: NetworkStandings, most: int = sys.maxsize) -> Best:
    """The row of a network, which names at most so many algorithms that are equally fast."""
    where = network_name(network)
    best = network.best
    if best is None:
        why = "no one-worker cell to compare with" if network.standings else "no valid result"
        return Best(where, "-", why, "-", "-", "-", "-", "-", "-")
    reference = next((s for s in network.standings if s.kind == "ssgd"), None)
    others = [s.algorithm for s in network.as_fast if s is not best]
    return Best(
        where=where,
        best=best.algorithm,
        params=", ".join(f"{k} = {plain(v)}" for k, v in best.params.items()) or "none",
        scalability=_spread(best),
        speed_up="-" if reference is None else f"{reference.step_time_s / best.step_time_s:.2f}×",
        accuracy=_accuracy(best),
        target="-" if best.time_to_target_s is None else f"{best.time_to_target_s:.1f} s",
        sent=sent(best.megabytes_per_step, best.unscaled_megabytes_per_step),
        also=some(others, most) or "-",
    )


def _spread(standing: Standing) -> str:
    if standing.repeats == 1 or f"{standing.low:.3f}" == f"{standing.high:.3f}":
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
    """The definition of "fastest", and the algorithms that are left out."""
    text = (
        "Fastest: the highest scalability. Algorithms within 1 % of it, or with overlapping repetitions, are "
        "equally fast; the table names the least stale of them, then the one that sends the least. "
    )
    if any(s.time_to_target_s is not None for network in found for s in network.standings):
        text = (
            "Fastest: the shortest time to the target; of those within 1 %, the least stale, then the one that sends "
        )
        text += "the least. "
    trained = _trained(found)
    if not any(s.change is not None for network in found for s in network.standings):
        return text + ("There is no ssgd whose accuracy to compare with." if trained else _SPEED_ALONE)
    text += f"Accuracy: on {' and '.join(map(data_set, trained))}, minus that of ssgd"
    if any(s.paired is not None and s.paired.pairs > 2 for network in found for s in network.standings):
        text += "; the mean over equal seeds, with its 95 % interval"
    points, slower = f"{100 * ACCURACY_BAND:g} points less accurate than ssgd", _inaccurate(found)
    left_out = f"Left out where they are more than {points}: {some(slower, _NAMED)}."
    return f"{text}. " + (left_out if slower else f"No algorithm is more than {points}.")


_SPEED_ALONE = (
    "This run does not train a model, so it does not show what speed costs in accuracy; a workload that learns does "
    "(`wanbench list workloads`)."
)


def _trained(found: Sequence[NetworkStandings]) -> list[str]:
    return sorted({s.workload for network in found for s in network.standings if s.accuracy is not None})


def _inaccurate(found: Sequence[NetworkStandings]) -> list[str]:
    return sorted({s.algorithm for network in found for s in network.standings if not s.accurate})


def network_name(network: NetworkStandings) -> str:
    """The swept axes of a network and their values, or its name if nothing but the algorithm is swept."""
    return ", ".join(axis_value(axis, value) for axis, value in network.where.items()) or network.name
