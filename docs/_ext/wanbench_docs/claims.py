"""The claims of a paper and what recorded runs say about them, and the recorded runs themselves, as tables.

A `[[claim]]` in `docs/reference/claims/<paper>.toml` names a value of a recorded run, and what it should be. Nothing is
stored: values, intervals and verdicts follow from the rows, and the load that forbids to emulate a simulated cell from
its plan.
"""

from __future__ import annotations

import math
import operator
import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from wanbench.harness.analysis.axes import absent
from wanbench.harness.analysis.paired import MeanInterval, mean_interval, unequal_steps
from wanbench.harness.analysis.summary import Row
from wanbench.harness.errors import SpecError
from wanbench.harness.learning.recording import RECORDED as LIBRARY
from wanbench.harness.learning.recording import SUFFIX, read
from wanbench.harness.learning.summary import difference
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.expand import expand
from wanbench.harness.results import planned
from wanbench.harness.results.row import describe
from wanbench.harness.results.store import RunFolder
from wanbench.harness.results.verify import objections
from wanbench.harness.show import papers
from wanbench.harness.show.papers import Paper
from wanbench.harness.show.papers.drawing import recorded
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.text import shown
from wanbench_docs.curves import RECORDED
from wanbench_docs.markdown import escaped, markdown

_FOLDER = Path(__file__).resolve().parents[2] / "reference" / "claims"
_LEARNED = {"accuracy", "final_loss"}
_NEAR_PCT = 10.0  # a value this close to a published one agrees with it
_GIB = 1 << 30


class Claim(BaseModel):
    """A figure, a table or a claim of the paper, and the recorded value that answers it (`answers`).

    Attributes:
        place: in the paper. text: what it says. theirs: its value as text; "picture" if it is not printed.
        run: the recorded run; without one, `why` says why there is none.
        learned: instead of a run, a design of the learning library, a condition and a setting, whose difference in
            accuracy from the reference over equal seeds is the value.
        value: a column, divided by column `per`, if given. where: selects the cell, by column.
        over, minus: the value is divided by that of another cell, or that is subtracted; columns that differ.
        scale, unit: for display. published: the value to compare with. least, most: or its bounds.
        fitted: the network was fitted to this value. why: why it is simulated, if not because of the load.
        pooled: `where` selects several cells, which differ in the number of workers; all repetitions count.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    place: str
    text: str
    theirs: str
    run: str | None = None
    learned: list[str] | None = None
    value: str | None = None
    per: str | None = None
    where: dict[str, float | int | str] = {}
    over: dict[str, float | int | str] | None = None
    minus: dict[str, float | int | str] | None = None
    scale: float = 1.0
    unit: str = ""
    published: float | None = None
    least: float | None = None
    most: float | None = None
    fitted: bool = False
    why: str | None = None
    pooled: bool = False


_FILE = TypeAdapter(dict[Literal["claim"], list[Claim]])


def names() -> list[str]:
    """The papers whose claims are answered."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load(paper: Paper) -> list[Claim]:
    """Read the claims of a paper. Raises: SpecError, ValueError: one is wrong."""
    return parse(paper, (_FOLDER / f"{paper.name}.toml").read_text(encoding="utf-8"))


def parse(paper: Paper, text: str) -> list[Claim]:
    """The claims of a paper from the text of their file. Raises: SpecError, ValueError."""
    claims = _FILE.validate_python(tomllib.loads(text))["claim"]
    for claim in claims:
        _check(claim, paper, f"{paper.name}.toml: claim {claim.place!r}")
    return claims


def _check(claim: Claim, paper: Paper, where: str) -> None:
    if claim.learned is not None:
        if claim.run is not None or claim.least is None:
            raise SpecError(f"{where}: expected either a run or what was learned, and the least value")
        return
    if claim.run is None:
        if claim.why is None or claim.value is not None:
            raise SpecError(f"{where}: expected a run with a value, or why there is none")
        return
    if claim.run not in paper.runs:
        raise SpecError(f"{where}: {claim.run!r} is none of its runs")
    judged = claim.published is not None or claim.least is not None or claim.most is not None
    if claim.value is None or not (judged or claim.fitted):
        raise SpecError(f"{where}: expected a value, and published, least or most")


@dataclass(frozen=True)
class Answer:
    """A claim, answered.

    Attributes:
        value: our value with its interval; "-" without a run. how: emulated, simulated and why not emulated, or not at
            all and why. verdict: a few words.
    """

    claim: Claim
    value: str
    how: str
    verdict: str


