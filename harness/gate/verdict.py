"""The verdicts of the gate on cells, the report and exit code that follow from them, and the names of cells.

Cells of two sides match by name: algorithm and axes, which do not depend on the version of the program.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from wanbench.harness.errors import EXIT_FAILED, EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION
from wanbench.harness.grouping import by_key
from wanbench.harness.plan.cell import Cell

Row = Mapping[str, Any]  # of a run, or of a cell that was not measured yet


class Verdict(StrEnum):
    """The verdict on a cell, the worst first."""

    FAILED = "failed"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not comparable"
    NEW = "new"
    IMPROVED = "improved"
    ACCEPTED = "accepted"
    UNCHANGED = "unchanged"


ORDER = tuple(Verdict)
# Correctness first: a failed cell is neither slower nor faster.
_EXIT = (
    ({Verdict.FAILED}, EXIT_FAILED),
    ({Verdict.REGRESSED}, EXIT_REGRESSION),
    ({Verdict.INCONCLUSIVE, Verdict.NOT_COMPARABLE, Verdict.NEW}, EXIT_INCONCLUSIVE),
)
# Two values were measured and compared, or the user took the place of the first.
_JUDGED = {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.ACCEPTED, Verdict.UNCHANGED}


@dataclass(frozen=True)
class Timing:
    """How the step time of a cell changed, measured side by side.

    Attributes:
        base_s, head_s: medians over repetitions, in seconds.
        change, low, high: head over base minus 1, and its two-sided 95 % interval; None with fewer than two pairs.
        noise: measured between equal sides on this host, None if unknown. margin: the change that counts. Both are
            relative.
        pairs: number of repetitions that both sides have.
    """

    base_s: float | None
    head_s: float | None
    change: float | None
    low: float | None
    high: float | None
    noise: float | None
    margin: float
    pairs: int


@dataclass(frozen=True)
class Judgement:
    """The verdict on one cell, or on one requirement.

    Attributes:
        cell: its name, or the text of the requirement.
        text: the reason, in one line; empty if nothing changed.
        timing: None if times were not measured side by side.
    """

    cell: str
    verdict: Verdict
    text: str = ""
    timing: Timing | None = None

    @property
    def change(self) -> float | None:
        """The relative change of the step time; None if it was not measured side by side."""
        return None if self.timing is None else self.timing.change


def by_severity(findings: Iterable[Judgement]) -> list[Judgement]:
    """The judgements, the worst first; equal ones keep their order."""
    return sorted(findings, key=lambda finding: ORDER.index(finding.verdict))


@dataclass(frozen=True)
class Report:
    """Everything that `check` found.

    Attributes:
        experiment: its name. against: a description of the comparison.
        cells: one judgement per cell. claims: one per requirement and cell.
        overall: all cells together, if step times were measured.
        notes: remarks for the reader, one line each.
        files: paths of the results, by kind.
        code: digests of the user's files that the cells depend on, by path.
    """

    experiment: str
    against: str
    cells: tuple[Judgement, ...] = ()
    claims: tuple[Judgement, ...] = ()
    overall: Judgement | None = None
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def compared(self) -> tuple[Judgement, ...]:
        """The judgement on each cell, and on all together."""
        return self.cells if self.overall is None else (*self.cells, self.overall)

    @property
    def findings(self) -> tuple[Judgement, ...]:
        """All judgements, the worst first."""
        return tuple(by_severity([*self.compared, *self.claims]))

    @property
    def judged(self) -> tuple[int, int]:
        """The number of cells that were compared, and of requirements that were tested."""
        cells, claims = (sum(finding.verdict in _JUDGED for finding in group) for group in (self.cells, self.claims))
        return cells, claims

    def exit_code(self, *, undecided: int = EXIT_INCONCLUSIVE) -> int:
        """The exit code of `check`, which is 0 only if something was judged.

        Args:
            undecided: the code if nothing regressed but something is undecided, such as a cell that only one side has.
        """
        verdicts_found = {finding.verdict for finding in self.findings}
        code = next((code for verdicts, code in _EXIT if verdicts & verdicts_found), EXIT_OK)
        code = undecided if code == EXIT_INCONCLUSIVE else code
        return EXIT_INCONCLUSIVE if code == EXIT_OK and not any(self.judged) else code

    def to_json(self, exit_code: int) -> dict[str, Any]:
        """Plain data for machines."""
        return {
            "schema": 1,
            "experiment": self.experiment,
            "against": self.against,
            "exit_code": exit_code,
            "counts": {str(verdict): sum(f.verdict is verdict for f in self.findings) for verdict in ORDER},
            "cells": [asdict(finding) for finding in self.cells],
            "requirements": [asdict(finding) for finding in self.claims],
            "all_cells": None if self.overall is None else asdict(self.overall),
            "judged": dict(zip(("cells", "requirements"), self.judged, strict=True)),
            "code": dict(self.code),
            "notes": list(self.notes),
            "files": dict(self.files),
        }


def name(row: Row) -> str:
    """The readable name of a cell: algorithm, workers, and the other axes."""
    axes = {key: value for key, value in sorted(row["axes"].items()) if key not in {"algorithm", "workers"}}
    values = [str(value) if key == "rtt" else f"{key}={value}" for key, value in axes.items()]
    return " ".join([str(row["algorithm"]), f"w{row['workers']}", *values])


def name_of(cell: Cell) -> str:
    """The same for a cell that has no row yet."""
    return name({"axes": cell.axes, "algorithm": cell.label, "workers": cell.workers})


def by_name(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Repetitions of each cell, in order.

    One-worker cells of a sweep over testbeds or workloads have no axis that tells them apart. Their names also contain
    testbed and workload, and the identity if necessary.
    """
    cells = by_key((row["cell_key"], row) for row in rows)
    names = {key: name(group[0]) for key, group in cells.items()}
    for more in (lambda row: f"{row['testbed']} {row['workload']}", lambda row: row["cell_key"]):
        shared = {text for text, times in Counter(names.values()).items() if times > 1}
        names |= {key: f"{text} ({more(cells[key][0])})" for key, text in names.items() if text in shared}
    repetitions = {names[key]: sorted(group, key=lambda row: int(row["rep"])) for key, group in cells.items()}
    return dict(sorted(repetitions.items()))
