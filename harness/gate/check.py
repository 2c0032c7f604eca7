"""Measure the cells that `check` judges, and judge them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.gate import baseline, claims, exact, noise
from wanbench.harness.gate.baseline import Baseline
from wanbench.harness.gate.exact import Entry
from wanbench.harness.gate.noise import HostNoise
from wanbench.harness.gate.verdict import Judgement, Report, Verdict, by_name
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.plan import Plan
from wanbench.harness.results.columns import Row
from wanbench.harness.results.row import describe
from wanbench.harness.results.scalability import host_of
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.together import measure_all
from wanbench.harness.spec.experiment import Spec

_KEY = "cell"
_NOT_MEASURED = "was not measured"
_OTHER_SPEC = "the spec of this cell has changed since the baseline was written; accept it with --accept"


@dataclass(frozen=True)
class Work:
    """The cells to judge, and how to measure them.

    Attributes:
        plan: of the experiment. cells: those to judge. where: the name of the spec in errors. file: the spec's file.
        folder: for the results; earlier ones are removed. options: for `run`, which measures the sides.
        jobs: maximum number of repetitions at the same time. noise_path: the file with the noise of this host.
        partial: True if some cells of the spec are left out.
        code: digests of the user's files that the cells depend on, by path.
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
    code: Mapping[str, str]

    @property
    def spec(self) -> Spec:
        """The experiment."""
        return self.plan.spec

    @property
    def emulated_on(self) -> str:
        """Testbed and emulator of the emulated cells, each pair of which has its own noise."""
        emulated = [cell for cell in self.cells if cell.testbed != "virtual"]
        return ", ".join(sorted({f"{cell.testbed} and {cell.emulator}" for cell in emulated}))

    def noise(self) -> HostNoise:
        """The noise of this host. Raises: SpecError."""
        return noise.read(self.noise_path, self.spec.name, self.emulated_on)

    def check(self) -> None:
        """Refuse requirements that cannot be judged, before anything is measured. Raises: SpecError."""
        cells = by_name(describe(cell, 0) for cell in self.cells)
        claims.matched(self.spec.gate.require, cells, self.where, partial=self.partial)

    def check_claims(self) -> None:
        """Refuse to judge nothing but requirements if none is left. Raises: SpecError."""
        if not self.spec.gate.require:
            raise SpecError(
                f"{self.where}: nothing to check; give --baseline FILE or --base REV, or write [[gate.require]]"
            )
        cells = by_name(describe(cell, 0) for cell in self.cells)
        if not claims.matched(self.spec.gate.require, cells, self.where, partial=self.partial):
            raise SpecError(f"{self.where}: nothing to check: --only leaves no cell of any requirement")

    def names(self) -> set[str]:
        """The names of the cells to judge."""
        return set(by_name(describe(cell, 0) for cell in self.cells))

    def unmeasured(self, *sides: Iterable[Row]) -> list[Judgement]:
        """A judgement for each cell to judge that no side has."""
        found = {cell for rows in sides for cell in by_name(rows)}
        return [Judgement(cell, Verdict.FAILED, _NOT_MEASURED) for cell in sorted(self.names() - found)]

    def judged(self, report: Report) -> Report:
        """The report with the user's code that it depends on."""
        return replace(report, code=report.code or self.code)

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
        path: of the baseline. It can have cells that are left out here.
        accept: write the results to the baseline, unless a cell failed.

    Raises:
        SpecError: the file is not a baseline of this experiment, or a requirement is wrong.
        HostError: this host cannot run the cells, or the baseline cannot be written.
    """
    spec, folder = work.spec, RunFolder(work.folder)
    known = _known(work, path, accept=accept)
    band = (work.noise() if work.emulated_on else HostNoise(work.noise_path, {})).wire_band
    rows = work.measured(folder)
    left_out = set(by_name(describe(cell, 0) for cell in work.plan.cells)) - work.names() if work.partial else set()
    other = {cell: entry for cell, entry in known.cells.items() if cell in left_out and entry}
    before = {cell: entry for cell, entry in known.cells.items() if cell not in left_out}
    findings = [_of_its_spec(finding, before, rows) for finding in exact.compare(before, rows, spec.gate, band)]
    if known.rewrite:
        findings = [one if one.verdict is Verdict.FAILED else replace(one, verdict=Verdict.NOT_COMPARABLE,
                    text=known.rewrite) for one in findings]  # fmt: skip
    findings += [one for one in work.unmeasured(rows) if one.cell not in before]
    if accept:
        findings, note = _accepted(path, spec, rows, other, findings)
    else:
        note = _advice(findings)
    notes = [note] if note else []
    if known.spec not in {"", baseline.digest(spec)} and not accept:
        notes.append(f"{path}: the spec has changed since it was written")
    if any(row["testbed"] != "virtual" for row in rows):
        notes.append(
            "emulated step times vary and were not compared; use --testbed virtual, or --base on a quiet machine"
        )
    return Report(spec.name, f"against {path}", tuple(findings), work.claims(rows), notes=tuple(notes),
                  files={"results": str(folder.path), "baseline": str(path)})  # fmt: skip


def _known(work: Work, path: Path, *, accept: bool) -> Baseline:
    """The baseline; to accept, it can be missing. Raises: SpecError: there is none of this experiment."""
    try:
        known = baseline.read(path, work.spec.name)
    except baseline.Unusable:
        if not accept:
            raise
        return Baseline("", {})
    if not (accept or known.rewrite or known.cells.keys() & work.names()):
        raise baseline.Unusable(f"{path}: has none of the cells of {work.where}; write a baseline with --accept")
    return known


def _of_its_spec(finding: Judgement, before: Mapping[str, Entry], rows: Sequence[Row]) -> Judgement:
    """A cell of another spec is neither better nor worse. A cell on another emulator is still the same cell."""
    if finding.verdict is Verdict.UNCHANGED and not before[finding.cell].keys() & set(exact.COMPARED):
        return Judgement(finding.cell, Verdict.NOT_COMPARABLE, "it has no value that repeats")
    now, then = _identities(rows).get(finding.cell, {}), before.get(finding.cell, {})
    known = _KEY in now and _KEY in then and finding.verdict is not Verdict.FAILED
    if not known or now[_KEY] == then[_KEY] or now["emulator"] != then["emulator"]:
        return finding
    return Judgement(finding.cell, Verdict.NOT_COMPARABLE, _OTHER_SPEC)


def _identities(rows: Sequence[Row]) -> dict[str, Entry]:
    """The identity, emulator and hosts of every cell, by name, which a baseline keeps beside its values."""
    return {
        cell: {_KEY: group[0]["cell_key"], "emulator": group[0]["emulator"], **_hosts(group)}
        for cell, group in by_name(rows).items()
    }


def _hosts(group: Iterable[Mapping[str, Any]]) -> Entry:
    """Empty if the cell is simulated."""
    hosts = {host for row in group if (host := host_of(row)) is not None}
    return {"hosts": sorted(hosts)} if hosts else {}


def _advice(findings: list[Judgement]) -> str:
    """The next step for the reader; empty if there is none."""
    changed = {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.NEW}
    meant = any(finding.verdict in changed or finding.text in {_OTHER_SPEC, exact.GONE} for finding in findings)
    return "if the changes are intended, write them to the baseline with --accept" if meant else ""


def _accepted(
    path: Path, spec: Spec, rows: Sequence[Row], other: Mapping[str, Entry], findings: list[Judgement]
) -> tuple[list[Judgement], str]:
    """Rewrite the baseline, and accept the changes, which stay in the report. Nothing is written if a cell failed.

    Args:
        other: entries of cells that were left out here; they are kept.
    """
    found = exact.entries(rows)
    if found.keys() != by_name(rows).keys() or any(finding.text == _NOT_MEASURED for finding in findings):
        return findings, f"{path}: the baseline was not written because cells failed"
    identities = _identities(rows)
    baseline.write(path, spec, {**other, **{cell: {**found[cell], **identities[cell]} for cell in found}})
    same = Verdict.UNCHANGED
    accepted = [f if f.verdict is same else Judgement(f.cell, Verdict.ACCEPTED, f.text) for f in findings]
    changed = sum(finding.verdict is Verdict.ACCEPTED for finding in accepted)
    return accepted, f"{path}: the baseline was written; {changed} of its {len(found) + len(other)} cells changed"


def claims_only(work: Work, folder: RunFolder) -> Report:
    """Measure every cell, and judge only the requirements. Raises: as `against_baseline`."""
    rows = work.measured(folder)
    failed = [
        *work.unmeasured(rows),
        *(
            Judgement(cell, Verdict.FAILED, exact.why_failed(group[-1]) or "")
            for cell, group in by_name(rows).items()
            if all(exact.why_failed(row) for row in group)
        ),
    ]
    files = {"results": str(folder.path)}
    return Report(work.spec.name, "against its requirements", tuple(failed), work.claims(rows), files=files)
