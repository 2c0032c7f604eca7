"""Every figure that the rows of a run can show, in the order of a report: the trade-off first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.labels import AXES
from wanbench.harness.analysis.order import algorithm_order, by_value
from wanbench.harness.analysis.summary import (
    COLUMNS,
    Pivot,
    axes_of,
    cells,
    frame,
    pivots,
    records,
)
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.results.verify import ACCURACY_BAND
from wanbench.harness.show.figures.bars import scalability_bars
from wanbench.harness.show.figures.caption import caption, title
from wanbench.harness.show.figures.learning import learning
from wanbench.harness.show.figures.network import MOST_SITES, network_matrix
from wanbench.harness.show.figures.pace import MARKS as PACE_MARKS
from wanbench.harness.show.figures.pace import Pace, pace
from wanbench.harness.show.figures.pareto import pareto
from wanbench.harness.show.figures.scalability import scalability_by_rtt
from wanbench.harness.show.figures.step_time import step_time
from wanbench.harness.show.figures.timeline import MARKS, Trace, timeline
from wanbench.harness.show.grid import shown
from wanbench.harness.show.report.data_set import data_set

# Collectives differ too much to share a figure.
_COLUMN_AXES = [axis for axis in AXES if axis != "collective"]
_TIMELINE_ROWS = 6

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn.

    Attributes:
        name: of its files. title: for a heading. draw: makes it, of a width in inches.
    """

    name: str
    title: str
    draw: Callable[[float], Figure]


def gallery(
    rows: Sequence[Row], run_name: str, evidence: Evidence | None = None, progress: str | None = None
) -> list[Drawing]:
    """The drawings of a run; empty if no cell of more than one worker has a valid result.

    Args:
        rows: one a repetition. run_name: for the captions.
        evidence: for the figures that need more than rows. progress: of a run that is going on, "14 of 42 cells".
    """
    table = frame(rows)
    if not len(table) or not any(table[table["workers"] != 1]["status"] == "ok"):
        return []
    lines = [line for line in records(cells(table)) if line["workers"] != 1]
    drawn = [*_trade_off(rows, lines, run_name, progress)]
    for pivot in pivots(table, _COLUMN_AXES):
        if any(line["status"] == "ok" for line in pivot.lines.values()):
            drawn += _of_pivot(pivot, run_name, progress)
    if evidence is not None:
        full: list[dict[str, Any]] = [{**dict.fromkeys(COLUMNS), **row} for row in rows]
        ok = [row for row in full if row["status"] == "ok" and row["workers"] != 1]
        drawn += _learning(table, ok, lines, run_name, evidence)
        drawn += _timeline(table, ok, lines, run_name, evidence)
        drawn += _pace(table, ok, lines, run_name, evidence)
        drawn += _matrix(ok, run_name, evidence)
    return drawn


def _of_pivot(pivot: Pivot, run_name: str, progress: str | None) -> list[Drawing]:
    by_rtt = pivot.column_axis == "rtt_ms"
    speed = scalability_by_rtt if by_rtt else scalability_bars
    name = "scalability-by-rtt" if by_rtt else "scalability"
    slug, heading = _slug(pivot), title(pivot)
    return [
        Drawing(name + slug, f"Scalability: {heading}", lambda width: speed(pivot, run_name, width, progress)),
        Drawing(
            f"step-time{slug}",
            f"Where a step's time goes: {heading}",
            lambda width: step_time(pivot, run_name, width, progress),
        ),
    ]


def _trade_off(rows: Sequence[Row], lines: Sequence[Row], run_name: str, progress: str | None) -> list[Drawing]:
    found = networks(rows)
    if not any(s.accuracy_change is not None and s.scalability == s.scalability for n in found for s in n.standings):
        return []
    marks = f"bars from least to most; grey: at most {100 * ACCURACY_BAND:g} points below ssgd"
    about = caption(whole(lines), run_name, marks, progress, whiskers=False)
    learned = _data_sets(lines)
    return [Drawing("pareto", "Speed and accuracy", lambda width: pareto(found, learned, about, width))]


def _learning(
    table: pd.DataFrame, ok: Sequence[Row], lines: Sequence[Row], run_name: str, evidence: Evidence
) -> list[Drawing]:
    """Of one network, the one in the middle: what is learned hardly depends on it."""
    chosen = _middle(table, [row for row in ok if row["accuracy"] is not None])
    curves: dict[tuple[str, str], tuple[Row, list[Any]]] = {}
    for row in sorted(chosen, key=_order):
        curve = evidence.curve(row)
        if curve is not None and len(curve["step"]) > 1:
            curves.setdefault((row["algorithm"], row["kind"]), (row["params"] or {}, []))[1].append(curve)
    if not curves:
        return []
    kept = {row["cell"] for row in chosen}
    about = caption(
        whole([x for x in lines if x["cell"] in kept]), run_name, "bands from least to most", whiskers=False
    )
    learned = _data_sets([x for x in lines if x["cell"] in kept])
    return [Drawing("learning", f"Learning {learned}", lambda width: learning(curves, learned, about, width))]


def _timeline(
    table: pd.DataFrame, ok: Sequence[Row], lines: Sequence[Row], run_name: str, evidence: Evidence
) -> list[Drawing]:
    """One repetition an algorithm on the network in the middle; the smallest setting of each family first."""
    picked = _one_each(table, ok)
    traces = [trace for row in picked if (trace := trace_of(row, evidence)) is not None]
    if not traces:
        return []
    kept = {row["cell"] for row in picked}
    pivot = whole([line for line in lines if line["cell"] in kept])
    about = caption(pivot, run_name, MARKS, whiskers=False)
    heading = "A worker's steps and messages in flight"
    return [
        Drawing("timeline", heading, lambda width: timeline(traces, f"{title(pivot)}: {heading.lower()}", about, width))
    ]


