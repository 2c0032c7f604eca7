"""Rows (one per repetition) become the cells, axes and pivots that tables and figures show.

A cell is summarised by the median of its valid repetitions, with their minimum and maximum. Step times are averages
over the window. A median over steps would hide every synchronisation of a method with a period above 1.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from wanbench.harness.analysis.axes import (
    AXES,
    CONDITIONS,
    absent,
    algorithm_order,
    axes_of,
    by_value,
    natural,
    set_choices,
)
from wanbench.harness.grouping import by_key
from wanbench.harness.plan.law import PredictInputs
from wanbench.harness.results.columns import MEASURES, SHOWN, empty
from wanbench.harness.results.goodput import set_goodput
from wanbench.harness.results.hosts import NOT_RECORDED, by_run, hosts_of
from wanbench.harness.results.scalability import host_of, rescale
from wanbench.harness.spec.axes import is_commands_own
from wanbench.harness.spec.tables import TUNED
from wanbench.workloads.comm.blocks import MTU

Row = Mapping[str, Any]  # a repetition
Line = Row  # a cell, from `cells`

ALONE = "local"  # it does not communicate, so it is no way to train one model
_TO_TARGET = frozenset({"time_to_target_s", "steps_to_target"})


class AnalysisError(ValueError):
    """Rows that cannot be summarised."""


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a DataFrame with every column, in an order that does not depend on the order of execution.

    Scalability is computed from the one-worker repetitions among the rows. Rows without one keep their stored value.
    The choices that a run varies are columns `choices` and part of the label (`analysis.axes`). `hosts` is the axis of
    `grouped`.
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
    set_choices(full)
    full.sort(key=_row_order)
    names = dict.fromkeys([*SHOWN, "hosts", "choices", *(key for row in full for key in row)])
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


def _row_order(row: Mapping[str, Any]) -> tuple[object, ...]:
    axes = tuple(by_value(row.get(name)) for name in AXES)
    params = {name: value for name, value in (row["params"] or {}).items() if name not in row["choices"]}
    values = [natural(str(value)) for value in (*row["choices"].values(), *row["conditions"].values())]
    setting = algorithm_order(row["setting"], str(row["kind"]), params), values
    return str(row["run"]), setting, axes, str(row["cell"]), by_value(row["rep"]), by_value(row["host"])


def cells(table: pd.DataFrame) -> list[dict[str, Any]]:
    """One line per cell: medians of the valid repetitions, `<measure>_min` and `<measure>_max`, law and deviation.

    Where hosts are kept apart, a cell has a line for each. `on_hosts` are those of a line, `host` the only one.

    `status` is ok if any repetition is valid, else that of the last one. `repeats` counts the valid repetitions.
    `predicted_scalability` is dimensionless. `deviation_pct` is 100 (measured / predicted - 1), of scalability.
    """
    groups = by_key(((row["run"], row["cell"], row["hosts"]), row) for row in records(table))
    return [_cell(group) for group in groups.values()]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The lines of a DataFrame as dicts."""
    names = list(table.columns)
    columns = [table[name].tolist() for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _cell(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    valid = [row for row in group if row["status"] == "ok"]
    hosts = sorted({row["host"] for row in valid or group}, key=by_value)
    line: dict[str, Any] = {
        **group[-1],
        **({"status": "ok", "reason": None} if valid else {}),
        "repeats": len(valid),
        "repeats_lost": len(group) - len(valid),
        "host": hosts[0] if len(hosts) == 1 else None,
        "on_hosts": tuple(hosts),
    }
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

    @property
    def network(self) -> str:
        """Emulated, simulated or both."""
        return provenance(line["testbed"] for line in self.lines.values())


MOST_SERIES = 12
"""More curves or bars cannot be told apart, so a choice then makes one pivot per value."""


def pivots(table: pd.DataFrame, prefer: Sequence[str] = AXES) -> list[Pivot]:
    """Split a run into tables of algorithm by axis, without the one-worker cells.

    Args:
        table: as made by `frame`.
        prefer: axes, the preferred for the columns first. The other swept axes make one pivot per value, and so do
            choices where a pivot would have more than `MOST_SERIES` algorithms.

    Raises:
        AnalysisError: there is no cell with more than one worker.
    """
    lines = [line for line in cells(table) if line["workers"] != 1]
    if not lines:
        raise AnalysisError("no cell with more than one worker has a result yet, so there is nothing to compare")
    swept = axes_of(table)
    column_axis = next((axis for axis in prefer if axis in swept), "workers")
    fixed = [axis for axis in swept if axis != column_axis]
    choices = list(dict.fromkeys(axis for line in lines for axis in line["choices"]))
    return [pivot for group in _groups(lines, fixed) for pivot in _split(group, fixed, column_axis, choices)]


def _groups(lines: Iterable[Line], axes: Sequence[str]) -> list[list[Line]]:
    """The lines by the values of the axes, in order."""
    groups = by_key(
        (tuple(by_value(line["choices"].get(axis, line.get(axis))) for axis in axes), line) for line in lines
    )
    return [groups[values] for values in sorted(groups)]


def _split(lines: Sequence[Line], fixed: Sequence[str], column_axis: str, choices: Sequence[str]) -> list[Pivot]:
    if not choices or len({line["algorithm"] for line in lines}) <= MOST_SERIES:
        return [_pivot(lines, fixed, column_axis)]
    axis, *rest = choices
    return [pivot for group in _groups(lines, [axis]) for pivot in _split(group, [*fixed, axis], column_axis, rest)]


def _pivot(lines: Sequence[Line], fixed: Sequence[str], column_axis: str) -> Pivot:
    values = {axis: lines[0]["choices"].get(axis, lines[0].get(axis)) for axis in fixed}
    return Pivot(
        fixed={axis: math.nan if absent(value) else value for axis, value in values.items()},
        column_axis=column_axis,
        columns=tuple(sorted({line[column_axis] for line in lines}, key=by_value)),
        algorithms=tuple(dict.fromkeys(line["algorithm"] for line in lines)),
        lines={(line["algorithm"], line[column_axis]): line for line in lines},
    )


LITTLE = 0.1
"""Below this, scalabilities say less than step times."""


def compared_by_steps(lines: Iterable[Line]) -> bool:
    """True if the step times of these cells say more than their scalability.

    So it is if most scalabilities are low, or none is known, and for the axes of a user's own program: each of their
    values is divided by a step time of its own.
    """
    lines = [line for line in lines if line["workers"] != 1]
    valid = [line["scalability"] for line in lines if line["status"] == "ok" and not math.isnan(line["scalability"])]
    own = any(is_commands_own(axis) for line in lines for axis in line["choices"])
    return own or not valid or statistics.median(valid) < LITTLE


def speed_ups(pivot: Pivot) -> dict[tuple[str, Any], float]:
    """The step time of the slowest algorithm in a column, divided by that of each cell of the column.

    Training alone is left out: it is no way to train one model.
    """
    valid = {key: line for key, line in pivot.lines.items() if line["status"] == "ok" and line["kind"] != ALONE}
    slowest = {
        column: max((line["step_time_s"] for (_, at), line in valid.items() if at == column), default=math.nan)
        for column in pivot.columns
    }
    return {key: slowest[key[1]] / line["step_time_s"] for key, line in valid.items()}