@dataclass(frozen=True)
class _Run:
    """A recorded run: its folder, its valid rows, and the cells that `verify` refuses; None is the whole run."""

    path: Path
    rows: Sequence[Row]
    refused: Set[str | None]


def answers(claims: Sequence[Claim], reference: Path) -> list[Answer]:
    """Answer claims.

    Raises:
        SpecError: a run is not recorded, or has no valid cell that the claim names.
    """
    runs = {claim.run: _read(recorded(reference, claim.run)) for claim in claims if claim.run is not None}
    return [_answer(claim, runs) for claim in claims]


def _read(folder: RunFolder) -> _Run:
    rows = folder.rows()
    broken = objections(rows, planned.read(folder.path).names)
    refused = {objection.cell for objection in broken if objection.rule != "accuracy"}
    return _Run(folder.path, [row for row in rows if row["status"] == "ok"], refused)


def _answer(claim: Claim, runs: Mapping[str, _Run]) -> Answer:
    if claim.learned is not None:
        estimate = _learned(claim, *claim.learned)
        return Answer(claim, _shown(claim, estimate), f"simulated: {claim.why}", _verdict(claim, estimate))
    if claim.run is None:
        return Answer(claim, "-", f"not at all: {claim.why}", "open")
    run = runs[claim.run]
    row, *_ = _cell(claim, run.rows, claim.where)
    why_not = _unequal(claim, run.rows, row)
    if why_not is not None:
        return Answer(claim, "-", _how(claim, run.path, row), why_not)
    estimate = _estimate(claim, run.rows)
    refused = "; `verify` refuses the run" if {None, row["cell"]} & run.refused else ""
    return Answer(claim, _shown(claim, estimate), _how(claim, run.path, row), _verdict(claim, estimate) + refused)


def _learned(claim: Claim, design: str, condition: str, setting: str) -> MeanInterval:
    """The difference in accuracy that the learning library has. Raises: SpecError: it has none."""
    trained = read(LIBRARY / f"{design}{SUFFIX}")
    reference = trained.reference_of(condition)
    seeds = trained.by_setting.get((condition, setting))
    found = None if reference is None or seeds is None else difference(seeds, reference)
    if found is None:
        raise SpecError(f"claim {claim.place!r}: {design} has no {setting} under {condition}")
    return MeanInterval(*(claim.scale * end for end in (found.mean, found.low, found.high)), found.count)


def _cell(claim: Claim, rows: Sequence[Row], where: Mapping[str, Any]) -> list[Row]:
    selected = [row for row in rows if all(row.get(name) == value for name, value in where.items())]
    count = len({row["cell"] for row in selected})
    if count != 1 and not (claim.pooled and count):
        raise SpecError(f"claim {claim.place!r}: {dict(where)} selects {count} cells of {claim.run}; expected one")
    return selected


def _unequal(claim: Claim, rows: Sequence[Row], row: Row) -> str | None:
    """Why two results of training are not compared: they are known after unequal numbers of steps."""
    other = claim.over or claim.minus
    if other is None or claim.value not in _LEARNED:
        return None
    reference, *_ = _cell(claim, rows, {**claim.where, **other})
    return unequal_steps(row["steps_total"], reference["steps_total"], reference["algorithm"])


def _estimate(claim: Claim, rows: Sequence[Row]) -> MeanInterval:
    """The value of each repetition, divided by or less that of the repetition with the same seed."""
    by_seed = _values(claim, _cell(claim, rows, claim.where))
    for other, combine in ((claim.over, operator.truediv), (claim.minus, operator.sub)):
        if other is not None:
            other_values = _values(claim, _cell(claim, rows, {**claim.where, **other}))
            by_seed = {
                seed: combine(by_seed[seed], other_values[seed]) for seed in by_seed.keys() & other_values.keys()
            }
    return mean_interval([claim.scale * by_seed[seed] for seed in sorted(by_seed)])


def _values(claim: Claim, rows: Sequence[Row]) -> dict[tuple[int, int], float]:
    """The value of each repetition, by seed, and by the number of workers if cells are pooled."""
    column, per = str(claim.value), claim.per
    return {
        (row["workers"] if claim.pooled else 0, row["seed"]): row[column] / (1 if per is None else row[per])
        for row in rows
    }


