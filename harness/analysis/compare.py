"""The same cells at two values of an axis, such as simulated beside emulated."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from wanbench.harness.analysis.axes import (
    AXES,
    absent,
    algorithm_order,
    axis_value,
    by_value,
    comparable,
    label_without,
    natural,
)
from wanbench.harness.analysis.summary import AnalysisError, Beside, Line, Pivot, Row, cells, frame, own_host
from wanbench.harness.grouping import by_key
from wanbench.harness.results.hosts import by_run

# Columns that follow from the axis, which can differ between two cells that are compared along it.
_FOLLOWS = {"testbed": ("emulator",), "collective": ("channels",)}
_SAME = ("testbed", "emulator", "hosts", "run")  # measured twice, so that equal times are expected
NEAR, FAR = 0.10, 0.20


@dataclass(frozen=True)
class Pair:
    """One cell at two values of an axis; step times are medians over valid repetitions, in seconds.

    Attributes:
        algorithm: label. where: the other swept axes.
        base, head: the values. base_s, head_s: the step times there.
        law_s: the step time by the law, None if there is no prediction.
        kind, params: of the algorithm; they choose its colour and line style.
        base_range_s, head_range_s: minimum and maximum over the repetitions, None for a single one.
    """

    algorithm: str
    where: Mapping[str, Any]
    base: str
    head: str
    base_s: float
    head_s: float
    law_s: float | None
    kind: str
    params: Mapping[str, Any]
    base_range_s: tuple[float, float] | None = None
    head_range_s: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        """The step time of head divided by that of base."""
        return self.head_s / self.base_s

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the ratios."""
        law = None if self.law_s is None else self.law_s / self.base_s
        return {**asdict(self), "ratio": self.ratio, "law_ratio": law}


@dataclass(frozen=True)
class Comparison:
    """All pairs along an axis, and the number of cells without a partner."""

    by: str
    pairs: tuple[Pair, ...]
    unpaired: int

    def within(self, share: float) -> int:
        """The number of pairs that differ by at most this share of the base."""
        return sum(abs(pair.ratio - 1) <= share for pair in self.pairs)

    @property
    def worst(self) -> Pair:
        """The pair that differs the most."""
        return max(self.pairs, key=lambda pair: abs(math.log(pair.ratio)))

    @property
    def of_same(self) -> bool:
        """Whether the axis only repeats a measurement; otherwise it changes what is measured."""
        return self.by in _SAME


def compare(rows: Iterable[Row], by: str) -> Comparison:
    """Pair the cells with more than one worker that agree in everything but one axis.

    The base is the first value of the axis by name, but not `virtual`: simulations are compared with measurements.

    Raises:
        AnalysisError: no such axis, or no cell has a valid repetition at two of its values.
    """
    if by == "hosts":  # also those that are alike
        rows = [{**row, "hosts": own_host(row)} for row in rows]
    lines = [line for line in cells(frame(rows)) if line["workers"] != 1 and line["status"] == "ok"]
    lines = _along(lines, by)
    free = {"run", by, *_FOLLOWS.get(by, ())}
    if by == "run" and all(len({line["testbed"] for line in of}) == 1 for of in by_run(lines).values()):
        free |= {"testbed", "emulator"}
    fixed = [axis for axis in ("run", *AXES) if axis not in free]
    alike = by_key(((line["algorithm"], *(comparable(line[axis]) for axis in fixed)), line) for line in lines)
    groups = [{str(line[by]): line for line in of_cell} for of_cell in alike.values()]
    values = {value for group in groups for value in group}
    if len(values) < 2:
        only = f"only {values.pop()}" if values else "no valid result"
        raise AnalysisError(f"--by {by}: expected at least two values of {by}, found {only}")
    base = min(values, key=lambda value: (value == "virtual", natural(value)))
    swept = [
        axis for axis in fixed if len({comparable(line[axis]) for line in lines if axis not in line["choices"]}) > 1
    ]
    pairs = [
        _pair(group[base], group[head], base, head, swept)
        for group in groups
        if base in group
        for head in sorted(group, key=natural)
        if head != base
    ]
    if not pairs:
        raise AnalysisError(f"--by {by}: no cell has a valid repetition at two values of {by}")
    pairs.sort(key=_order)
    return Comparison(by, tuple(pairs), sum(len(group) == 1 for group in groups))


