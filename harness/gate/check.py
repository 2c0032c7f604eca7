"""Measure the cells that `check` judges: against a baseline, only by requirements, or base against head. Judge them."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.gate import baseline, claims, exact, measured, noise, rule, sides
from wanbench.harness.gate.exact import Entry
from wanbench.harness.gate.measured import Sides, other_machine, unlike_hosts
from wanbench.harness.gate.noise import ALL_CELLS, HostNoise
from wanbench.harness.gate.sides import NotComparable, Pair, RunRequest, Side
from wanbench.harness.gate.verdict import Judgement, Report, Verdict, by_name, name, name_of
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.plan import Plan
from wanbench.harness.results.columns import Row
from wanbench.harness.results.row import describe
from wanbench.harness.results.scalability import host_of
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import check_host, control_folder
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
        return self.plan.spec

    @property
    def emulated_on(self) -> str:
        """Testbed and emulator of the emulated cells, each pair of which has its own noise."""
        emulated = [cell for cell in self.cells if cell.testbed != "virtual"]
        return ", ".join(sorted({f"{cell.testbed} and {cell.emulator}" for cell in emulated}))

    def noise(self) -> HostNoise:
        """The noise of this host. Raises: SpecError."""
        return noise.read(self.noise_path, self.spec.name, self.emulated_on)

    def check(self, *, only_claims: bool) -> None:
        """Refuse requirements that cannot be judged, before anything is measured.

        Args:
            only_claims: whether nothing but requirements is judged, so that there must be at least one.

        Raises:
            SpecError: a requirement is wrong, or there is nothing to check.
        """
        if only_claims and not self.spec.gate.require:
            raise SpecError(
                f"{self.where}: nothing to check; give --baseline FILE or --base REV, or write [[gate.require]]"
            )
        cells = by_name(describe(cell, 0) for cell in self.cells)
        claimed = claims.matched(self.spec.gate.require, cells, self.where, partial=self.partial)
        if only_claims and not claimed:
            raise SpecError(f"{self.where}: nothing to check: --only leaves no cell of any requirement")

    def names(self) -> set[str]:
        """The names of the cells to judge."""
        return set(by_name(describe(cell, 0) for cell in self.cells))

    def unmeasured(self, *sides: Iterable[Row]) -> list[Judgement]:
        """A judgement for each cell to judge that no side has."""
        measured = {cell for rows in sides for cell in by_name(rows)}
        return [Judgement(cell, Verdict.FAILED, _NOT_MEASURED) for cell in sorted(self.names() - measured)]

    def measured(self) -> list[Row]:
        """Measure these cells with the current code, and return their rows."""
        folder = RunFolder(self.folder)
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
    spec = work.spec
    recorded = _read_baseline(work, path, accept=accept)
    band = (work.noise() if work.emulated_on else HostNoise({})).wire_band
    rows = work.measured()
    left_out = set(by_name(describe(cell, 0) for cell in work.plan.cells)) - work.names() if work.partial else set()
    other = {cell: entry for cell, entry in recorded.cells.items() if cell in left_out and entry}
    before = {cell: entry for cell, entry in recorded.cells.items() if cell not in left_out}
    findings = [_of_its_spec(finding, before, rows) for finding in exact.compare(before, rows, spec.gate, band)]
    if recorded.rewrite:
        findings = [finding if finding.verdict is Verdict.FAILED else replace(finding, verdict=Verdict.NOT_COMPARABLE,
                    text=recorded.rewrite) for finding in findings]  # fmt: skip
    findings += [finding for finding in work.unmeasured(rows) if finding.cell not in before]
    notes = []
    if accept:
        findings, note = _accepted(path, spec, rows, other, findings)
        notes.append(note)
    elif _is_meant(findings):
        notes.append("if the changes are intended, write them to the baseline with --accept")
    if recorded.spec not in {"", baseline.digest(spec)} and not accept:
        notes.append(f"{path}: the spec has changed since it was written")
    if any(row["testbed"] != "virtual" for row in rows):
        notes.append(
            "emulated step times vary and were not compared; use --testbed virtual, or --base on a quiet machine"
        )
    return Report(spec.name, f"against {path}", tuple(findings), work.claims(rows), notes=tuple(notes),
                  files={"results": str(work.folder), "baseline": str(path)})  # fmt: skip


def _read_baseline(work: Work, path: Path, *, accept: bool) -> baseline.Baseline:
    """The baseline; to accept, it can be missing. Raises: SpecError: there is none of this experiment."""
    try:
        recorded = baseline.read(path, work.spec.name)
    except baseline.Unusable:
        if not accept:
            raise
        return baseline.Baseline("", {})
    if not (accept or recorded.rewrite or recorded.cells.keys() & work.names()):
        raise baseline.Unusable(f"{path}: has none of the cells of {work.where}; write a baseline with --accept")
    return recorded


def _of_its_spec(finding: Judgement, before: Mapping[str, Entry], rows: Sequence[Row]) -> Judgement:
    """A cell of another spec is neither better nor worse. A cell on another emulator is still the same cell."""
    if finding.verdict is Verdict.UNCHANGED and not before[finding.cell].keys() & set(exact.COMPARED):
        return Judgement(finding.cell, Verdict.NOT_COMPARABLE, "the cell has no value that repeats exactly")
    now, then = _identities(rows).get(finding.cell, {}), before.get(finding.cell, {})
    comparable = _KEY in now and _KEY in then and finding.verdict is not Verdict.FAILED
    if not comparable or now[_KEY] == then[_KEY] or now["emulator"] != then["emulator"]:
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


def _is_meant(findings: list[Judgement]) -> bool:
    """Whether a change may be intended, and could be accepted."""
    changed = {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.NEW}
    return any(finding.verdict in changed or finding.text in {_OTHER_SPEC, exact.GONE} for finding in findings)


def _accepted(
    path: Path, spec: Spec, rows: Sequence[Row], other: Mapping[str, Entry], findings: list[Judgement]
) -> tuple[list[Judgement], str]:
    """Rewrite the baseline, and accept the changes, which stay in the report. Nothing is written if a cell failed.

    Args:
        other: entries of cells that were left out here; they are kept.
    """
    entries = exact.entries(rows)
    if entries.keys() != by_name(rows).keys() or any(finding.text == _NOT_MEASURED for finding in findings):
        return findings, f"{path}: the baseline was not written because cells failed"
    identities = _identities(rows)
    baseline.write(path, spec, {**other, **{cell: {**entries[cell], **identities[cell]} for cell in entries}})
    accepted = [f if f.verdict is Verdict.UNCHANGED else Judgement(f.cell, Verdict.ACCEPTED, f.text) for f in findings]
    changed = sum(finding.verdict is Verdict.ACCEPTED for finding in accepted)
    return accepted, f"{path}: the baseline was written; {changed} of its {len(entries) + len(other)} cells changed"


def claims_only(work: Work) -> Report:
    """Measure every cell, and judge only the requirements. Raises: as `against_baseline`."""
    rows = work.measured()
    failed = work.unmeasured(rows)
    failed += [
        Judgement(cell, Verdict.FAILED, exact.why_failed(group[-1]) or "")
        for cell, group in by_name(rows).items()
        if all(map(exact.why_failed, group))
    ]
    return Report(
        work.spec.name,
        "against its requirements",
        tuple(failed),
        work.claims(rows),
        files={"results": str(work.folder)},
    )


# ------------------------------------------------------------------ base against head


def compare(work: Work, base: str, head: str, out: Path) -> Report:
    """The verdict on every cell.

    Args:
        base, head: a run folder or the name of one under `out`, a git revision, `image:NAME`, or `.`.

    Raises:
        SpecError, HostError: nothing can be compared. Interrupted: the user stopped it.
    """
    before, after = sides.recorded("base", base, out), sides.recorded("head", head, out)
    if before is not None and after is not None:
        return _recorded(work, before, after)
    if before is not None or after is not None:
        raise SpecError(f"{base if before else head}: a run folder can only be compared with another run folder")
    check_host(work.cells)
    with ExitStack() as stack:
        stack.enter_context(RunFolder(work.folder).lock())
        scratch = stack.enter_context(control_folder())
        setup = work.spec.gate.setup
        head_side = stack.enter_context(sides.opened("head", head, setup, scratch, out))
        base_side = stack.enter_context(sides.opened("base", base, setup, scratch, out))
        _refuse_equal(base_side, head_side)
        checkouts = base_side.own is not None or head_side.own is not None
        if checkouts and work.code and any(cell.testbed == "docker" and cell.trains for cell in work.cells):
            raise SpecError(
                f"{work.where}: containers run the code of their image, not of a checkout; build an image of each "
                "version, and compare them with --base image:NAME --head image:NAME"
            )
        report = _measured(work, base_side, head_side)
        return report if head_side.own is None else replace(report, code=head_side.own.code(work.code))


def _refuse_equal(base: Side, head: Side) -> None:
    """Refuse to compare something with itself, which finds no change whatever happened. Raises: SpecError."""
    if base.same == head.same:
        raise SpecError(
            f"--base and --head have the same files ({base.title}, {head.title}); compare two versions, or measure the "
            "noise with --aa"
        )


def measure_noise(work: Work) -> Report:
    """Compare the working folder with itself in all rounds, and write the differences to the host's noise file.

    Equal sides cannot differ. If one seems to have changed, the host is too noisy to decide.
    """
    check_host(work.cells)
    with RunFolder(work.folder).lock():
        pair = _pair(work, sides.working_folder("base"), sides.working_folder("head"))
        pair.measure(rule.LOOKS[-1], ())
    host_noise = HostNoise({})
    both = pair.sides(work.spec.gate, host_noise)
    notes = ["both sides are the same code, so every difference is noise of this host"]
    if both.timed:
        cells = dict(zip(both.timed, rule.noise(both.log_ratios).tolist(), strict=True))
        cells[ALL_CELLS] = float(rule.noise(both.log_ratios.mean(axis=0)))
        cells = {cell: change for cell, change in cells.items() if math.isfinite(change)}
        cells |= {noise.wire_of(cell): change for cell, change in both.wire_noise().items()}
        noise.write(work.noise_path, work.spec.name, work.emulated_on, cells)
        host_noise = HostNoise(cells)
        notes.append(f"{work.noise_path}: the noise of {len(both.timed)} cells was written")
    findings, together = measured.findings(both, work.spec.gate, 1, host_noise)
    return Report(
        work.spec.name,
        "the noise of this host",
        tuple(map(_doubted, findings)),
        overall=together and _doubted(together),
        notes=tuple(notes),
        files=pair.files,
    )


def _doubted(finding: Judgement) -> Judgement:
    if finding.verdict not in {Verdict.REGRESSED, Verdict.IMPROVED}:
        return finding
    return replace(
        finding, verdict=Verdict.INCONCLUSIVE, text="equal sides differ: this host is too noisy for this cell"
    )


def _measured(work: Work, base: Side, head: Side) -> Report:
    """Measure base and head alternately, and judge them up to twice."""
    pair = _pair(work, base, head)
    host_noise = work.noise()
    against = f"{head.title} against {base.title}, measured alternately"
    try:
        first = rule.LOOKS[0] if work.emulated_on else 1
        pair.measure(first, ())
        both = pair.sides(work.spec.gate, host_noise)
        findings, together = measured.findings(both, work.spec.gate, len(rule.LOOKS), host_noise)
        again = measured.further(both, work.spec.gate, len(rule.LOOKS), host_noise)
        if again:
            early = {finding.cell for finding in findings if finding.verdict is Verdict.REGRESSED}
            print(f"check: {len(again)} cells are undecided after {first} rounds", file=sys.stderr, flush=True)
            pair.measure(rule.LOOKS[-1], again)
            both = pair.sides(work.spec.gate, host_noise)
            findings, together = measured.findings(both, work.spec.gate, len(rule.LOOKS), host_noise, early)
    except NotComparable as error:  # which is not a regression
        cells = (Judgement(name_of(cell), Verdict.NOT_COMPARABLE, "") for cell in work.cells)
        return Report(work.spec.name, against, tuple(cells), notes=(str(error),))
    remark = [host_noise.remark] if host_noise.remark and both.timed else []
    if pair.base.ran and pair.base.ran == pair.head.ran:
        remark.append("the code under test is the same on both sides")
    judged = work.claims(pair.head.rows())
    findings += work.unmeasured(pair.base.rows(), pair.head.rows())
    return Report(work.spec.name, against, tuple(findings), judged, together, tuple(remark), pair.files)


def _pair(work: Work, base: Side, head: Side) -> Pair:
    order = RunRequest(
        spec=work.file.resolve(),
        name=work.spec.name,
        excluded=tuple(work.spec.sweep.get("exclude", [])),
        options=work.options,
        commands=tuple(cell.inputs.command for cell in work.cells if not cell.trains),
    )
    return Pair(work.cells, order, work.folder.resolve(), base, head)


def _recorded(work: Work, base: Side, head: Side) -> Report:
    """Compare two result folders without measuring."""
    _refuse_equal(base, head)
    names = {name_of(cell) for cell in work.cells}
    folders = [side.recorded for side in (base, head) if side.recorded is not None]
    rows = [[row for row in folder.rows() if name(row) in names] for folder in folders]
    for side, side_rows in zip((base, head), rows, strict=True):
        if not side_rows:
            raise SpecError(f"--{side.role} {side.title}: has no results of cells of {work.spec.name}")
    against = f"{head.title} against {base.title}"
    if (unlike := unlike_hosts(*rows)) is not None:
        return Report(work.spec.name, against, (Judgement("hosts", Verdict.NOT_COMPARABLE, unlike),))
    machines = [folder.manifest() for folder in folders]
    host_noise = work.noise()
    both = Sides(rows[0], rows[1], work.spec.gate, other_machine(*machines), host_noise.wire_band)
    findings, together = measured.findings(both, work.spec.gate, 1, host_noise)
    findings += work.unmeasured(*rows)
    drift = "base and head were measured at different times, so changes of the host count as changes of the code"
    notes = tuple(filter(None, (drift, host_noise.remark))) if both.timed else ()
    return Report(
        work.spec.name,
        against,
        tuple(findings),
        work.claims(rows[1]),
        together,
        notes,
        files={"base": base.title, "head": head.title},
    )
