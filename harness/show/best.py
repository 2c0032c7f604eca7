"""The best algorithm in every case of a run, its gain and its cost: a sentence and a table. Pure for a given width."""

import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wanbench.harness.analysis.axes import AXIS_TITLES
from wanbench.harness.analysis.best import REFERENCE, TIE_SHARE, Effect, NetworkStandings, Standing, effects, networks
from wanbench.harness.analysis.summary import ALONE, provenance
from wanbench.harness.results.rules import ACCURACY_BAND
from wanbench.harness.show.figures.names import data_set
from wanbench.harness.show.grid import fitted, left_out, width_of_output
from wanbench.harness.text import listed, milliseconds, plain, sent

_NAMED = 6
_DROP = ("parameters", "equally fast", "sent per step\nper worker")
_ALSO = 2
_TITLES = {
    "best": "best algorithm",
    "step": "step time",
    "scalability": "scalability",
    "speed_up": "speed-up\nover ssgd",
    "accuracy": "accuracy\nagainst ssgd",
    "target": "time\nto target",
    "sent": "sent per step\nper worker",
    "also": "equally fast",
    "params": "parameters",
}
_NOTHING = {"-", "none", "not measured"}

# What a run varies besides the algorithm, if it is no network.
_PLURALS = {
    "workers": "numbers of workers",
    "payload_scale": "payload scales",
    "mtbf_s": "rates of failure",
    "mttr_s": "times to repair",
    "timeline": "timelines",
    "workload": "workloads",
    "emulator": "emulators",
    "testbed": "testbeds",
    "hosts": "hosts",
}
_SPEED_ALONE = (
    "This run does not train a model, so it does not show what speed costs in accuracy; a workload that learns does "
    "(`wanbench list workloads`)."
)

Row = Mapping[str, str]  # of the table: the text of each column, by the keys of `_TITLES` and "where"


def best_text(rows: Iterable[Mapping[str, Any]], width: int | None = None) -> str:
    """A sentence, a table with a line per network, and the meaning of its columns; "" if nothing can be compared yet.

    Args:
        rows: one per repetition. width: in characters; None: that of the terminal.
    """
    rows = list(rows)
    standings = networks(rows)
    if not standings:
        return ""
    width = width or width_of_output()
    best = [best_row(network, _ALSO) for network in standings]
    titles = best_titles(standings, best)
    lines = [[row[column] for column in titles] for row in best]
    table, dropped = fitted([*titles.values()], lines, _DROP, width)
    note = f"{best_note(standings)}{_scaled(rows)} {left_out(dropped, '`wanbench report` shows them.')}"
    return f"{best_sentence(standings)}\n\n{table}\n{textwrap.fill(note, width, break_on_hyphens=False)}\n".lstrip()


def _scaled(rows: Iterable[Mapping[str, Any]]) -> str:
    """How the bytes sent relate to those of the model."""
    scales = sorted({row["payload_scale"] for row in rows if row.get("payload_scale") not in (None, 1)})
    return (
        f" Messages, rates and bytes sent are × {listed([f'{scale:g}' for scale in scales], _ALSO)}." if scales else ""
    )


