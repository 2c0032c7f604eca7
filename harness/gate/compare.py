"""Base against head, measured alternately until a verdict is reached, or from recorded results."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from wanbench.harness.errors import SpecError
from wanbench.harness.gate import measured, noise, rule, sides
from wanbench.harness.gate.check import Work
from wanbench.harness.gate.measured import Sides, other_machine, unlike_hosts
from wanbench.harness.gate.names import name, name_of
from wanbench.harness.gate.noise import ALL_CELLS, HostNoise
from wanbench.harness.gate.pair import Pair
from wanbench.harness.gate.provenance import OtherFiles
from wanbench.harness.gate.rounds import CannotRun, RunRequest
from wanbench.harness.gate.sides import Side
from wanbench.harness.gate.verdict import Judgement, Report, Verdict
from wanbench.harness.plan.cell import CommandCell, TrainingCell
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import check_host, control_folder


def compare(work: Work, base: str, head: str, out: Path) -> Report:
    """The verdict on every cell.

    Args:
        base, head: a run folder or the name of one under `out`, a git revision, `image:NAME`, or `.`.

    Raises:
        SpecError, HostError: nothing can be compared. Interrupted: the user stopped it.
    """
    before, after = sides.recorded("base", base, out), sides.recorded("head", head, out)
    if before is not None and after is not None:
        _refuse_equal(before, after)
        return _recorded(work, before, after)
    for side, source in ((before, base), (after, head)):
        if side is not None:
            raise SpecError(f"{source}: a run folder can only be compared with another run folder")
    check_host(work.cells)
    with ExitStack() as stack:
        stack.enter_context(RunFolder(work.folder).lock())
        scratch = stack.enter_context(control_folder())
        setup = work.spec.gate.setup
        right = stack.enter_context(sides.opened("head", head, setup, scratch, out))
        left = stack.enter_context(sides.opened("base", base, setup, scratch, out))
        _refuse_equal(left, right)
        if left.own is not None or right.own is not None:
            _refuse_one_image(work)
        report = _measured(work, left, right)
        return report if right.own is None else replace(report, code=right.own.code(work.code))


def _refuse_equal(base: Side, head: Side) -> None:
    """Refuse to compare something with itself, which finds no change whatever happened. Raises: SpecError."""
    if base.same == head.same:
        raise SpecError(
            f"--base and --head have the same files ({base.title}, {head.title}); compare two versions, or measure the "
            "noise with --aa"
        )


def _refuse_one_image(work: Work) -> None:
    """Refuse revisions whose models and algorithms are in one image, so both would run it. Raises: SpecError."""
    if work.code and any(cell.testbed == "docker" and isinstance(cell, TrainingCell) for cell in work.cells):
        raise SpecError(
            f"{work.where}: containers run the code of their image, not of a checkout; build an image of each version, "
            "and compare them with --base image:NAME --head image:NAME"
        )


def measure_noise(work: Work) -> Report:
    """Compare the working folder with itself in all rounds, and write the differences to the host's noise file.

    Equal sides cannot differ. If one seems to have changed, the host is too noisy to decide.
    """
    check_host(work.cells)
    with RunFolder(work.folder).lock():
        pair = _pair(work, sides.working_folder("base"), sides.working_folder("head"))
        pair.measure(rule.LOOKS[-1], ())
    known = HostNoise(work.noise_path, {})
    both = pair.sides(work.spec.gate, known)
    notes = ["both sides are the same code, so every difference is noise of this host"]
    if both.timed:
        cells = dict(zip(both.timed, rule.noise(both.log_ratios).tolist(), strict=True))
        cells[ALL_CELLS] = float(rule.noise(both.log_ratios.mean(axis=0)))
        cells = {cell: change for cell, change in cells.items() if math.isfinite(change)}
        cells |= {noise.wire_of(cell): change for cell, change in both.wire_noise().items()}
        noise.write(work.noise_path, work.spec.name, work.emulated_on, cells)
        known = HostNoise(work.noise_path, cells)
        notes.append(f"{work.noise_path}: the noise of {len(both.timed)} cells was written")
    found, together = measured.findings(both, work.spec.gate, 1, known)
    doubted = tuple(_doubted(finding) for finding in found)
    overall = together and _doubted(together)
    title = "the noise of this host"
    return Report(work.spec.name, title, doubted, overall=overall, notes=tuple(notes), files=pair.files)


def _doubted(finding: Judgement) -> Judgement:
    if finding.verdict not in {Verdict.REGRESSED, Verdict.IMPROVED}:
        return finding
    return replace(
        finding, verdict=Verdict.INCONCLUSIVE, text="equal sides differ: this host is too noisy for this cell"
    )


def _measured(work: Work, base: Side, head: Side) -> Report:
    """Measure base and head alternately, and judge them up to twice."""
    pair = _pair(work, base, head)
    known = work.noise()
    against = f"{head.title} against {base.title}, measured alternately"
    try:
        first = 1 if pair.simulated else rule.LOOKS[0]
        pair.measure(first, ())
        both = pair.sides(work.spec.gate, known)
        found, together = measured.findings(both, work.spec.gate, len(rule.LOOKS), known)
        again = measured.further(both, work.spec.gate, len(rule.LOOKS), known)
        if again:
            early = {finding.cell for finding in found if finding.verdict is Verdict.REGRESSED}
            print(
                f"check: {len(again)} cells are undecided after {first} rounds",
                file=sys.stderr,
                flush=True,
            )
            pair.measure(rule.LOOKS[-1], again)
            both = pair.sides(work.spec.gate, known)
            found, together = measured.findings(both, work.spec.gate, len(rule.LOOKS), known, early)
    except CannotRun as error:
        return _not_comparable(work, against, f"the base cannot run this spec: {error}")
    except OtherFiles as error:
        return _not_comparable(work, against, str(error))
    remark = [known.remark] if known.remark and both.timed else []
    if pair.base.ran and pair.base.ran == pair.head.ran:
        remark.append("the code under test is the same on both sides")
    judged = work.claims(pair.head.rows())
    found += work.unmeasured(pair.base.rows(), pair.head.rows())
    return Report(work.spec.name, against, tuple(found), judged, together, tuple(remark), pair.files)


def _pair(work: Work, base: Side, head: Side) -> Pair:
    commands = tuple(tuple(cell.command) for cell in work.cells if isinstance(cell, CommandCell))
    excluded = tuple(work.spec.sweep.get("exclude", []))
    order = RunRequest(work.file.resolve(), work.spec.name, excluded, work.options, commands)
    return Pair(work.cells, order, work.folder.resolve(), base, head)


def _not_comparable(work: Work, against: str, why: str) -> Report:
    """No cell can be compared, which is not a regression."""
    cells = (Judgement(name_of(cell), Verdict.NOT_COMPARABLE, "") for cell in work.cells)
    return Report(work.spec.name, against, tuple(cells), notes=(why,))


def _recorded(work: Work, base: Side, head: Side) -> Report:
    """Compare two result folders without measuring."""
    assert base.recorded is not None
    assert head.recorded is not None
    wanted = {name_of(cell) for cell in work.cells}
    rows = [[row for row in side.rows() if name(row) in wanted] for side in (base.recorded, head.recorded)]
    for side, mine in zip((base, head), rows, strict=True):
        if not mine:
            raise SpecError(f"--{side.role} {side.title}: has no results of cells of {work.spec.name}")
    against = f"{head.title} against {base.title}"
    if (unlike := unlike_hosts(*rows)) is not None:
        return Report(work.spec.name, against, (Judgement("hosts", Verdict.NOT_COMPARABLE, unlike),))
    machines = [side.manifest() for side in (base.recorded, head.recorded)]
    known = work.noise()
    both = Sides(rows[0], rows[1], work.spec.gate, other_machine(*machines), known.wire_band)
    found, together = measured.findings(both, work.spec.gate, 1, known)
    found += work.unmeasured(*rows)
    notes = [
        "base and head were measured at different times, so changes of the host count as changes of the code",
        *([known.remark] if known.remark else []),
    ]
    notes = notes if both.timed else []
    titles = {"base": base.title, "head": head.title}
    return Report(work.spec.name, against, tuple(found), work.claims(rows[1]), together, tuple(notes), titles)
