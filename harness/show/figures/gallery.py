"""Every figure that the rows of a run can show, in the order of a report: the trade-off first."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from wanbench.harness.analysis.beside import lay_beside
from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.labels import AXES
from wanbench.harness.analysis.order import absent, algorithm_order, by_value
from wanbench.harness.analysis.pooling import grouped
from wanbench.harness.analysis.summary import (
    COLUMNS,
    AnalysisError,
    Pivot,
    axes_of,
    axis_value,
    cells,
    frame,
    pivots,
    provenance,
    records,
)
from wanbench.harness.errors import SpecError
from wanbench.harness.results import planned
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.results.rules import ACCURACY_BAND
from wanbench.harness.show.figures.bars import scalability_bars
from wanbench.harness.show.figures.caption import caption, on_network, subject
from wanbench.harness.show.figures.goodput import goodput_by_mtbf
from wanbench.harness.show.figures.learning import learning
from wanbench.harness.show.figures.learning_time import learning_time
from wanbench.harness.show.figures.learning_time import points as points_by_network
from wanbench.harness.show.figures.names import data_set, human
from wanbench.harness.show.figures.network import MOST_SITES, network_matrix
from wanbench.harness.show.figures.pace import MARKS as PACE_MARKS
from wanbench.harness.show.figures.pace import Pace, pace
from wanbench.harness.show.figures.pareto import drawn_points, pareto, pareto_front
from wanbench.harness.show.figures.points import (
    GOODPUT,
    SCALABILITY,
    STEP_TIME,
    Point,
    of_curves,
    of_paces,
    of_paths,
    of_pivot,
    of_standings,
    of_traces,
)
from wanbench.harness.show.figures.scalability import scalability_by_rtt
from wanbench.harness.show.figures.step_time import step_time
from wanbench.harness.show.figures.timeline import MARKS, Trace, timeline
from wanbench.harness.show.grid import shown

# Results of different collectives differ too much to share a figure.
_COLUMN_AXES = [axis for axis in AXES if axis != "collective"]
_NETWORK_AXES = {"rtt_ms", "profile", "rate_mbps", "loss_pct", "loss_burst", "jitter_ms", "tcp"}
_TIMELINE_ROWS = 6
_LONGEST = 60  # of a value in the name of a file

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn.

    Attributes:
        name: of its files. title: for a heading. draw: makes it, of a width in inches. points: what it shows.
    """

    name: str
    title: str
    draw: Callable[[float], Figure]
    points: Callable[[], Sequence[Point]]


def gallery(
    rows: Sequence[Row],
    run_name: str,
    evidence: Evidence | None = None,
    progress: str | None = None,
    beside: tuple[str, Sequence[Row]] | None = None,
) -> list[Drawing]:
    """Return the drawings of a run; empty if no cell of more than one worker has a valid result.

    Args:
        rows: one per repetition. run_name: for the captions.
        evidence: for the figures that need more than rows. progress: of a run that is not finished, "14 of 42 cells".
        beside: name and rows of another run, drawn dashed where scalability is drawn.

    Raises:
        AnalysisError: the run beside has no algorithm on the same axis.
    """
    rows = grouped(rows)
    table = frame(rows)
    if not len(table) or not any(table[table["workers"] != 1]["status"] == "ok"):
        return []
    run = _Run(rows, table, run_name)
    drawn = _trade_off(run, progress)
    found = pivots(table, _COLUMN_AXES)
    if beside is not None:
        name, others = beside
        found = [lay_beside(pivot, others, name) for pivot in found]
        if not any(pivot.beside for pivot in found):
            raise AnalysisError(
                f"{name}: no valid cell with an algorithm of {run_name} on the same axis; nothing to lay beside"
            )
    for pivot in found:
        if any(line["status"] == "ok" for line in pivot.lines.values()):
            drawn += _of_pivot(pivot, run_name, progress)
    drawn += _goodput(run, progress)
    if evidence is not None:
        for of_evidence in (_learning, _learning_time, _timeline, _pace, _matrix):
            drawn += of_evidence(run, evidence)
    return _apart(drawn)


def _apart(drawn: Sequence[Drawing]) -> list[Drawing]:
    """The drawings with files of their own, also if the values in two names are written alike."""
    names = [each.name for each in drawn]
    return [
        replace(each, name=f"{each.name}-{zlib.crc32(each.title.encode()):08x}") if each.name in names[:place] else each
        for place, each in enumerate(drawn)
    ]