def _pace(
    table: pd.DataFrame, ok: Sequence[Row], lines: Sequence[Row], run_name: str, evidence: Evidence
) -> list[Drawing]:
    """As `_timeline`, of runs whose network changes."""
    picked = [row for row in _one_each(table, ok) if row.get("events")]
    paces = [
        Pace(row["algorithm"], row["kind"], row["params"] or {}, found["slowest"], found["fastest"], _marks(row))
        for row in picked
        if (found := evidence.pace(row))
    ]
    if not paces:
        return []
    kept = {row["cell"] for row in picked}
    pivot = whole([line for line in lines if line["cell"] in kept])
    about = caption(pivot, run_name, f"{PACE_MARKS}; {picked[0]['timeline']}", whiskers=False)
    heading = "Step time against time"
    return [Drawing("pace", heading, lambda width: pace(paces, f"{title(pivot)}: {heading.lower()}", about, width))]


def _marks(row: Row) -> list[tuple[float, str]]:
    """(seconds, what) of the changes that came."""
    return [(event["actual_s"], event["what"]) for event in row["events"] if event["actual_s"] is not None]


def _one_each(table: pd.DataFrame, ok: Sequence[Row]) -> list[Row]:
    """One repetition an algorithm on the network in the middle, as many as fit."""
    by_kind: dict[str, list[Row]] = {}
    for row in sorted(_middle(table, ok), key=_order):
        if not any(other["algorithm"] == row["algorithm"] for other in by_kind.get(row["kind"], [])):
            by_kind.setdefault(row["kind"], []).append(row)
    depth = max((len(found) for found in by_kind.values()), default=0)
    turns = [found[place] for place in range(depth) for found in by_kind.values() if place < len(found)]
    return sorted(turns[:_TIMELINE_ROWS], key=_order)


def trace_of(row: Row, evidence: Evidence) -> Trace | None:
    """What is known of rank 0; None where a repetition did not record it, or cannot be read."""
    found = evidence.trace(row)
    if found is None or not found["messages"] or not found["steps"].get("step"):
        return None
    events = [(event["at_ns"], event["what"]) for event in row.get("events") or [] if event["at_ns"] is not None]
    steps, messages = pd.DataFrame(found["steps"]), pd.DataFrame(found["messages"])
    return Trace(row["algorithm"], steps, messages, found["first"], events)


def _matrix(ok: Sequence[Row], run_name: str, evidence: Evidence) -> list[Drawing]:
    """One a profile: that of the longest round trips with most sites that fit."""
    drawings = []
    for profile in dict.fromkeys(row["profile"] for row in ok):
        mine = [row for row in ok if row["profile"] == profile and row["workers"] <= 4 * MOST_SITES]
        mine.sort(key=lambda row: (-(row["rtt_max_ms"] or 0), -row["workers"], row["testbed"] == "virtual"))
        paths = next((found for row in mine[:3] if (found := evidence.network(row))), None)
        sites = {path["src"] for path in paths or []} | {path["dst"] for path in paths or []}
        if not paths or not 2 <= len(sites) <= MOST_SITES:
            continue
        row = mine[0]
        testbed = "simulated" if row["testbed"] == "virtual" else f"emulated by {row['emulator']} on {row['testbed']}"
        about = f"{run_name}: profile {profile}, longest round trip {row['rtt_max_ms']:g} ms, {testbed}"
        heading = f"The network {profile}, as configured and measured"
        drawings.append(
            Drawing(
                f"network-{_safe(str(profile))}",
                heading,
                lambda width, paths=paths, heading=heading, about=about: network_matrix(paths, heading, about, width),  # type: ignore[misc]
            )
        )
    return drawings


def whole(lines: Sequence[Row]) -> Pivot:
    """All cells as one pivot, for captions and titles: nothing is swept in it."""
    uniform = all(line["profile"] == "uniform" for line in lines)
    rtts = {line["rtt_ms"] for line in lines if line["rtt_ms"] == line["rtt_ms"]}
    return Pivot(
        {"rtt_ms": rtts.pop()} if uniform and len(rtts) == 1 else {},
        "",
        (),
        (),
        {(line["cell"], None): line for line in lines},
    )


def _middle(table: pd.DataFrame, ok: Sequence[Row]) -> list[Row]:
    """The repetitions on one network: the middle one of those that the run sweeps."""
    axes = axes_of(table)
    keys = sorted({tuple(by_value(row.get(axis)) for axis in axes) for row in ok})
    if not keys:
        return []
    wanted = keys[len(keys) // 2]
    return [row for row in ok if tuple(by_value(row.get(axis)) for axis in axes) == wanted]


def _order(row: Row) -> tuple[Any, ...]:
    return algorithm_order(row["algorithm"], row["kind"], row["params"]), row["rep"]


def _data_sets(lines: Sequence[Row]) -> str:
    """What the accuracies of these cells are of."""
    return " and ".join(sorted({data_set(line["workload"]) for line in lines if line["accuracy"] == line["accuracy"]}))


def _slug(pivot: Pivot) -> str:
    """ "-gloo-workers-8": what tells this pivot's figures from those of the others."""
    parts = [
        f"{value}" if axis in {"collective", "profile", "tcp", "testbed", "emulator"} else f"{axis}-{shown(value)}"
        for axis, value in pivot.fixed.items()
    ]
    return "".join("-" + _safe(part) for part in parts)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")
