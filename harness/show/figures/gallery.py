"""Every figure that the rows of a run can show, in the order of a report: the trade-off first."""

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any

import pandas as pd

from wanbench.harness.analysis.axes import AXES, CONDITIONS, absent, algorithm_order, axes_of, axis_value, by_value
from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.compare import lay_beside
from wanbench.harness.analysis.summary import (
    AnalysisError,
    Pivot,
    Row,
    cells,
    compared_by_steps,
    frame,
    pivots,
    provenance,
    records,
)
from wanbench.harness.errors import SpecError
from wanbench.harness.grouping import by_key
from wanbench.harness.results import planned
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.results.rules import ACCURACY_BAND
from wanbench.harness.show.figures.bars import scalability_bars, step_time
from wanbench.harness.show.figures.caption import caption, on_network, subject
from wanbench.harness.show.figures.curves import goodput_by_mtbf, scalability_by_rtt
from wanbench.harness.show.figures.drawing import Drawing, Point
from wanbench.harness.show.figures.learning import (
    MOST_BANDS,
    learning,
    learning_points,
    learning_time,
    learning_time_points,
)
from wanbench.harness.show.figures.names import data_set, line_name, standing_name
from wanbench.harness.show.figures.network import MOST_SITES, network_matrix, network_points
from wanbench.harness.show.figures.pareto import drawn_points, pareto, pareto_front, pareto_points
from wanbench.harness.show.figures.timeline import (
    PACE_MARKS,
    TIMELINE_MARKS,
    Pace,
    Trace,
    pace,
    pace_points,
    timeline,
    timeline_points,
)
from wanbench.harness.text import shown

_NETWORK_AXES = {*CONDITIONS, "profile"}
_TIMELINE_ROWS = 6
_LONGEST = 60  # of a value in the name of a file

_SCALABILITY = ("scalability", "scalability_min", "scalability_max", "predicted_scalability")
_STEP_TIME = ("step_time_s", "compute_s", "stall_s", "overhead_s", "predicted_step_time_s")
_GOODPUT = ("goodput", "goodput_min", "goodput_max", "membership_changes", "recovery_s")


def gallery(
    rows: Sequence[Row],
    run_name: str,
    evidence: Evidence | None = None,
    beside: tuple[str, Sequence[Row]] | None = None,
    kind: str | None = None,
) -> list[Drawing]:
    """Return the drawings of a run; empty if no cell of more than one worker has a valid result.

    Args:
        rows: one per repetition. run_name: for the captions.
        evidence: for the figures that need more than rows.
        beside: name and rows of another run, drawn dashed where scalability is drawn.
        kind: of the only figure wanted, a key of `_OF_ROWS` or `_OF_EVIDENCE`.

    Raises:
        AnalysisError: the run beside has no algorithm on the same axis.
    """
    table = frame(rows)
    if not any(table[table["workers"] != 1]["status"] == "ok"):
        return []
    run = _Run(table, run_name, beside)
    drawings = [drawing for name, draw in _OF_ROWS.items() if kind in {None, name} for drawing in draw(run)]
    drawings += [
        drawing
        for name, draw in _OF_EVIDENCE.items()
        if evidence is not None and kind in {None, name}
        for drawing in draw(run, evidence)
    ]
    names = [drawing.name for drawing in drawings]
    # Files of their own, also if the values in two names are written alike.
    return [
        replace(drawing, name=f"{drawing.name}-{zlib.crc32(drawing.title.encode()):08x}")
        if drawing.name in names[:index]
        else drawing
        for index, drawing in enumerate(drawings)
    ]


