"""Base against head: measured by turns, or from recorded results, until there is a verdict."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.cells import Cell
from harness.errors import HostError, SpecError
from harness.gate import claims, measured, noise, rule, sides
from harness.gate.check import claims_only
from harness.gate.exact import Bands
from harness.gate.measured import Limits, Sides
from harness.gate.names import name
from harness.gate.noise import ALL_CELLS, Noise
from harness.gate.rounds import CannotRun, Measurement, Order, turns
from harness.gate.sides import NoBase, Side
from harness.gate.verdict import Finding, Report, Verdict
from harness.host import check_host
from harness.run import control_folder
from harness.spec import Spec
from harness.store import RunFolder


@dataclass(frozen=True)
class Comparison:
    """What to compare, and how.

    Attributes:
        spec: the experiment. cells: those to compare. where: the spec's source, for errors.
        file: the spec's. options: of `run` beside it. folder: takes the results of both sides.
        noise_path: the noise of this host. partial: some cells of the spec were left out.
    """

    spec: Spec
    cells: Sequence[Cell]
    where: str
    file: Path
    options: tuple[str, ...]
    folder: Path
    noise_path: Path
    partial: bool

    @property
    def limits(self) -> Limits:
        """From the spec."""
        gate = self.spec.gate
        return Limits(gate.max_slowdown, gate.alpha, Bands(gate.tolerance, gate.loss_band))

    def order(self) -> Order:
        """What each side runs."""
        excluded = tuple(self.spec.sweep.get("exclude", []))
        return Order(self.file.resolve(), self.spec.name, excluded, self.options)


def compare(work: Comparison, base: str, head: str, out: Path) -> Report:
    """The verdict on every cell.

    Args:
        base, head: a run folder or the name of one under `out`, a git revision, `image:NAME`, or `.`.

    Raises:
        SpecError, HostError: nothing can be compared. Interrupted: the user stopped it.
    """
    known = [sides.recorded("base", base, out), sides.recorded("head", head, out)]
    if all(known):
        return _recorded(work, *[side for side in known if side is not None])
    for side, source in zip(known, (base, head), strict=True):
        if side is not None:
            raise SpecError(f"{source}: a run folder is compared with another one, not with what is measured now")
    check_host(work.cells)
    with ExitStack() as stack:
        stack.enter_context(RunFolder(work.folder).lock())
        scratch = stack.enter_context(control_folder())
        setup = work.spec.gate.setup
        try:
            right = stack.enter_context(sides.opened("head", head, setup, scratch))
        except NoBase as error:
            raise HostError(str(error)) from None
        try:
            left = stack.enter_context(sides.opened("base", base, setup, scratch))
        except NoBase as error:
            return _without_base(work, str(error))
        return _measured(work, left, right)


def _without_base(work: Comparison, why: str) -> Report:
    """What can be said of the head alone."""
    nothing = Finding("base", Verdict.NOT_COMPARABLE, why)
    if not work.spec.gate.require:
        return Report(work.spec.name, "against nothing", (nothing,))
    folder = RunFolder(work.folder / "head" / work.spec.name)
    report = claims_only(work.spec, list(work.cells), work.where, folder, partial=work.partial, jobs=None)
    return replace(report, cells=(nothing, *report.cells))


def measure_noise(work: Comparison) -> Report:
    """The working folder against itself, in as many rounds as there may be; what differs is written to the host's file.

    Equal sides cannot have changed: where one seems to, the host is too noisy to tell.
    """
    check_host(work.cells)
    with RunFolder(work.folder).lock():
        pair = _Pair(work, sides.working_folder("base"), sides.working_folder("head"))
        pair.measure(rule.LOOKS[-1], ())
    both, notes = pair.sides(), ["both sides are the same code: what differs is the noise of this host"]
    known = Noise(work.noise_path, {})
    if both.timed:
        cells = dict(zip(both.timed, rule.noise(both.log_ratios).tolist(), strict=True))
        cells[ALL_CELLS] = float(rule.noise(both.log_ratios.mean(axis=0)))
        noise.write(work.noise_path, work.spec.name, cells)
        known = Noise(work.noise_path, cells)
        notes.append(f"{work.noise_path}: written, {len(both.timed)} cells")
    found, together = measured.findings(both, work.limits, 1, known)
    doubted = tuple(_doubted(finding) for finding in found)
    overall = together and _doubted(together)
    title = "the noise of this host"
    return Report(work.spec.name, title, doubted, overall=overall, notes=tuple(notes), files=pair.files)


def _doubted(finding: Finding) -> Finding:
    if finding.verdict not in {Verdict.REGRESSED, Verdict.IMPROVED}:
        return finding
    return replace(finding, verdict=Verdict.INCONCLUSIVE, text="equal sides differ: this host is too noisy for it")


def _measured(work: Comparison, base: Side, head: Side) -> Report:
    """By turns, in two looks."""
    pair = _Pair(work, base, head)
    known = noise.read(work.noise_path, work.spec.name)
    against = f"{head.title} against {base.title}, measured by turns"
    try:
        first = 1 if pair.simulated else rule.LOOKS[0]
        pair.measure(first, ())
        both = pair.sides()
        found, together = measured.findings(both, work.limits, len(rule.LOOKS), known)
        again = measured.further(both, work.limits, len(rule.LOOKS), known)
        if again:
            early = {finding.cell for finding in found if finding.verdict is Verdict.REGRESSED}
            print(f"check: {len(again)} cells are undecided after {first} rounds", file=sys.stderr, flush=True)
            pair.measure(rule.LOOKS[-1], again)
            both = pair.sides()
            found, together = measured.findings(both, work.limits, len(rule.LOOKS), known, early)
    except CannotRun as error:
        return _cannot_run(work, against, error)
    remark = [known.remark] if known.remark and both.timed else []
    judged = claims.judge(work.spec.gate.require, pair.head.rows(), work.where, partial=work.partial)
    return Report(work.spec.name, against, tuple(found), tuple(judged), together, tuple(remark), pair.files)


def _cannot_run(work: Comparison, against: str, error: CannotRun) -> Report:
    """The code of the base is too old for the spec, which is nobody's regression."""
    cells = (Finding(name(_row(cell)), Verdict.NOT_COMPARABLE, "") for cell in work.cells)
    return Report(work.spec.name, against, tuple(cells), notes=(f"base cannot run this spec: {error}",))


