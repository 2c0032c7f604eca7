"""The recorded numbers that bear on a claim of a paper: every cell of every recording that its conditions select.

Recordings are the runs and the tables in `results/reference/`, and the learning library. A recording that is added
is an answer without being named.
"""

from __future__ import annotations

import csv
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.axes import absent
from wanbench.harness.analysis.paired import MeanInterval, mean_interval, unequal_steps
from wanbench.harness.analysis.summary import Row
from wanbench.harness.errors import SpecError
from wanbench.harness.learning.design import REFERENCE
from wanbench.harness.learning.recording import Recording
from wanbench.harness.learning.recording import recorded as learned
from wanbench.harness.learning.summary import difference
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.cell import BASELINE
from wanbench.harness.plan.expand import expand
from wanbench.harness.results import planned
from wanbench.harness.results.row import describe
from wanbench.harness.results.store import RunFolder
from wanbench.harness.results.verify import objections
from wanbench.harness.spec.experiment import Spec

ACCURACY = "accuracy"
_LEARNED = {ACCURACY, "final_loss"}
_NAMED_ANYWAY = {"algorithm", "workers", "workload.name"}
_GIB = 1 << 30

Where = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """What is asked of the recordings.

    Attributes:
        value: a column, divided by column `per`, if given. where: selects cells, by column; a list holds alternatives.
        over, minus: axes in which another cell of the run differs; the value is divided by its, or its is subtracted.
        minus_at: axes in which another two cells differ from both; their difference is subtracted too.
        scale: a factor.
    """

    value: str
    per: str | None
    where: Where
    over: Where | None
    minus: Where | None
    minus_at: Where | None
    scale: float


@dataclass(frozen=True)
class Evidence:
    """A recorded cell that bears on a claim.

    Attributes:
        recording: its run or design. label: of its algorithm. text: what was run, beginning with it.
        estimate: None if it cannot be had. why_not: why it is not judged. condition: of a design.
        emulated: how, such as "netns, relay"; None if it was simulated.
        load: of an emulation, as text; None of what can only be simulated.
    """

    recording: str
    label: str
    text: str
    estimate: MeanInterval | None
    why_not: str | None = None
    condition: str = ""
    emulated: str | None = None
    load: Callable[[], str | None] | None = None


def bearing(question: Question, reference: Path) -> list[Evidence]:
    """All recorded cells that a question selects, by recording."""
    found = [one for run in _runs(reference) for one in run.evidence(question)]
    other = question.minus or {}
    if question.value == ACCURACY and other.keys() == {"algorithm"} and question.where.keys() <= {"kind", "params"}:
        found += [one for design in _designs() for one in _of_design(question, design, str(other["algorithm"]))]
    return found