def best_sentence(cases: Sequence[NetworkStandings]) -> str:
    """The fastest algorithm, in how many cases it is, and what a choice besides it gains; "" if there is none."""
    wins = Counter(network.best.algorithm for network in cases if network.best is not None)
    if not wins:
        return ""
    (first, count), *runners_up = wins.most_common()
    if len(cases) == 1:
        where = f"{'at' if cases[0].title.startswith('RTT') else 'on'} {cases[0].title}"
    elif count == len(cases):
        where = f"on {'both' if count == 2 else f'all {count}'} {_varied(cases)[1]}"
    else:
        where = f"on {count} of {len(cases)} {_varied(cases)[1]}"
        where = "; ".join([where, *(f"{name} on {times}" for name, times in runners_up)])
    tied = any(len(network.as_fast) > 1 for network in cases if network.best and network.best.algorithm == first)
    kind, unequal = "as fast as any" if tied else "fastest", _not_compared(cases)
    if _inaccurate(cases) and not unequal:
        kind = f"{'the ' * (not tied)}{kind} within {100 * ACCURACY_BAND:g} points of ssgd's accuracy"
    testbeds = {testbed for network in cases if network.best is not None for testbed in network.testbeds}
    invalid = sorted({name for network in cases for name in network.invalid})
    somewhere = f" on some {_varied(cases)[1]}" if len(cases) > 1 else ""
    unequal += f" Without a valid result{somewhere}, so not compared: {listed(invalid, _NAMED)}." if invalid else ""
    if invalid and {s.algorithm for network in cases for s in network.standings if s.kind != ALONE} == {first}:
        kind = "the only one with a valid result"
    return f"{first} is {kind} {where} ({provenance(testbeds)}).{unequal}{_best_choices(cases)}"


def _not_compared(cases: Sequence[NetworkStandings]) -> str:
    """ " Accuracy of dts-d20-p20 not compared: 160 steps, ssgd 60."; "" if the best trained equally long."""
    best = {(s.algorithm, s.not_compared) for network in cases if (s := network.best) is not None and s.not_compared}
    return "".join(f" Accuracy of {name} {why}." for name, why in sorted(best))


def _best_choices(cases: Sequence[NetworkStandings]) -> str:
    """What each choice does to the step time; "" if nothing is chosen, or if a target decides."""
    texts = [text for effect in effects(cases) if (text := _effect_text(effect))]
    return f" Step time, everything else equal: {'; '.join(texts)}." if texts else ""


def _effect_text(effect: Effect) -> str:
    """ "collective direct is faster than gloo (2.1 times, 1.9 to 6.3)", or that there is no clear difference."""
    name = AXIS_TITLES.get(effect.axis, effect.axis.rpartition(".")[2])
    parts = []
    for text, (mean, low, high, pairs, always) in effect.ratios.items():
        span = f"{mean:.3g} times" + ("" if high <= low * (1 + TIE_SHARE) else f", {low:.3g} to {high:.3g}")
        part = f"; {pairs} of {effect.cells} pairs measured" if pairs < effect.cells else ""
        if max(high, 1 / low) <= 1 + TIE_SHARE:
            parts.append(f"as fast as {text}")
        elif always:
            parts.append(f"faster than {text} ({span}{part})")
        else:
            parts.append(f"not clearly faster than {text} ({span}{part})")
    return f"{name} {effect.best} is {', '.join(parts)}" if parts else ""


def _varied(cases: Sequence[NetworkStandings]) -> tuple[str, str]:
    """What the run varies besides the algorithm: as the title of a column, and as a plural."""
    axes = list(cases[0].where) if cases else []
    if not set(axes) & {*_PLURALS}:
        return "network", "networks"
    titles = [AXIS_TITLES.get(axis, axis).partition(" (")[0] for axis in axes]
    if len(axes) > 1:
        return ", ".join(titles), f"combinations of {', '.join(titles[:-1])} and {titles[-1]}"
    return titles[0], _PLURALS[axes[0]]


def best_titles(cases: Sequence[NetworkStandings], rows: Sequence[Row]) -> dict[str, str]:
    """Titles of the columns that have something to show. Without accuracy, no algorithm is "best"."""
    hidden = "scalability" if any(network.by_steps for network in cases) else "step"
    titles = {"where": _varied(cases)[0]} | {
        column: title
        for column, title in _TITLES.items()
        if column == "best" or (column != hidden and any(row[column] not in _NOTHING for row in rows))
    }
    what = "setting" if _chooses(cases) else "algorithm"
    titles |= {"speed_up": "speed-up\nover the slowest"} if "speed_up" in titles and _chooses(cases) else {}
    return titles | {"best": f"{'best' if 'accuracy' in titles else 'fastest'} {what}"}