def _recorded(work: Comparison, base: Side, head: Side) -> Report:
    """Two result folders, as they are."""
    assert base.recorded is not None
    assert head.recorded is not None
    wanted = {name(_row(cell)) for cell in work.cells}
    rows = [[row for row in side.rows() if name(row) in wanted] for side in (base.recorded, head.recorded)]
    for side, mine in zip((base, head), rows, strict=True):
        if not mine:
            raise SpecError(f"--{side.role} {side.title}: has no result of a cell of {work.spec.name}")
    machines = [side.manifest() for side in (base.recorded, head.recorded)]
    both = Sides(rows[0], rows[1], work.limits.bands, other_machine(*machines))
    known = noise.read(work.noise_path, work.spec.name)
    found, together = measured.findings(both, work.limits, 1, known)
    notes = [
        "these results were measured apart: what changed on the host meanwhile counts as a change",
        *([known.remark] if known.remark else []),
    ]
    judged = claims.judge(work.spec.gate.require, rows[1], work.where, partial=work.partial)
    return Report(work.spec.name, f"{head.title} against {base.title}", tuple(found), tuple(judged), together,
                  tuple(notes) if both.timed else ())  # fmt: skip


class _Pair:
    """Both sides of a comparison under way."""

    def __init__(self, work: Comparison, base: Side, head: Side) -> None:
        self._work = work
        self._done = 0
        for side in (base, head):
            shutil.rmtree(work.folder / side.role, ignore_errors=True)
        self.base = Measurement(base, work.order(), work.folder / base.role)
        self.head = Measurement(head, work.order(), work.folder / head.role)
        self.simulated = all(cell.config["testbed"] == "virtual" for cell in work.cells)
        self.files = {"base": str(self.base.folder.path), "head": str(self.head.folder.path)}

    def measure(self, rounds: int, only: Collection[str]) -> None:
        """Up to this many rounds, of some cells (all if empty); what has failed or is exact is not measured again.

        Raises: as `Measurement.measure`; CannotRun is the base's alone.
        """
        for index, side in turns(self._done, rounds, self.base, self.head):
            leave_out = self._left_out(only) if index else ()
            print(f"check: round {index + 1} of {rounds}, {side.side.role}", file=sys.stderr, flush=True)
            if leave_out is None:
                break
            self._measure(side, index + 1, leave_out)
        self._done = rounds
        for side in (self.base, self.head):  # the host was busy: once more, now that the others are done
            doubtful = {name(row) for row in side.rows() if row["status"] == "invalid"}
            leave_out = self._left_out(doubtful)
            if doubtful and leave_out is not None:
                self._measure(side, rounds, leave_out)

    def _measure(self, side: Measurement, repeats: int, leave_out: Sequence[Mapping[str, Any]]) -> None:
        try:
            side.measure(repeats, leave_out)
        except CannotRun as error:
            if side is self.head:
                raise SpecError(f"head ({side.side.title}): {error}") from None
            raise

    def sides(self) -> Sides:
        """What is known of both."""
        machines = [side.folder.manifest() for side in (self.base, self.head)]
        return Sides(self.base.rows(), self.head.rows(), self._work.limits.bands, other_machine(*machines))

    def _left_out(self, only: Collection[str]) -> list[Mapping[str, Any]] | None:
        """Axes of the cells to leave out, None if no other is left; the one-worker cells go with the others."""
        settled = self._settled()
        swept = [cell for cell in self._work.cells if not cell.is_baseline]
        names = {name(_row(cell)): cell for cell in swept}
        keep = [cell for cell in names if cell not in settled and (not only or cell in only)]
        if not keep and any(cell not in settled for cell in names):
            keep = [next(cell for cell in names if cell not in settled)]  # for the sake of a one-worker cell
        return [dict(cell.axes) for text, cell in names.items() if text not in keep] if keep else None

    def _settled(self) -> set[str]:
        """Cells that more repetitions do not change: failed on a side, or simulated."""
        rows = [*self.base.rows(), *self.head.rows()]
        return {name(row) for row in rows if row["status"] == "failed" or row["testbed"] == "virtual"}


def _row(cell: Cell) -> Mapping[str, Any]:
    return {"axes": cell.axes, "algorithm": cell.label, "workers": cell.workers}


def other_machine(base: Mapping[str, Any], head: Mapping[str, Any]) -> str | None:
    """Why times of two runs cannot be compared, None if they can.

    Args:
        base, head: manifests of their folders.
    """
    before, after = _machine(base), _machine(head)
    return ", ".join(f"{key} {before[key]} -> {after[key]}" for key in before if before[key] != after[key]) or None


def _machine(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What times depend on, as far as it matters: major version of the kernel, minor one of torch."""
    torch = str(manifest.get("versions", {}).get("torch"))
    return {
        "processor": str(manifest.get("cpu")),
        "kernel": str(manifest.get("kernel")).partition(".")[0],
        "torch": ".".join(torch.split(".")[:2]),
    }