class _Run:
    """The parts of a run that several drawings need.

    Attributes:
        table: of `frame`. rows: the same, one per repetition. name: for the captions. beside: as for `gallery`.
        lines: of `analysis.summary.cells`. valid: rows of valid repetitions; neither has one-worker cells.
    """

    def __init__(self, table: pd.DataFrame, name: str, beside: tuple[str, Sequence[Row]] | None) -> None:
        self.table, self.name, self.beside = table, name, beside
        self.lines = [line for line in cells(table) if line["workers"] != 1]
        self.rows = records(table)
        self.valid = [row for row in self.rows if row["status"] == "ok" and row["workers"] != 1]

    def cells_of(self, picked: Sequence[Row]) -> Pivot:
        """The cells of some repetitions, for title and caption."""
        kept = {(row["cell"], row["hosts"]) for row in picked}
        return whole([line for line in self.lines if (line["cell"], line["hosts"]) in kept])

    def by_network(self, rows: Sequence[Row]) -> list[list[Row]]:
        """The rows by the values of the swept axes, in order."""
        axes = axes_of(self.table)
        groups = by_key((tuple(by_value(row.get(axis)) for axis in axes), row) for row in rows)
        return [sorted(groups[key], key=_order) for key in sorted(groups)]

    def middle(self, rows: Sequence[Row]) -> list[Row]:
        """The rows on the middle one of the networks that the run sweeps, in order."""
        groups = self.by_network(rows)
        return groups[len(groups) // 2] if groups else []

    def one_each(self) -> list[Row]:
        """One repetition of as many algorithms as fit, on the middle network: the best, then each family in turn."""
        rows = self.middle(self.valid)
        by_kind: dict[str, dict[str, Row]] = {}
        for row in rows:
            by_kind.setdefault(row["kind"], {}).setdefault(row["algorithm"], row)
        turns = [
            row for turn in zip_longest(*(of_kind.values() for of_kind in by_kind.values())) for row in turn if row
        ]
        alone = [row for row in self.rows if row["workers"] == 1]
        best = next((n.best.algorithm for n in networks([*alone, *rows]) if n.best is not None), None)
        turns.sort(key=lambda row: row["algorithm"] != best)
        return sorted(turns[:_TIMELINE_ROWS], key=_order)


def _speed(run: _Run) -> list[Drawing]:
    """Scalability and step time of every pivot; step time alone where scalability says little."""
    tables = pivots(run.table)
    if run.beside is not None:
        name, other_rows = run.beside
        tables = [lay_beside(pivot, other_rows, name) for pivot in tables]
        if not any(pivot.beside for pivot in tables):
            raise AnalysisError(
                f"{name}: no valid cell with an algorithm of {run.name} on the same axis, so nothing is drawn beside it"
            )
    by_steps = compared_by_steps(run.lines)
    valid = [pivot for pivot in tables if any(line["status"] == "ok" for line in pivot.lines.values())]
    return [
        draw(pivot, run.name)
        for pivot in valid
        for draw in (scalability_drawing, step_time_drawing)
        if draw is step_time_drawing or not by_steps
    ]


def scalability_drawing(pivot: Pivot, run_name: str) -> Drawing:
    """Scalability as curves over the round-trip time, or as bars."""
    by_rtt = pivot.column_axis == "rtt_ms"
    speed, name = (scalability_by_rtt, "scalability-by-rtt") if by_rtt else (scalability_bars, "scalability")
    return Drawing(
        name + _slug(pivot),
        f"Scalability: {subject(pivot)}",
        lambda width: speed(pivot, run_name, width),
        lambda: _pivot_points(pivot, run_name, _SCALABILITY),
    )


def step_time_drawing(pivot: Pivot, run_name: str) -> Drawing:
    """The parts of a step's time."""
    pivot = replace(pivot, beside=None)
    return Drawing(
        f"step-time{_slug(pivot)}",
        f"Where a step's time goes: {subject(pivot)}",
        lambda width: step_time(pivot, run_name, width),
        lambda: _pivot_points(pivot, run_name, _STEP_TIME),
    )


def _goodput(run: _Run) -> list[Drawing]:
    """What is left of each algorithm where workers fail at random."""
    return [
        Drawing(
            f"goodput{_slug(pivot)}",
            f"Goodput under failures: {subject(pivot)}",
            partial(goodput_by_mtbf, pivot, run.name),
            partial(_pivot_points, pivot, run.name, _GOODPUT),
        )
        for pivot in pivots(run.table, ["mtbf_s", *AXES])
        if any(not absent(line["mtbf_s"]) for line in pivot.lines.values())
        and any(not absent(line["goodput"]) for line in pivot.lines.values())
    ]


def _pivot_points(pivot: Pivot, run_name: str, columns: Sequence[str]) -> list[Point]:
    """One point per cell, also of a run beside; of `columns`, the first is the one that published values belong to."""
    runs = [(run_name, pivot.lines, pivot.published)]
    runs += [(pivot.beside.run, pivot.beside.lines, {})] if pivot.beside else []
    return [
        {
            "run": name,
            "network": provenance([line["testbed"]]),
            **pivot.fixed,
            "algorithm": label,
            pivot.column_axis: column,
            "status": line["status"],
            "repetitions": line["repeats"],
            **{measure: line[measure] for measure in columns},
            **({f"published_{columns[0]}": published.get((label, column))} if pivot.published else {}),
        }
        for name, lines, published in runs
        for label in pivot.algorithms
        for (algorithm, column), line in sorted(lines.items(), key=lambda entry: by_value(entry[0][1]))
        if algorithm == label
    ]


def _trade_off(run: _Run) -> list[Drawing]:
    standings = networks(run.rows)
    if not any(map(drawn_points, standings)):
        return []
    marks = (
        f"bars: minimum and maximum; grey: at most {100 * ACCURACY_BAND:g} points below SSGD; "
        "title: 95 % interval of paired seeds"
    )
    marks += "; dashed: not dominated" if any(len(pareto_front(drawn_points(n))) > 1 for n in standings) else ""
    every = [s for network in standings for s in network.standings]
    unequal = {f"{standing_name(s)} {s.not_compared}" for s in every if s.not_compared}
    marks += "".join(f"; {remark}" for remark in sorted(unequal))
    pivot = whole(run.lines)
    about = caption(pivot, run.name, marks, whiskers=False)
    learned, what = _data_sets(run.lines), on_network(pivot)
    return [
        Drawing(
            "pareto",
            "Speed and accuracy",
            partial(pareto, standings, learned, what, about, pivot.network),
            partial(pareto_points, standings),
        )
    ]


def _learning(run: _Run, evidence: Evidence) -> list[Drawing]:
    """Learning curves on the middle network only: accuracy hardly depends on the network."""
    rows = run.middle([row for row in run.valid if not absent(row["accuracy"])])
    curves = _curves(rows, evidence)
    if not curves:
        return []
    pivot = run.cells_of(rows)
    crowded = len(curves) > MOST_BANDS
    own = not crowded and any("before_drain" in curve for _, reps in curves.values() for curve in reps)
    dotted = "; dotted: rank 0's own model, which lacks the averages in flight" if own else ""
    spread = "bars at the ends" if crowded else "bands"
    about = caption(pivot, run.name, f"{spread}: minimum and maximum{dotted}", whiskers=False)
    learned = _data_sets(pivot.lines.values())
    draw = partial(learning, curves, learned, on_network(pivot), about, pivot.network)
    return [Drawing("learning", f"Learning {learned}", draw, partial(learning_points, curves))]


def _curves(rows: Sequence[Row], evidence: Evidence) -> dict[tuple[str, str], tuple[Row, list[Any]]]:
    """The learning curves of repetitions, by label and kind, with the algorithm's parameters.

    A curve is stored with few digits, so its end is the accuracy of the repetition, as tables have it.
    """
    curves: dict[tuple[str, str], tuple[Row, list[Any]]] = {}
    for row in rows:
        curve = evidence.curve(row)
        if curve is not None and len(curve["step"]) > 1:
            ending = {**curve, "accuracy": [*curve["accuracy"][:-1], row["accuracy"]]}
            curves.setdefault((row["algorithm"], row["kind"]), (row["params"] or {}, []))[1].append(ending)
    return curves


def _learning_time(run: _Run, evidence: Evidence) -> list[Drawing]:
    """For runs that sweep nothing but the network: the first, the middle and the last one."""
    axes = axes_of(run.table)
    on_networks = run.by_network([row for row in run.valid if not absent(row["accuracy"])])
    if len(on_networks) < 2 or not set(axes) <= _NETWORK_AXES:
        return []
    chosen = [on_networks[index] for index in sorted({0, len(on_networks) // 2, len(on_networks) - 1})]
    by_name = {", ".join(axis_value(axis, rows[0][axis]) for axis in axes): rows for rows in chosen}
    curves = {name: drawable for name, rows in by_name.items() if (drawable := _curves(rows, evidence))}
    if len(curves) < 2:
        return []
    pivot = run.cells_of([row for rows in chosen for row in rows])
    marks = "accuracy: their mean, and as a band its 95 % interval (from three repetitions on)"
    about = caption(pivot, run.name, marks, whiskers=False)
    learned = _data_sets(pivot.lines.values())
    draw = partial(learning_time, curves, learned, on_network(pivot), about, pivot.network)
    title = f"Learning {learned}, by time on each network"
    return [Drawing("learning-time", title, draw, partial(learning_time_points, curves))]


def _timeline(run: _Run, evidence: Evidence) -> list[Drawing]:
    """One repetition per algorithm on the middle network: the best, and the smallest settings of each family."""
    rows = run.one_each()
    traces = [trace for row in rows if (trace := trace_of(row, evidence)) is not None]
    if not traces:
        return []
    pivot = run.cells_of(rows)
    above = ", ".join(filter(None, [on_network(pivot), _delays(rows[0], evidence)]))
    draw = partial(timeline, traces, above, caption(pivot, run.name, TIMELINE_MARKS, middle=""))
    return [Drawing("timeline", "A worker's steps and messages in flight", draw, partial(timeline_points, traces))]


def trace_of(row: Row, evidence: Evidence) -> Trace | None:
    """The steps and messages of rank 0; None if they were not recorded, or cannot be read."""
    recorded = evidence.trace(row)
    if recorded is None or not recorded["messages"] or not recorded["steps"].get("step"):
        return None
    events = [(event["at_ns"], event["what"]) for event in row.get("events") or [] if event["at_ns"] is not None]
    steps, messages = pd.DataFrame(recorded["steps"]), pd.DataFrame(recorded["messages"])
    return Trace(line_name(row), steps, messages, recorded["first"], events)


def _pace(run: _Run, evidence: Evidence) -> list[Drawing]:
    """Like `_timeline`, for runs whose network changes."""
    rows = [row for row in run.one_each() if row.get("events")]
    paces = [
        Pace(
            line_name(row),
            row["kind"],
            row["params"] or {},
            steps["slowest"],
            steps["fastest"],
            [(event["actual_s"], event["what"]) for event in row["events"] if event["actual_s"] is not None],
        )
        for row in rows
        if (steps := evidence.pace(row))
    ]
    if not paces:
        return []
    pivot = run.cells_of(rows)
    about = caption(pivot, run.name, f"{PACE_MARKS}; {rows[0]['timeline']}", middle="")
    draw = partial(pace, paces, on_network(pivot), about)
    return [Drawing("pace", "Step time against time", draw, partial(pace_points, paces))]


def _network(run: _Run, evidence: Evidence) -> list[Drawing]:
    """One drawing per profile."""
    profiles = dict.fromkeys(str(row["profile"]) for row in run.valid)
    return [drawing for profile in profiles for drawing in _matrix_of(profile, run, evidence)]


def _matrix_of(profile: str, run: _Run, evidence: Evidence) -> list[Drawing]:
    """The network with the longest round trips and the most sites that fit."""
    rows = [row for row in run.valid if row["profile"] == profile and row["workers"] <= 4 * MOST_SITES]
    rows.sort(key=lambda row: (-(row["rtt_max_ms"] or 0), -row["workers"], row["testbed"] == "virtual"))
    paths = next((measured for row in rows[:3] if (measured := evidence.network(row))), None) or []
    if not 2 <= len({path[end] for path in paths for end in ("src", "dst")}) <= MOST_SITES:
        return []
    row = rows[0]
    delays, kind = _delays(row, evidence), provenance([row["testbed"]])
    testbed = kind if kind == "simulated" else f"emulated by {row['emulator']} (testbed {row['testbed']})"
    about = f"{run.name}: profile {profile}, longest round trip {row['rtt_max_ms']:.4g} ms; {testbed}"
    if row["payload_scale"] != 1:
        about += f"; rates × {row['payload_scale']:g}"
    draw = partial(network_matrix, paths, f"{kind} network, {delays or profile}", about)
    return [Drawing(f"network-{_safe(profile)}", f"The network {profile}", draw, partial(network_points, paths))]


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
        if axis in {"collective", "profile", "tcp", "host_tcp", "testbed", "emulator", "hosts"}
        else f"{axis}-{shown(value)}"
        for axis, value in pivot.fixed.items()
    ]
    return "".join("-" + _safe(part) for part in parts)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")[:_LONGEST]


_OF_ROWS: Mapping[str, Callable[[_Run], list[Drawing]]] = {
    "pareto": _trade_off,
    "speed": _speed,
    "goodput": _goodput,
}
_OF_EVIDENCE: Mapping[str, Callable[[_Run, Evidence], list[Drawing]]] = {
    "learning": _learning,
    "learning-time": _learning_time,
    "timeline": _timeline,
    "pace": _pace,
    "network": _network,
}