class _Run:
    """The parts of a run that several drawings need.

    Attributes:
        rows: one per repetition. table: the same. name: for the captions.
        lines: of `analysis.summary.cells`. valid: rows of valid repetitions; neither has one-worker cells.
    """

    def __init__(self, rows: Sequence[Row], table: pd.DataFrame, name: str) -> None:
        self.rows, self.table, self.name = rows, table, name
        self.lines = [line for line in records(cells(table)) if line["workers"] != 1]
        full: list[dict[str, Any]] = [{**dict.fromkeys(COLUMNS), **row} for row in rows]
        self.valid = [row for row in full if row["status"] == "ok" and row["workers"] != 1]

    def cells_of(self, picked: Sequence[Row]) -> Pivot:
        """The cells of some repetitions, for title and caption."""
        kept = {(row["cell"], row["hosts"]) for row in picked}
        return whole([line for line in self.lines if (line["cell"], line["hosts"]) in kept])

    def places(self, rows: Sequence[Row]) -> list[list[Row]]:
        """The rows by the values of the swept axes, in order."""
        axes = axes_of(self.table)
        places: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            places.setdefault(tuple(by_value(row.get(axis)) for axis in axes), []).append(row)
        return [sorted(places[place], key=_order) for place in sorted(places)]

    def middle(self, rows: Sequence[Row]) -> list[Row]:
        """The rows on the middle one of the networks that the run sweeps, in order."""
        places = self.places(rows)
        return places[len(places) // 2] if places else []

    def one_each(self) -> list[Row]:
        """One repetition of as many algorithms as fit, on the middle network: the best, then each family in turn."""
        rows = self.middle(self.valid)
        by_kind: dict[str, dict[str, Row]] = {}
        for row in rows:
            by_kind.setdefault(row["kind"], {}).setdefault(row["algorithm"], row)
        turns = [row for turn in zip_longest(*(found.values() for found in by_kind.values())) for row in turn if row]
        best = self._best(rows)
        turns.sort(key=lambda row: row["algorithm"] != best)
        return sorted(turns[:_TIMELINE_ROWS], key=_order)

    def _best(self, rows: Sequence[Row]) -> str | None:
        """The best algorithm among repetitions on one network."""
        if not rows:
            return None
        alone = [row for row in self.rows if row["workers"] == 1]
        found = [network.best for network in networks([*alone, *rows])]
        return next((best.algorithm for best in found if best is not None), None)


def _of_pivot(pivot: Pivot, run_name: str, progress: str | None) -> list[Drawing]:
    by_rtt = pivot.column_axis == "rtt_ms"
    speed = scalability_by_rtt if by_rtt else scalability_bars
    name = "scalability-by-rtt" if by_rtt else "scalability"
    slug, heading = _slug(pivot), subject(pivot)
    return [
        Drawing(
            name + slug,
            f"Scalability: {heading}",
            lambda width: speed(pivot, run_name, width, progress),
            lambda: of_pivot(pivot, run_name, SCALABILITY),
        ),
        Drawing(
            f"step-time{slug}",
            f"Where a step's time goes: {heading}",
            lambda width: step_time(replace(pivot, beside=None), run_name, width, progress),
            lambda: of_pivot(replace(pivot, beside=None), run_name, STEP_TIME),
        ),
    ]


def _goodput(run: _Run, progress: str | None) -> list[Drawing]:
    """What is left of each algorithm where workers fail at random."""
    found = pivots(run.table, ["mtbf_s", *_COLUMN_AXES])
    failing = [pivot for pivot in found if any(not absent(line["mtbf_s"]) for line in pivot.lines.values())]
    return [
        Drawing(
            f"goodput{_slug(pivot)}",
            f"What is left under failures: {subject(pivot)}",
            partial(_draw_goodput, pivot, run.name, progress),
            partial(of_pivot, pivot, run.name, GOODPUT),
        )
        for pivot in failing
        if any(not absent(line["goodput"]) for line in pivot.lines.values())
    ]


def _draw_goodput(pivot: Pivot, run_name: str, progress: str | None, width: float) -> Figure:
    return goodput_by_mtbf(pivot, run_name, width, progress)


def _trade_off(run: _Run, progress: str | None) -> list[Drawing]:
    found = networks(run.rows)
    if not any(s.accuracy_change is not None and not absent(s.scalability) for n in found for s in n.standings):
        return []
    marks = (
        f"bars: minimum and maximum; grey: at most {100 * ACCURACY_BAND:g} points below ssgd; "
        "title: 95 % interval of paired seeds"
    )
    marks += "; dashed: not dominated" if any(len(pareto_front(drawn_points(n))) > 1 for n in found) else ""
    every = [s for network in found for s in network.standings]
    unequal = {f"{human(s.algorithm, s.kind, s.params)} {s.not_compared}" for s in every if s.not_compared}
    marks += "".join(f"; {each}" for each in sorted(unequal))
    pivot = whole(run.lines)
    about = caption(pivot, run.name, marks, progress, whiskers=False)
    learned, what = _data_sets(run.lines), on_network(pivot)
    return [
        Drawing(
            "pareto",
            "Speed and accuracy",
            lambda width: pareto(found, learned, what, about, width),
            lambda: of_standings(found),
        )
    ]


def _learning(run: _Run, evidence: Evidence) -> list[Drawing]:
    """Learning curves on the middle network only: accuracy hardly depends on the network."""
    chosen = run.middle([row for row in run.valid if row["accuracy"] is not None])
    curves = _curves(chosen, evidence)
    if not curves:
        return []
    pivot = run.cells_of(chosen)
    about = caption(pivot, run.name, "bands: minimum and maximum", whiskers=False)
    learned, what = _data_sets(pivot.lines.values()), on_network(pivot)
    return [
        Drawing(
            "learning",
            f"Learning {learned}",
            lambda width: learning(curves, learned, what, about, width),
            lambda: of_curves(curves),
        )
    ]


def _curves(rows: Sequence[Row], evidence: Evidence) -> dict[tuple[str, str], tuple[Row, list[Any]]]:
    """The learning curves of repetitions, by label and kind, with the algorithm's parameters."""
    curves: dict[tuple[str, str], tuple[Row, list[Any]]] = {}
    for row in rows:
        curve = evidence.curve(row)
        if curve is not None and len(curve["step"]) > 1:
            curves.setdefault((row["algorithm"], row["kind"]), (row["params"] or {}, []))[1].append(curve)
    return curves


def _learning_time(run: _Run, evidence: Evidence) -> list[Drawing]:
    """For runs that sweep nothing but the network: the first, the middle and the last one."""
    axes = axes_of(run.table)
    places = run.places([row for row in run.valid if row["accuracy"] is not None])
    if len(places) < 2 or not set(axes) <= _NETWORK_AXES:
        return []
    chosen = [places[place] for place in sorted({0, len(places) // 2, len(places) - 1})]
    found = {", ".join(axis_value(axis, rows[0][axis]) for axis in axes): _curves(rows, evidence) for rows in chosen}
    found = {name: curves for name, curves in found.items() if curves}
    if len(found) < 2:
        return []
    pivot = run.cells_of([row for rows in chosen for row in rows])
    about = caption(
        pivot,
        run.name,
        "accuracy: their mean, and as a band its 95 % interval (from three repetitions on)",
        whiskers=False,
    )
    learned, what = _data_sets(pivot.lines.values()), on_network(pivot)
    return [
        Drawing(
            "learning-time",
            f"Learning {learned}, by time on each network",
            lambda width: learning_time(found, learned, what, about, width),
            lambda: points_by_network(found),
        )
    ]


def _timeline(run: _Run, evidence: Evidence) -> list[Drawing]:
    """One repetition per algorithm on the middle network: the best, and the smallest settings of each family."""
    picked = run.one_each()
    traces = [trace for row in picked if (trace := trace_of(row, evidence)) is not None]
    if not traces:
        return []
    pivot, heading = run.cells_of(picked), "A worker's steps and messages in flight"
    about = caption(pivot, run.name, MARKS, whiskers=False)
    above = ", ".join(filter(None, [on_network(pivot), _delays(picked[0], evidence)]))
    return [
        Drawing("timeline", heading, lambda width: timeline(traces, above, about, width), lambda: of_traces(traces))
    ]


def _pace(run: _Run, evidence: Evidence) -> list[Drawing]:
    """Like `_timeline`, for runs whose network changes."""
    picked = [row for row in run.one_each() if row.get("events")]
    paces = [
        Pace(row["algorithm"], row["kind"], row["params"] or {}, found["slowest"], found["fastest"], _marks(row))
        for row in picked
        if (found := evidence.pace(row))
    ]
    if not paces:
        return []
    pivot, heading = run.cells_of(picked), "Step time against time"
    about = caption(pivot, run.name, f"{PACE_MARKS}; {picked[0]['timeline']}", whiskers=False)
    above = on_network(pivot)
    return [Drawing("pace", heading, lambda width: pace(paces, above, about, width), lambda: of_paces(paces))]


def _marks(row: Row) -> list[tuple[float, str]]:
    """(seconds, what) of the changes that took place."""
    return [(event["actual_s"], event["what"]) for event in row["events"] if event["actual_s"] is not None]


def trace_of(row: Row, evidence: Evidence) -> Trace | None:
    """The steps and messages of rank 0; None if they were not recorded, or cannot be read."""
    found = evidence.trace(row)
    if found is None or not found["messages"] or not found["steps"].get("step"):
        return None
    events = [(event["at_ns"], event["what"]) for event in row.get("events") or [] if event["at_ns"] is not None]
    steps, messages = pd.DataFrame(found["steps"]), pd.DataFrame(found["messages"])
    return Trace(human(row["algorithm"], row["kind"], row["params"]), steps, messages, found["first"], events)


def _matrix(run: _Run, evidence: Evidence) -> list[Drawing]:
    """One drawing per profile."""
    profiles = dict.fromkeys(str(row["profile"]) for row in run.valid)
    return [drawing for profile in profiles for drawing in _matrix_of(profile, run, evidence)]


def _matrix_of(profile: str, run: _Run, evidence: Evidence) -> list[Drawing]:
    """The network with the longest round trips and the most sites that fit."""
    mine = [row for row in run.valid if row["profile"] == profile and row["workers"] <= 4 * MOST_SITES]
    mine.sort(key=lambda row: (-(row["rtt_max_ms"] or 0), -row["workers"], row["testbed"] == "virtual"))
    paths = next((found for row in mine[:3] if (found := evidence.network(row))), None) or []
    if not 2 <= len({path[end] for path in paths for end in ("src", "dst")}) <= MOST_SITES:
        return []
    row = mine[0]
    delays, kind = _delays(row, evidence), provenance([row["testbed"]])
    testbed = kind if kind == "simulated" else f"emulated by {row['emulator']} (testbed {row['testbed']})"
    about = f"{run.name}: profile {profile}, longest round trip {row['rtt_max_ms']:.4g} ms; {testbed}"
    if row["payload_scale"] != 1:
        about += f"; rates × {row['payload_scale']:g}"
    what = f"{kind} network, {delays or profile}"
    name = f"network-{_safe(profile)}"
    return [
        Drawing(
            name,
            f"The network {profile}",
            lambda width: network_matrix(paths, what, about, width),
            lambda: of_paths(paths),
        )
    ]


def _delays(row: Row, evidence: Evidence) -> str:
    """A profile whose delays were scaled: "world4 with delays × 4"; empty if they were not."""
    try:
        scale = planned.read(evidence.path).spec.get("network", {}).get("rtt_scale")
    except SpecError:
        scale = None
    scale = row["axes"].get("network.rtt_scale", scale) if row.get("axes") else scale
    return f"{row['profile']} with delays × {float(scale):g}" if scale not in {None, 1} else ""


def whole(lines: Sequence[Row]) -> Pivot:
    """All cells as one pivot without an axis, for captions and titles."""
    uniform = all(line["profile"] == "uniform" for line in lines)
    fixed = {}
    for axis in ("rtt_ms", "loss_pct", "loss_burst"):
        values = {line[axis] for line in lines if not absent(line[axis])}
        if uniform and len(values) == 1 and (axis == "rtt_ms" or values != {0.0}):
            fixed[axis] = values.pop()
    return Pivot(fixed, "", (), (), {(line["cell"], line["hosts"]): line for line in lines})


def _order(row: Row) -> tuple[Any, ...]:
    return algorithm_order(row["algorithm"], row["kind"], row["params"]), row["rep"]


def _data_sets(lines: Iterable[Row]) -> str:
    """The data sets of these cells' accuracies."""
    return " and ".join(sorted({data_set(line["workload"]) for line in lines if not absent(line["accuracy"])}))


def _slug(pivot: Pivot) -> str:
    """ "-gloo-workers-8": the part of the file names that differs between pivots."""
    parts = [
        f"{value}"
        if axis in {"collective", "profile", "tcp", "testbed", "emulator", "hosts"}
        else f"{axis}-{shown(value)}"
        for axis, value in pivot.fixed.items()
    ]
    return "".join("-" + _safe(part) for part in parts)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")[:_LONGEST]
