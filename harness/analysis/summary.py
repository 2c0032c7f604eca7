"""Rows (one per repetition) become the cells, axes and pivots that tables and figures show.

A cell is summarised by the median of its valid repetitions, with their minimum and maximum. Step times are averages
over the window. A median over steps would hide every synchronisation of a method with a period above 1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from wanbench.harness.analysis.order import AXES, CONDITIONS, absent, algorithm_order, by_value
from wanbench.harness.plan.law import PredictInputs, one_shot_bytes, predict
from wanbench.harness.results.columns import MEASURES, SHOWN, empty
from wanbench.harness.results.goodput import set_goodput
from wanbench.harness.results.hosts import NOT_RECORDED, by_run, hosts_of
from wanbench.harness.results.scalability import host_of, rescale
from wanbench.harness.spec.tables import TUNED
from wanbench.harness.text import plain, rate
from wanbench.workloads.comm.blocks import MTU

Row = Mapping[str, Any]  # a repetition
Line = Row  # a cell, from `cells`

_TO_TARGET = frozenset({"time_to_target_s", "steps_to_target"})

AXIS_TITLES = {
    "rtt_ms": "RTT (ms)",
    "workers": "workers",
    "profile": "profile",
    "rate_mbps": "rate (Mbit/s)",
    "loss_pct": "loss (%)",
    "loss_burst": "loss burst (packets)",
    "jitter_ms": "jitter (ms)",
    "mtu": "MTU (bytes)",
    "tcp": "TCP",
    "host_tcp": "hosts' TCP",
    "payload_scale": "payload scale",
    "mtbf_s": "time between failures (s)",
    "mttr_s": "time to repair (s)",
    "hosts": "host",
}


class AnalysisError(ValueError):
    """Rows that cannot be summarised."""


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a DataFrame with every column, in an order that does not depend on the order of execution.

    Scalability is computed from the one-worker repetitions among the rows. Rows without one keep their stored value.
    Cells that no shown column tells apart get longer labels. `hosts` is the axis of `grouped`.
    """
    full: list[dict[str, Any]] = [{**empty(), **row} for row in rows]
    for row in full:
        if row["profile"] == "uniform" and absent(row["loss_burst"]):  # equal paths: without bursts
            row["loss_burst"] = 0.0
        if absent(row["mtu"]):
            row["mtu"] = MTU
        if absent(row["host_tcp"]) and row["workers"] != 1:
            row["host_tcp"] = TUNED
    rescale(full)
    set_goodput(full)
    full = grouped(full)
    tell_apart(full)
    full.sort(key=_row_order)
    names = dict.fromkeys([*SHOWN, "hosts", *(key for row in full for key in row)])
    table = pd.DataFrame(full, columns=list(names), dtype=object)
    for name in (*MEASURES, *CONDITIONS, "predicted_step_time_s", "payload_scale"):
        table[name] = pd.to_numeric(table[name]).astype(float)
    return table


def grouped(rows: Iterable[Row], *, across_hosts: bool = False) -> list[dict[str, Any]]:
    """The rows with an axis `hosts`: where the hosts of a run are not alike, each row's own; else None.

    Simulated rows have None, too. Rows that have the axis keep it, so a part of a run is grouped like the whole.

    Args:
        across_hosts: summarise all repetitions of a cell together.
    """
    rows = list(rows)
    if all("hosts" in row for row in rows):
        return [dict(row) for row in rows]
    apart = {run for run, of_run in by_run(rows).items() if not across_hosts and hosts_of(of_run).problem}
    return [{**row, "hosts": own_host(row) if row.get("run") in apart else None} for row in rows]


def own_host(row: Row) -> str | None:
    """The host of a row as a value of the axis `hosts`."""
    return None if row.get("testbed") == "virtual" else host_of(row) or NOT_RECORDED


def remarks(rows: Iterable[Row], *, across_hosts: bool = False) -> list[tuple[str, str]]:
    """Each run whose hosts are not alike, and a sentence: what is wrong, and how its repetitions are summarised."""
    pooled, apart = "--across-hosts pools them all the same", "Hosts are kept apart (--across-hosts pools them)"
    problems = [(str(run), hosts_of(of_run).problem) for run, of_run in by_run(rows).items()]
    return [(run, f"{problem}. {pooled if across_hosts else apart}") for run, problem in problems if problem]


def tell_apart(rows: Iterable[dict[str, Any]]) -> None:
    """Extend the labels of cells that are equal in every shown column.

    Such cells differ in an axis that has no column, such as `train.lr`, or come from two versions of a spec and differ
    in their identity.
    """
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["workers"] != 1:
            shown = (row["run"], row["algorithm"], *(str(row[axis]) for axis in AXES))
            alike.setdefault(shown, []).append(row)
    for group in alike.values():
        cells = {row["cell_key"]: row for row in group}
        if len(cells) > 1:
            added = _differences(list(cells.values()))
            for row in group:
                row["algorithm"] = f"{row['algorithm']} {added[row['cell_key']]}"