def _along(lines: Sequence[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """The lines with a column of their values of the axis, which is then no part of their labels.

    A choice may be named by the last part of its key. Raises: AnalysisError: no such axis.
    """
    choices = list(dict.fromkeys(axis for line in lines for axis in line["choices"]))
    axis = next((name for name in choices if by in {name, name.rpartition(".")[2]}), by)
    if axis not in {"run", *AXES, *choices}:
        expected = ", ".join(dict.fromkeys([*choices, "run", *AXES]))
        raise AnalysisError(f"--by {by}: not an axis; expected one of {expected}")
    if axis not in choices:
        return [line | {by: line[axis]} for line in lines]
    return [
        line | {by: line["words"][axis], "algorithm": label_without(line, axis)}
        for line in lines
        if axis in line["choices"]
    ]


def _pair(base: Row, head: Row, base_value: str, head_value: str, swept: Sequence[str]) -> Pair:
    law = base["predicted_step_time_s"]
    return Pair(
        algorithm=base["algorithm"],
        where={axis: comparable(base[axis]) for axis in swept},
        base=base_value,
        head=head_value,
        base_s=float(base["step_time_s"]),
        head_s=float(head["step_time_s"]),
        law_s=None if absent(law) else float(law),
        kind=base["kind"],
        params=base["params"] or {},
        base_range_s=_ends(base),
        head_range_s=_ends(head),
    )


def _ends(line: Row) -> tuple[float, float] | None:
    return (float(line["step_time_s_min"]), float(line["step_time_s_max"])) if line["repeats"] > 1 else None


def _order(pair: Pair) -> tuple[object, ...]:
    return algorithm_order(pair.algorithm, pair.kind, pair.params), [by_value(value) for value in pair.where.values()]


_NOT_MEASURED = ("name", "description", "gate")


def differences(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[str]:
    """The keys in which two specs differ, as "workload.step_time: 50ms -> 100ms"; a missing key is `-`.

    Args:
        base, head: plain data. The name, the description and the gate are not compared.
    """
    before, after = (dict(_flat(spec, "")) for spec in (base, head))
    keys = [key for key in {**before, **after} if key.partition(".")[0] not in _NOT_MEASURED]
    return [
        f"{key}: {before.get(key, '-')} -> {after.get(key, '-')}" for key in keys if before.get(key) != after.get(key)
    ]


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


# Cells that differ in these do not share a figure.
_SHARED = ("profile", "collective")
# Cells may differ in these; the figure then says so. The rate is that of full-size messages.
_STATED = (
    "workload", "payload_scale", "workers", "rate_mbps", "rtt_ms", "loss_pct", "jitter_ms", "mtu", "tcp", "host_tcp",
    "timeline",
)  # fmt: skip


def lay_beside(pivot: Pivot, rows: Iterable[Line], run: str) -> Pivot:
    """The pivot with the valid cells of another run that have its algorithms and lie within its columns.

    Of several cells in one place, the one in the most similar conditions is taken.

    Args:
        rows: of the other run, one per repetition. run: its name.

    Raises:
        AnalysisError: equally similar cells in one place. Without a cell to show, the pivot is returned as it is.
    """
    lines: dict[tuple[str, Any], Line] = {}
    valid = [line for line in cells(frame(rows)) if line["status"] == "ok" and line["workers"] != 1]
    for label in pivot.algorithms:
        own = next(line for (algorithm, _), line in pivot.lines.items() if algorithm == label)
        alike = [line for line in valid if line["setting"] == own["setting"] and _fits(line, own, pivot)]
        for column in sorted({line[pivot.column_axis] for line in alike}, key=by_value):
            there = [line for line in alike if line[pivot.column_axis] == column]
            lines[label, column] = _nearest(there, own, pivot.column_axis, f"{run}: {label}")
    if not lines:
        return pivot
    return replace(pivot, beside=Beside(run, lines, _different(pivot, list(lines.values()))))


def _fits(line: Line, own: Line, pivot: Pivot) -> bool:
    """True if a cell belongs in the figure: between its first and last column, on the same profile and collective."""
    axis, columns = pivot.column_axis, pivot.columns
    there = line[axis]
    numbers = all(isinstance(value, int | float) for value in (there, *columns))
    inside = min(columns) <= there <= max(columns) if numbers and axis == "rtt_ms" else there in columns
    chosen = all(_value(line, name) == _value(own, name) for name in {**line["choices"], **own["choices"]})
    return inside and chosen and all(line[name] == own[name] for name in _SHARED if name != axis)


def _value(line: Line, axis: str) -> Any:
    """The value of a choice, also in a run that does not vary it."""
    return line[axis] if axis in AXES else (line["axes"] or {}).get(axis)


def _nearest(lines: Sequence[Line], own: Line, axis: str, where: str) -> Line:
    ranked = sorted(lines, key=lambda line: len(_conditions(line, axis) ^ _conditions(own, axis)))
    counts = [len(_conditions(line, axis) ^ _conditions(own, axis)) for line in ranked[:2]]
    if len(counts) > 1 and counts[0] == counts[1]:
        raise AnalysisError(f"{where}, {axis_value(axis, ranked[0][axis])}: several cells could be drawn beside it")
    return ranked[0]


def _conditions(line: Line, axis: str) -> set[tuple[str, Any]]:
    values = {name: line[name] for name in _STATED if name != axis and not absent(line[name])}
    if "rate_mbps" in values:
        values["rate_mbps"] = float(f"{values['rate_mbps'] / line['payload_scale']:.6g}")
    if line["profile"] != "uniform":  # given by the profile, and different if only the scale is
        values.pop("rate_mbps", None)
    return set(values.items())


def _different(pivot: Pivot, lines: Sequence[Line]) -> tuple[str, ...]:
    """The conditions that only the other run has, in words."""
    axis = pivot.column_axis
    own = {condition for line in pivot.lines.values() for condition in _conditions(line, axis)}
    other = {condition for line in lines for condition in _conditions(line, axis)}
    names = sorted(other - own, key=lambda condition: (_STATED.index(condition[0]), by_value(condition[1])))
    return tuple(axis_value(name, value) for name, value in names)