def _chooses(cases: Iterable[NetworkStandings]) -> bool:
    return any(standing.choices for network in cases for standing in network.standings)


def _base(network: NetworkStandings) -> Standing | None:
    """What speed-ups are over: the slowest of several choices; without choices, ssgd."""
    chosen = [s for s in network.standings if s.kind == REFERENCE or (_chooses([network]) and s.kind != ALONE)]
    return max(chosen, key=lambda s: s.step_time_s, default=None)


def best_row(network: NetworkStandings, most: int = sys.maxsize) -> Row:
    """The row of a network, which names at most so many algorithms that are equally fast."""
    row, best = dict.fromkeys(_TITLES, "-") | {"where": network.title}, network.best
    if best is None:
        return row | {"params": "no one-worker cell to compare with" if network.standings else "no valid result"}
    base = _base(network)
    return row | {
        "best": best.algorithm,
        "params": ", ".join(f"{k} = {plain(v)}" for k, v in best.params.items()) or "none",
        "step": f"{milliseconds(best.step_time_s)} ms",
        "scalability": _spread(best),
        "speed_up": "-" if base is None else f"{base.step_time_s / best.step_time_s:.2f}×",
        "accuracy": _accuracy(best),
        "target": "-" if best.time_to_target_s is None else f"{best.time_to_target_s:.1f} s",
        "sent": sent(best.megabytes_per_step, best.unscaled_megabytes_per_step),
        "also": listed([s.algorithm for s in network.as_fast if s is not best], most) or "-",
    }


def _spread(standing: Standing) -> str:
    if standing.repeats == 1 or f"{standing.low:.3f}" == f"{standing.high:.3f}":
        return f"{standing.scalability:.3f}"
    return f"{standing.scalability:.3f} ({standing.low:.3f} to {standing.high:.3f})"


def _accuracy(standing: Standing) -> str:
    if standing.accuracy is None:
        return "not measured"
    if standing.change is None:
        return standing.not_compared or f"{100 * standing.accuracy:.2f} %, no ssgd"
    points, _, interval = standing.change_text.partition(" ")
    return f"{points} points {interval}".rstrip()


def best_note(cases: Sequence[NetworkStandings]) -> str:
    """The definition of "fastest", and the algorithms that are left out."""
    standings = [standing for network in cases for standing in network.standings]
    text = (
        "Fastest: the highest scalability. Algorithms within 1 % of it, or with overlapping repetitions, are "
        "equally fast; the table names the least stale of them, then the one that sends the least. "
    )
    if any(network.by_steps for network in cases):
        text = text.replace("the highest scalability. Algorithms", "the shortest step time. Settings")
    if any(s.time_to_target_s is not None for s in standings):
        text = (
            "Fastest: the shortest time to the target; of those within 1 %, the least stale, then the one that sends "
            "the least. Those whose repetitions overlap with its are equally fast. "
        )
    trained = sorted({s.workload for s in standings if s.accuracy is not None})
    if not any(s.change is not None for s in standings):
        return text + ("No ssgd was trained with a valid result to compare accuracy with." if trained else _SPEED_ALONE)
    text += f"Accuracy: on {' and '.join(map(data_set, trained))}, minus that of ssgd"
    if any(s.paired is not None and s.paired.bounded for s in standings):
        text += "; the mean over equal seeds, with its 95 % interval"
    unequal = sorted({s.algorithm for s in standings if s.not_compared})
    if unequal:
        text += f". Not compared, because trained for another number of steps than ssgd: {listed(unequal, _NAMED)}"
    points, slower = f"{100 * ACCURACY_BAND:g} points less accurate than ssgd", _inaccurate(cases)
    if slower:
        return f"{text}. Left out where they are more than {points}: {listed(slower, _NAMED)}."
    return f"{text}. No {'other ' * bool(unequal)}algorithm is more than {points}."


def _inaccurate(cases: Sequence[NetworkStandings]) -> list[str]:
    return sorted({s.algorithm for network in cases for s in network.standings if not s.accurate})