def _differences(cells: list[dict[str, Any]]) -> dict[str, str]:
    """The text to add to the label of each cell, by identity."""
    keys = sorted({key for cell in cells for key in cell["axes"] if len({str(c["axes"].get(key)) for c in cells}) > 1})
    added = {}
    for cell in cells:
        values = [f"{key}={cell['axes'][key]}" for key in keys if key in cell["axes"]]
        added[cell["cell_key"]] = " ".join(values)
    if len(set(added.values())) < len(cells) or not all(added.values()):
        return {key: f"{text} #{key[:6]}".strip() for key, text in added.items()}
    return added


def _row_order(row: Mapping[str, Any]) -> tuple[object, ...]:
    axes = tuple(by_value(row.get(name)) for name in AXES)
    algorithm = algorithm_order(str(row["algorithm"]), str(row["kind"]), row["params"])
    return str(row["run"]), algorithm, axes, str(row["cell"]), by_value(row["rep"]), by_value(row["host"])


def axes_of(table: pd.DataFrame) -> list[str]:
    """The columns that this run sweeps, the most suitable as table columns first.

    A network value that follows from the profile and the number of workers (which changes the sites in use) is not an
    axis. Channels that follow from the algorithm, and an emulator or host from the testbed, are none either.
    """
    swept = table[table["workers"] != 1]
    axes = []
    for name in AXES:
        if swept[name].nunique(dropna=False) <= 1:  # in no group are there more; groups take long
            continue
        given = ["algorithm"]
        if name in CONDITIONS:
            given += ["workers", "profile", "payload_scale"]
        elif name == "mttr_s":
            given += ["mtbf_s"]
        elif name == "channels":
            given += ["collective"]
        elif name in {"emulator", "hosts"}:
            given += ["testbed"]
        # Even if each algorithm has its own workload: speeds on different workloads cannot be compared.
        several = name == "workload" and swept[name].nunique() > 1
        if several or swept.groupby(given, dropna=False)[name].nunique(dropna=False).max() > 1:
            axes.append(name)
    return axes


def cells(table: pd.DataFrame) -> list[dict[str, Any]]:
    """One line per cell: medians of the valid repetitions, `<measure>_min` and `<measure>_max`, law and deviation.

    Where hosts are kept apart, a cell has a line for each. `on_hosts` are those of a line, `host` the only one.

    `status` is ok if any repetition is valid, else that of the last one. `repeats` counts the valid repetitions.
    `predicted_scalability` is dimensionless. `deviation_pct` is 100 (measured / predicted - 1), of scalability.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in records(table):
        groups.setdefault((row["run"], row["cell"], row["hosts"]), []).append(row)
    return [_cell(group) for group in groups.values()]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The lines of a DataFrame as dicts."""
    names = list(table.columns)  # once: to go through the index takes longer than through a line
    return [dict(zip(names, values, strict=True)) for values in table.itertuples(index=False, name=None)]


