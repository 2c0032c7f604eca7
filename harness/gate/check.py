"""Runs what `check` judges, and judges it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.api import measure_all
from harness.cells import Cell
from harness.gate import baseline, claims, exact
from harness.gate.exact import Bands
from harness.gate.names import by_name
from harness.gate.verdict import Finding, Report, Verdict
from harness.spec import Spec
from harness.store import RunFolder


def bands(spec: Spec) -> Bands:
    """How much of what is exact may change."""
    return Bands(spec.gate.tolerance, spec.gate.loss_band)


def against_baseline(
    spec: Spec,
    cells: list[Cell],
    where: str,
    folder: RunFolder,
    path: Path,
    *,
    accept: bool,
    partial: bool,
    jobs: int | None,
) -> Report:
    """Measure every cell, and compare what is exact with the baseline.

    Args:
        where: the spec's source, for errors.
        folder: takes the results; earlier ones there are thrown away.
        path: of the baseline. A missing one passes: there is nothing yet to compare with.
        accept: write what was found to the baseline, unless a cell failed.
        partial: some cells of the spec were left out; the baseline may have them.

    Raises:
        SpecError: the file is no baseline, or a requirement is wrong.
        HostError: this host cannot, or the baseline cannot be written.
    """
    known = baseline.read(path)
    rows = measured(spec, cells, folder, jobs)
    found = exact.entries(rows)
    names = by_name(rows).keys()
    before = {cell: entry for cell, entry in (known or {}).items() if not partial or cell in names}
    findings = exact.compare(before, rows, bands(spec))
    notes = []
    if accept and found.keys() == names:
        kept = {cell: entry for cell, entry in (known or {}).items() if partial and cell not in names}
        baseline.write(path, spec.name, kept | found)
        findings = _accepted(findings)
        changed = sum(finding.verdict is Verdict.ACCEPTED for finding in findings)
        notes.append(f"{path}: written; {changed} of its {len(kept | found)} cells changed")
    elif accept:
        notes.append(f"{path}: not written, because cells failed")
    elif known is None:
        notes.append(f"{path}: no baseline yet, so nothing to compare with; --accept writes it")
    elif any(finding.verdict in {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.NEW} for finding in findings):
        notes.append("if the changes are meant, --accept makes them the baseline")
    if any(row["testbed"] != "virtual" for row in rows):
        notes.append(
            "step times vary here and were not compared; --testbed virtual, or --base and --head, compare them"
        )
    judged = claims.judge(spec.gate.require, rows, where, partial=partial)
    return Report(spec.name, f"against {path}", tuple(findings), tuple(judged), notes=tuple(notes),
                  files={"results": str(folder.path), "baseline": str(path)})  # fmt: skip


def claims_only(
    spec: Spec, cells: list[Cell], where: str, folder: RunFolder, *, partial: bool, jobs: int | None
) -> Report:
    """Measure every cell, and judge the requirements. Raises: as `against_baseline`."""
    rows = measured(spec, cells, folder, jobs)
    failed = [
        Finding(cell, Verdict.FAILED, exact.why_failed(group[-1]) or "")
        for cell, group in by_name(rows).items()
        if all(exact.why_failed(row) for row in group)
    ]
    judged = claims.judge(spec.gate.require, rows, where, partial=partial)
    return Report(
        spec.name, "against its requirements", tuple(failed), tuple(judged), files={"results": str(folder.path)}
    )


def measured(spec: Spec, cells: list[Cell], folder: RunFolder, jobs: int | None) -> list[dict[str, Any]]:
    """Rows of all cells, by the code as it is now."""
    measure_all(spec, cells, folder, jobs=jobs, fresh=True, draw=False)
    return folder.rows()


def _accepted(findings: list[Finding]) -> list[Finding]:
    """The baseline was rewritten: what had changed is accepted, and still says how."""
    same = Verdict.UNCHANGED
    return [f if f.verdict is same else Finding(f.cell, Verdict.ACCEPTED, f.text) for f in findings]
