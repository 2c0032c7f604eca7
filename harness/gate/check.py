"""Measure the cells that `check` judges, and judge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wanbench.harness.api import measure_all
from wanbench.harness.gate import baseline, claims, exact
from wanbench.harness.gate.exact import Entry
from wanbench.harness.gate.names import by_name
from wanbench.harness.gate.verdict import Judgement, Report, Verdict
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.plan import Plan
from wanbench.harness.results.columns import Row
from wanbench.harness.results.row import describe
from wanbench.harness.results.store import RunFolder
from wanbench.harness.spec.experiment import Spec

_KEY = "cell"
_OTHER_SPEC = "the spec of this cell has changed since the baseline was written; accept it with --accept"


@dataclass(frozen=True)
class Work:
    """The cells to judge, and how to measure them.

    Attributes:
        plan: of the experiment. cells: those to judge. where: the name of the spec in errors. file: the spec's file.
        folder: for the results; earlier ones are removed. options: for `run`, which measures the sides.
        jobs: maximum number of repetitions at the same time. noise_path: the file with the noise of this host.
        partial: True if some cells of the spec are left out.
    """

    plan: Plan
    cells: Sequence[Cell]
    where: str
    file: Path
    folder: Path
    options: tuple[str, ...]
    jobs: int | None
    noise_path: Path
    partial: bool

    @property
    def spec(self) -> Spec:
        """The experiment."""
        return self.plan.spec

    def check(self) -> None:
        """Refuse requirements that cannot be judged, before anything is measured. Raises: SpecError."""
        cells = by_name(describe(cell, 0) for cell in self.cells)
        claims.matched(self.spec.gate.require, cells, self.where, partial=self.partial)

    def measured(self, folder: RunFolder) -> list[Row]:
        """Measure these cells with the current code, and return their rows."""
        measure_all(self.plan, folder, cells=self.cells, jobs=self.jobs, fresh=True, draw=False)
        return folder.rows()

    def claims(self, rows: Sequence[Row]) -> tuple[Judgement, ...]:
        """Judge the requirements. Raises: SpecError."""
        return tuple(claims.judge(self.spec.gate.require, rows, self.where, partial=self.partial))


def against_baseline(work: Work, path: Path, *, accept: bool) -> Report:
    """Measure every cell, and compare the exact values with the baseline.

    Args:
        path: of the baseline. A missing baseline passes, because there is nothing to compare with yet. It can have
            cells that are left out here.
        accept: write the results to the baseline, unless a cell failed.

    Raises:
        SpecError: the file is not a baseline, or a requirement is wrong.
        HostError: this host cannot run the cells, or the baseline cannot be written.
    """
    spec, folder = work.spec, RunFolder(work.folder)
    known = baseline.read(path)
    rows = work.measured(folder)
    names = by_name(rows).keys()
    other = {cell: entry for cell, entry in (known or {}).items() if work.partial and cell not in names}
    before = {cell: entry for cell, entry in (known or {}).items() if cell not in other}
    findings = [_of_its_spec(finding, before, rows) for finding in exact.compare(before, rows, spec.gate)]
    if accept:
        findings, note = _accepted(path, spec.name, rows, other, findings)
    else:
        note = _advice(path, known is None, findings)
    notes = [note] if note else []
    if any(row["testbed"] != "virtual" for row in rows):
        notes.append("emulated step times vary and were not compared; use --testbed virtual, or --base and --head")
    return Report(spec.name, f"against {path}", tuple(findings), work.claims(rows), notes=tuple(notes),
                  files={"results": str(folder.path), "baseline": str(path)})  # fmt: skip


def _of_its_spec(finding: Judgement, before: Mapping[str, Entry], rows: Sequence[Row]) -> Judgement:
    """A cell of another spec is neither better nor worse. A cell on another emulator is still the same cell."""
    now, then = _identities(rows).get(finding.cell, {}), before.get(finding.cell, {})
    known = _KEY in now and _KEY in then and finding.verdict is not Verdict.FAILED
    if not known or now[_KEY] == then[_KEY] or now["emulator"] != then["emulator"]:
        return finding
    return Judgement(finding.cell, Verdict.NOT_COMPARABLE, _OTHER_SPEC)


def _identities(rows: Sequence[Row]) -> dict[str, Entry]:
    """The identity and emulator of every cell, by name, which a baseline keeps beside its values."""
    firsts = {cell: group[0] for cell, group in by_name(rows).items()}
    return {cell: {_KEY: row["cell_key"], "emulator": row["emulator"]} for cell, row in firsts.items()}


def _advice(path: Path, first: bool, findings: list[Judgement]) -> str:
    """The next step for the reader; empty if there is none."""
    if first:
        return f"{path}: there is no baseline to compare with yet; write it with --accept"
    changed = {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.NEW}
    meant = any(finding.verdict in changed or finding.text == _OTHER_SPEC for finding in findings)
    return "if the changes are intended, write them to the baseline with --accept" if meant else ""


def _accepted(
    path: Path, experiment: str, rows: Sequence[Row], other: Mapping[str, Entry], findings: list[Judgement]
) -> tuple[list[Judgement], str]:
    """Rewrite the baseline, and accept the changes, which stay in the report. Nothing is written if a cell failed.

    Args:
        other: entries of cells that were left out here; they are kept.
    """
    found = exact.entries(rows)
    if found.keys() != by_name(rows).keys():
        return findings, f"{path}: the baseline was not written because cells failed"
    identities = _identities(rows)
    baseline.write(path, experiment, {**other, **{cell: {**found[cell], **identities[cell]} for cell in found}})
    same = Verdict.UNCHANGED
    accepted = [f if f.verdict is same else Judgement(f.cell, Verdict.ACCEPTED, f.text) for f in findings]
    changed = sum(finding.verdict is Verdict.ACCEPTED for finding in accepted)
    return accepted, f"{path}: the baseline was written; {changed} of its {len(found) + len(other)} cells changed"


def claims_only(work: Work, folder: RunFolder) -> Report:
    """Measure every cell, and judge only the requirements. Raises: as `against_baseline`."""
    rows = work.measured(folder)
    failed = [
        Judgement(cell, Verdict.FAILED, exact.why_failed(group[-1]) or "")
        for cell, group in by_name(rows).items()
        if all(exact.why_failed(row) for row in group)
    ]
    files = {"results": str(folder.path)}
    return Report(work.spec.name, "against its requirements", tuple(failed), work.claims(rows), files=files)
