"""Runs what `check` judges, and judges it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wanbench.harness.api import measure_all
from wanbench.harness.gate import baseline, claims, exact
from wanbench.harness.gate.exact import Entry
from wanbench.harness.gate.names import by_name
from wanbench.harness.gate.verdict import Finding, Report, Verdict
from wanbench.harness.plan.cell import Cell
from wanbench.harness.results.store import RunFolder
from wanbench.harness.spec.experiment import Spec


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
    names = by_name(rows).keys()
    other = {cell: entry for cell, entry in (known or {}).items() if partial and cell not in names}
    before = {cell: entry for cell, entry in (known or {}).items() if cell not in other}
    findings = exact.compare(before, rows, spec.gate)
    if accept:
        findings, note = _accepted(path, spec.name, rows, other, findings)
    else:
        note = _advice(path, known is None, findings)
    notes = [note] if note else []
    if any(row["testbed"] != "virtual" for row in rows):
        notes.append("step times vary here and were not compared; --testbed virtual, or --base and --head, do that")
    judged = claims.judge(spec.gate.require, rows, where, partial=partial)
    return Report(spec.name, f"against {path}", tuple(findings), tuple(judged), notes=tuple(notes),
                  files={"results": str(folder.path), "baseline": str(path)})  # fmt: skip


def _advice(path: Path, first: bool, findings: list[Finding]) -> str:
    """What the reader may do; empty where there is nothing to do."""
    if first:
        return f"{path}: no baseline yet, so nothing to compare with; --accept writes it"
    changed = {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.NEW}
    meant = any(finding.verdict in changed for finding in findings)
    return "if the changes are meant, --accept makes them the baseline" if meant else ""


def _accepted(
    path: Path, experiment: str, rows: list[dict[str, Any]], other: Mapping[str, Entry], findings: list[Finding]
) -> tuple[list[Finding], str]:
    """Rewrite the baseline: what had changed is accepted, and still says how. Cells that failed are no baseline.

    Args:
        other: entries of cells that were left out, which stay.
    """
    found = exact.entries(rows)
    if found.keys() != by_name(rows).keys():
        return findings, f"{path}: not written, because cells failed"
    baseline.write(path, experiment, {**other, **found})
    same = Verdict.UNCHANGED
    accepted = [f if f.verdict is same else Finding(f.cell, Verdict.ACCEPTED, f.text) for f in findings]
    changed = sum(finding.verdict is Verdict.ACCEPTED for finding in accepted)
    return accepted, f"{path}: written; {changed} of its {len(found) + len(other)} cells changed"


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