def _cell(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    valid = [row for row in group if row["status"] == "ok"]
    line: dict[str, Any] = dict(group[-1])
    line["status"] = "ok" if valid else line["status"]
    line["reason"] = None if valid else line["reason"]
    line["repeats"] = len(valid)
    line["repeats_lost"] = len(group) - len(valid)
    hosts = sorted({row["host"] for row in valid or group}, key=by_value)
    line["host"], line["on_hosts"] = hosts[0] if len(hosts) == 1 else None, tuple(hosts)
    for name in MEASURES:
        values = [row[name] for row in valid if not math.isnan(row[name])]
        never = len(valid) - len(values) if name in _TO_TARGET and values else 0
        values += [math.inf] * never
        line[name] = statistics.median(values) if values else math.nan
        line[f"{name}_min"] = min(values, default=math.nan)
        line[f"{name}_max"] = max(values, default=math.nan)
        if never:  # slower than all others, but infinity is no time
            line |= {key: math.nan for key in (name, f"{name}_max") if math.isinf(line[key])}
    line["predicted_scalability"] = predicted_scalability(line)
    line["deviation_pct"] = 100 * (line["scalability"] / line["predicted_scalability"] - 1)
    return line


def predicted_scalability(line: Mapping[str, Any]) -> float:
    """The scalability of a cell by the law: T(1) / T_step, with the measured T(1) if Tc is not recorded.

    NaN if there is no prediction, as for real compute.
    """
    inputs = law_inputs(line)
    one_worker_s = line["scalability"] * line["step_time_s"] if inputs is None else inputs.base_step_time_s
    predicted_s = line["predicted_step_time_s"]
    return float(one_worker_s / predicted_s) if predicted_s > 0 and one_worker_s > 0 else math.nan


def law_inputs(line: Mapping[str, Any]) -> PredictInputs | None:
    """The recorded inputs of the law, or None if the row has none."""
    recorded = line.get("law_inputs")
    return PredictInputs.from_json(recorded) if isinstance(recorded, Mapping) else None


def law_curve(line: Mapping[str, Any], rtts_ms: Sequence[float]) -> list[float] | None:
    """Scalability by the law at other round-trip times; None if the row does not have its inputs."""
    inputs = law_inputs(line)
    predicted_s = line.get("predicted_step_time_s", 1.0)
    if inputs is None or inputs.step_time_s == 0 or predicted_s is None or math.isnan(predicted_s):
        return None
    at_rtts = [replace(inputs, rtt_s=rtt_ms / 1e3) for rtt_ms in rtts_ms]
    if "one_shot_bytes" in line["law_inputs"]:  # it depends on the round trip
        at_rtts = [replace(at_rtt, one_shot_bytes=one_shot_bytes(at_rtt)) for at_rtt in at_rtts]
    return [inputs.base_step_time_s / predict(at_rtt).step_time_s for at_rtt in at_rtts]


def axis_value(axis: str, value: object) -> str:
    """One value of an axis with its name and unit: "RTT 100 ms", "8 workers", "world4"."""
    if axis == "rate_mbps" and isinstance(value, float) and value == value:
        return f"rate {rate(value)}"
    if axis in {"profile", "tcp", "host_tcp", "collective", "workload"}:
        return str(value)
    if axis == "workers":
        return f"{value} workers"
    if axis == "mtbf_s" and absent(value):
        return "without failures"
    if axis == "hosts" and absent(value):
        return "any host"
    name, _, unit = AXIS_TITLES.get(axis, axis).partition(" (")
    return f"{name} {plain(value)} {unit.removesuffix(')')}".rstrip()


def provenance(testbeds: Iterable[str]) -> str:
    """What results on these testbeds are: "emulated", "simulated", or both."""
    return " and ".join(sorted({"simulated" if testbed == "virtual" else "emulated" for testbed in testbeds}))


@dataclass(frozen=True)
class Beside:
    """Another run, drawn thin beside the own one.

    Attributes:
        run: its name. lines: (algorithm, column) -> line of `cells`.
        different: its conditions that the own run does not have, in words.
    """

    run: str
    lines: Mapping[tuple[str, Any], Mapping[str, Any]]
    different: tuple[str, ...]

    @property
    def network(self) -> str:
        """Emulated or simulated."""
        return provenance(line["testbed"] for line in self.lines.values())

    @property
    def mark(self) -> str:
        """The words of a caption: "dts-latency, simulated, at payload scale 1"."""
        return f"{self.run}, {self.network}" + (f", with {' and '.join(self.different)}" if self.different else "")


@dataclass(frozen=True)
class Pivot:
    """Algorithms by one axis, at fixed values of the others.

    Attributes:
        fixed: the other swept axes and their values here.
        column_axis: the name of the axis, one of `AXES`.
        columns: its values. algorithms: labels, in order.
        lines: (algorithm, column) -> line of `cells`; a combination that was never run is missing.
        heading: a title that replaces the default one. note: text for the caption.
        published: (algorithm, column) -> published value, drawn beside the line's.
        beside: another run, from `analysis.compare.lay_beside`.
    """

    fixed: Mapping[str, Any]
    column_axis: str
    columns: tuple[Any, ...]
    algorithms: tuple[str, ...]
    lines: Mapping[tuple[str, Any], Mapping[str, Any]]
    heading: str | None = None
    note: str | None = None
    published: Mapping[tuple[str, Any], float] = field(default_factory=dict)
    beside: Beside | None = None


def pivots(table: pd.DataFrame, prefer: Sequence[str] = AXES) -> list[Pivot]:
    """Split a run into tables of algorithm by axis, without the one-worker cells.

    Args:
        table: as made by `frame`.
        prefer: axes, the preferred for the columns first. The other swept axes make one pivot per value.

    Raises:
        AnalysisError: there is no cell with more than one worker.
    """
    lines = [line for line in cells(table) if line["workers"] != 1]
    if not lines:
        raise AnalysisError("no cell with more than one worker has a result yet, so there is nothing to compare")
    swept = axes_of(table)
    column_axis = next((axis for axis in prefer if axis in swept), "workers")
    fixed = [axis for axis in swept if axis != column_axis]
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(by_value(line[axis]) for axis in fixed), []).append(line)
    return [_pivot(groups[values], fixed, column_axis) for values in sorted(groups)]


def _pivot(lines: Sequence[Line], fixed: Sequence[str], column_axis: str) -> Pivot:
    return Pivot(
        fixed={axis: math.nan if absent(lines[0][axis]) else lines[0][axis] for axis in fixed},
        column_axis=column_axis,
        columns=tuple(sorted({line[column_axis] for line in lines}, key=by_value)),
        algorithms=tuple(dict.fromkeys(line["algorithm"] for line in lines)),
        lines={(line["algorithm"], line[column_axis]): line for line in lines},
    )