def tabled(question: Question, file: Path) -> list[Evidence]:
    """The values of the rows of a CSV file that a question selects, each exact."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if _matches(row, question.where)]
    values = [question.scale * float(row[question.value]) for row in rows]
    text = ", ".join(map(str, question.where.values()))
    return [Evidence(file.parent.name, text, text, MeanInterval(value, value, value, 1)) for value in values]


def _matches(row: Mapping[str, Any], where: Where) -> bool:
    return all(
        row.get(name) in wanted if isinstance(wanted, list) else row.get(name) == wanted
        for name, wanted in where.items()
    )


@cache
def _runs(reference: Path) -> list[_Run]:
    return [_Run(RunFolder(path.parent)) for path in sorted(reference.glob("*/rows.jsonl"))]


@cache
def _designs() -> list[Recording]:
    return list(learned())


def _of_design(question: Question, design: Recording, other: str) -> Iterator[Evidence]:
    for (condition, setting), seeds in design.by_setting.items():
        first = next(iter(seeds.values()))
        if not _matches({"kind": first.kind, "params": dict(first.params)}, question.where):
            continue
        reference = design.reference_of(condition) if other == REFERENCE else design.by_setting.get((condition, other))
        if reference is None:
            continue
        own = difference(seeds, reference)
        estimate = own and MeanInterval(*(question.scale * end for end in (own.mean, own.low, own.high)), own.count)
        text = f"`{setting}`, {design.about['workload']['name']}, {first.workers} workers, {condition}"
        yield Evidence(
            design.design, f"`{setting}`", text, estimate, None if own else "unequal numbers of steps", condition
        )


class _Run:
    """A recorded run."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.cells: dict[str, list[Row]] = {}
        for row in folder.rows():
            if row["status"] == "ok":
                self.cells.setdefault(row["cell"], []).append(row)

    @cached_property
    def refused(self) -> set[str | None]:
        """The cells that `verify` refuses, not counting what one costs in accuracy; None is the whole run."""
        broken = objections(self.folder.rows(), planned.read(self.folder.path).names)
        return {objection.cell for objection in broken if objection.rule != ACCURACY}

    @cached_property
    def emulation(self) -> list[tuple[Row, Any]]:
        """The cells as they would be emulated, with their columns; none if one of the algorithms was removed since."""
        stored = planned.read(self.folder.path)
        table = {**stored.spec, "run": {**stored.spec.get("run", {}), "testbed": "netns"}}
        spec = Spec.from_dict(table, self.folder.name)
        try:
            return [(describe(cell, 0), cell) for cell in expand(spec, self.folder.name, FixedHost())]
        except SpecError:
            return []

    def evidence(self, question: Question) -> Iterator[Evidence]:
        """The cells that have the value, and the cell that it is compared with."""
        selected = [rows for rows in self.cells.values() if self._selected(rows[0], question)]
        selected.sort(key=lambda rows: (rows[0]["workers"], rows[0]["rtt_ms"] or 0.0, rows[0]["loss_pct"] or 0.0))
        axes = [rows[0]["axes"] for rows in selected]
        varied = {name for own in axes for name in own if any(own.get(name) != other.get(name) for other in axes)}
        for rows in selected:
            others = self._others(rows[0], question)
            if others is not None:
                yield self._of_cell(question, rows, others, sorted(varied - _NAMED_ANYWAY))

    def _selected(self, row: Row, question: Question) -> bool:
        baseline = row["algorithm"] == BASELINE and "workers" not in question.where
        return not baseline and row.get(question.value) is not None and _matches(row, question.where)

    def _others(self, row: Row, question: Question) -> list[list[Row]] | None:
        """The rows of each cell that this one is compared with, whose other axes are equal; None if one is missing."""
        differs, at = question.over or question.minus, question.minus_at
        if differs is None:
            return []
        compared = [differs] if at is None else [differs, at, {**differs, **at}]
        by_axes = [(rows[0]["axes"], rows) for rows in self.cells.values()]
        others = [next((rows for axes, rows in by_axes if axes == {**row["axes"], **own}), None) for own in compared]
        return None if None in others else [rows for rows in others if rows is not None]

    def _of_cell(self, question: Question, rows: list[Row], others: list[list[Row]], varied: Sequence[str]) -> Evidence:
        row = rows[0]
        label = f"`{row['algorithm']}`"
        text = ", ".join(
            [label, row["workload"], _workers(row["workers"]), *(f"{name} {row['axes'].get(name)}" for name in varied)]
        )
        estimate = _estimate(question, rows, others)
        why_not = self._why_not(question, row, others, estimate)
        unchecked = "; before the check for pauses" if absent(row["paused_pct"]) else ""
        emulated = None if row["testbed"] == "virtual" else f"{row['testbed']}, {row['emulator']}{unchecked}"
        load = partial(self._load, row)
        return Evidence(self.folder.name, label, text, estimate, why_not, emulated=emulated, load=load)

    def _why_not(self, question: Question, row: Row, others: list[list[Row]], estimate: MeanInterval) -> str | None:
        """Why a cell is not judged: trained for unequal steps, too few repetitions, or refused by `verify`."""
        for reference, *_ in others if question.value in _LEARNED else ():
            steps = row["steps_total"]
            if unequal_steps(steps, reference["steps_total"]) is not None:
                return f"{steps} steps, {reference['algorithm']} {reference['steps_total']}"
        if not estimate.bounded:
            return f"{estimate.count} repetition{'s' * (estimate.count != 1)}"
        return "`verify` refuses it" if {None, row["cell"]} & self.refused else None

    def _load(self, simulated: Row) -> str | None:
        """The predicted load of emulating a cell, beside what a small host has."""
        host = FixedHost().capacity()
        named = simulated["algorithm"], simulated["axes"]
        cell = next((cell for row, cell in self.emulation if (row["algorithm"], row["axes"]) == named), None)
        if cell is None:
            return None
        load = cell.load.on(host)
        needs = []
        if load.cpus > host.cpu_limit:
            needs.append(f"{load.cpus:.1f} processors ({host.cpu_limit:g} of {host.cores} may be busy)")
        elif load.peak_cpus > host.cores:
            needs.append(f"{load.peak_cpus:.1f} of {host.cores} processors while messages are sent")
        if load.memory_bytes > host.memory_limit:
            needs.append(f"{load.memory_bytes / _GIB:.0f} GiB of memory ({host.memory_limit / _GIB:.1f} may be used)")
        scale = f"at payload scale {simulated['payload_scale']:g}"
        return f"emulation needs {' and '.join(needs)} {scale}" if needs else f"emulation is possible {scale}"


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count != 1)}"


def _estimate(question: Question, rows: Sequence[Row], others: Sequence[Sequence[Row]]) -> MeanInterval:
    """The value of each repetition, divided by or less that of the repetition with the same seed; see `Question`."""
    own, *compared = [_values(question, cell) for cell in (rows, *others)]
    seeds = sorted(set(own).intersection(*compared))
    values = [_compared([own[seed], *(cell[seed] for cell in compared)], over=bool(question.over)) for seed in seeds]
    return mean_interval([question.scale * value for value in values])


def _compared(values: Sequence[float], *, over: bool) -> float:
    """A value alone; or compared with a second; or this less the same of a third and a fourth."""
    if len(values) == 1:
        return values[0]
    first, *others = map(operator.truediv if over else operator.sub, values[::2], values[1::2])
    return first - sum(others)


def _values(question: Question, rows: Sequence[Row]) -> dict[int, float]:
    return {row["seed"]: row[question.value] / (1 if question.per is None else row[question.per]) for row in rows}