def _shown(claim: Claim, estimate: MeanInterval) -> str:
    mean, low, high = (f"{value:.3g}" for value in (estimate.mean, estimate.low, estimate.high))
    between = f" ({low} to {high})" if estimate.bounded and low != high else ""
    count = "" if estimate.bounded else f" ({estimate.count} repetition{'s' * (estimate.count > 1)})"
    return f"{mean}{claim.unit and ' '}{claim.unit}{between}{count}"


def _verdict(claim: Claim, estimate: MeanInterval) -> str:
    if claim.fitted:
        return "fitted: shows nothing"
    if claim.published is not None:
        off = 100 * (estimate.mean / claim.published - 1)
        return f"{'agrees' if abs(off) <= _NEAR_PCT else 'differs'} ({off:+.0f} %)"
    least, most = (
        -math.inf if claim.least is None else claim.least,
        math.inf if claim.most is None else claim.most,
    )
    low, high = (estimate.low, estimate.high) if estimate.bounded else (estimate.mean, estimate.mean)
    if least <= low and high <= most:
        return "holds"
    return "fails" if high < least or low > most else "undecided: the interval is too wide"


def _how(claim: Claim, run: Path, row: Row) -> str:
    if row["testbed"] != "virtual":
        unchecked = "; before the check for pauses" if absent(row["paused_pct"]) else ""
        return f"emulated ({row['testbed']}, {row['emulator']}{unchecked})"
    return f"simulated: {claim.why or _load(run, row)}"


@cache
def _emulated(run: Path) -> list[tuple[Row, Any]]:
    """The cells of a run as they would be emulated, with their columns."""
    stored = planned.read(run)
    spec = Spec.from_dict({**stored.spec, "run": {**stored.spec.get("run", {}), "testbed": "netns"}}, run.name)
    return [(describe(cell, 0), cell) for cell in expand(spec, run.name, FixedHost())]


def _load(run: Path, simulated: Row) -> str:
    """The predicted load of emulating a cell, beside what a small host has."""
    host = FixedHost().capacity()
    load = next(
        cell.load.on(host)
        for row, cell in _emulated(run)
        if row["algorithm"] == simulated["algorithm"] and row["axes"] == simulated["axes"]
    )
    needs = []
    if load.cpus > host.cpu_limit:
        needs.append(f"{load.cpus:.1f} processors ({host.cpu_limit:g} of {host.cores} may be busy)")
    elif load.peak_cpus > host.cores:
        needs.append(f"{load.peak_cpus:.1f} of {host.cores} processors while messages are sent")
    if load.memory_bytes > host.memory_limit:
        needs.append(f"{load.memory_bytes / _GIB:.0f} GiB of memory ({host.memory_limit / _GIB:.1f} may be used)")
    scale = f"at payload scale {simulated['payload_scale']:g}"
    return f"emulation needs {' and '.join(needs)} {scale}" if needs else f"emulation is possible {scale}"


_HEADER = ("in the paper", "it says", "theirs", "ours", "how", "verdict")


def of_claims(name: str) -> str:
    """Return all claims of a paper, in its order."""
    paper = papers.load(name)
    rows = [
        (escaped(one.claim.place), escaped(one.claim.text), one.claim.theirs, one.value, escaped(one.how), one.verdict)
        for one in answers(load(paper), RECORDED)
    ]
    return f"## {escaped(paper.title)}\n\n{escaped(paper.citation)}.\n\n{markdown(_HEADER, rows)}\n"


_RUN_HEADER = ("run", "repetitions", "emulated", "commit", "pauses", "digests", "latest packets")


def of_recordings() -> str:
    """Return every recorded run, and what was not checked when it was measured."""
    folders = [RunFolder(path.parent) for path in sorted(RECORDED.glob("*/rows.jsonl"))]
    return markdown(_RUN_HEADER, map(_recording, folders)) + "\n"


def _recording(folder: RunFolder) -> list[str]:
    rows = [row for row in folder.rows() if row["status"] == "ok"]
    emulated = [row for row in rows if row["testbed"] != "virtual"]
    commit, dirty, _ = str(folder.manifest()["git"]).partition("-dirty")
    late = max((row["lateness_p99_ms"] for row in emulated if row["lateness_p99_ms"] is not None), default=None)
    counted = all(row["paused_pct"] is not None for row in emulated)
    return [
        f"`{folder.name}`",
        str(len(rows)),
        str(len(emulated)),
        f"`{commit}`" + (" with changes" if dirty else ""),
        ("counted" if counted else "not counted") if emulated else "-",
        "yes" if (folder.path / "digests.jsonl").exists() else "no",
        shown(None if late is None else round(late, 1)),
    ]
