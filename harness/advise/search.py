"""From a question to an answer: by the law, on the simulated clock, and emulated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from wanbench.harness.advise.candidates import LeftOut, candidates, identity, reference_on_gloo, settings
from wanbench.harness.advise.evidence import Library
from wanbench.harness.advise.hosts import Hosts, on_other_hosts
from wanbench.harness.advise.question import REFERENCE, Question
from wanbench.harness.advise.ranking import (
    Candidate,
    Measured,
    advisable,
    first,
    one_of_each,
    promising,
    ranked,
    shortlist,
    weighed,
    without_risk,
)
from wanbench.harness.advise.reproduce import emulation_spec
from wanbench.harness.analysis.best import megabytes_per_step
from wanbench.harness.errors import CellsFailed, HostError, SpecError
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.plan import Plan, make
from wanbench.harness.results.planned import auto_of
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import ThisHost
from wanbench.harness.run.together import measure_all
from wanbench.harness.spec.experiment import Spec


@dataclass(frozen=True)
class Emulated:
    """What was emulated.

    Attributes:
        measured: in order. ssgd: `ssgd` on its fastest collective; None if its repetition was not valid. Not on gloo:
            its segments keep their size when `payload_scale` makes messages smaller, which flatters it.
        scale: payload_scale. emulator, testbed: as chosen. why_not: why nothing was emulated; "" if something was.
    """

    measured: tuple[Measured, ...] = ()
    ssgd: Measured | None = None
    scale: float | None = None
    testbed: str = ""
    emulator: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class SearchResult:
    """All that an answer is made of.

    Attributes:
        library: the recordings that accuracies are known from.
        candidates: all. left_out: those that the workload or a limit does not allow.
        baseline: `ssgd` on gloo, simulated. simulated: the shortlist, in no order.
        hosts: the times of `baseline`, of the setting advised and of the fastest without risk on other hosts; None
            where the buffers of a stock host limit nothing.
    """

    question: Question
    library: Library
    candidates: Sequence[Candidate]
    left_out: Sequence[LeftOut]
    baseline: Measured
    simulated: Sequence[Measured]
    emulated: Emulated
    hosts: Hosts | None = None

    @property
    def advisable(self) -> list[Measured]:
        """Those whose accuracy is known and enough, in order, by what was simulated and emulated."""
        simulated = {result.candidate.cell.key: result.step_time_s for result in self.simulated}
        beside = [self.emulated.ssgd] if self.emulated.ssgd else []
        emulated = {result.candidate.cell.key: result.step_time_s for result in [*self.emulated.measured, *beside]}
        longer = [result.step_time_s / simulated[result.candidate.cell.key] for result in self.emulated.measured]
        usual = median(longer) if longer else 1.0  # not of `ssgd`: short steps suffer more from a busy host
        return advisable(
            result.as_emulated(seconds, usual) if (seconds := emulated.get(result.candidate.cell.key)) else result
            for result in self.simulated
        )


@dataclass(frozen=True)
class Options:
    """How to measure: the folder of runs, how many candidates to emulate, and whether to delete earlier results."""

    out: Path
    emulate: int = 3
    fresh: bool = False
    say: Callable[[str], None] = print


def search(question: Question, library: Library, options: Options) -> SearchResult:
    """Find the answer. Raises: SpecError, HostError, CellsFailed."""
    cells, left_out = candidates(question, settings(library.settings))
    every = weighed(cells, library)
    if reference_on_gloo(question).key not in {candidate.cell.key for candidate in every}:
        reason = next(setting.reason for setting in left_out if setting.label == REFERENCE)
        raise SpecError(f"advise: {REFERENCE}, the reference of all settings, is left out: {reason}; relax the limit")
    chosen = shortlist(every)
    options.say(f"{len(every)} settings and collectives ranked by the step-time law; {len(chosen)} simulated")
    baseline, simulated = _simulated(question, chosen, options)
    emulated = Emulated()
    if options.emulate:
        fastest = one_of_each(advisable(simulated))[: options.emulate]
        emulated = emulate(question, fastest, without_risk(simulated)[0], options)
    result = SearchResult(question, library, every, left_out, baseline, simulated, emulated)
    compared = [baseline, result.advisable[0], without_risk(simulated)[0]]
    return replace(result, hosts=on_other_hosts(question, compared, partial(_step_times, options)))


def _step_times(options: Options, plan: Plan) -> dict[str, float]:
    return rows_of_plan(plan, RunFolder(options.out / plan.spec.name), options)


def _simulated(question: Question, chosen: Sequence[Candidate], options: Options) -> tuple[Measured, list[Measured]]:
    gloo = reference_on_gloo(question)
    folder = RunFolder(options.out / question.spec.name)
    cells = [question.one_worker, gloo]
    if question.slow:
        begun = first(chosen)
        rows = rows_of_plan(_plan(question, cells, begun), folder, options)
        chosen = promising(
            chosen, [(candidate, rows[candidate.cell.key]) for candidate in begun if candidate.cell.key in rows]
        )
        options = replace(options, fresh=False)
    rows = rows_of_plan(_plan(question, cells, chosen), folder, options)
    sent = {row["cell_key"]: megabytes_per_step(row) for row in folder.rows()}
    measured = [
        Measured(candidate, rows[candidate.cell.key], None if (mb := sent[candidate.cell.key]) is None else 1e6 * mb)
        for candidate in chosen
        if candidate.cell.key in rows
    ]
    reference = next((result for result in measured if result.candidate.cell.key == gloo.key), None)
    if reference is None:
        raise CellsFailed(f"{folder.path}: {REFERENCE} on gloo, the reference of all settings, has no valid result")
    return reference, measured


def _plan(question: Question, cells: Iterable[Cell], chosen: Iterable[Candidate]) -> Plan:
    every = {cell.key: cell for cell in [*cells, *(candidate.cell for candidate in chosen)]}
    return Plan(question.spec, tuple(every.values()), part=True)


def rows_of_plan(plan: Plan, folder: RunFolder, options: Options, text: str | None = None) -> dict[str, float]:
    """Measure a plan. Return the median step time of the valid repetitions of each cell by its key."""
    measure_all(plan, folder, text=text, draw=False, fresh=options.fresh)
    times: dict[str, list[float]] = {}
    for row in folder.rows():
        if row["status"] == "ok" and row["step_time_s"] is not None:
            times.setdefault(row["cell_key"], []).append(row["step_time_s"])
    return {key: median(values) for key, values in times.items()}


def emulate(question: Question, chosen: Sequence[Measured], ssgd: Measured | None, options: Options) -> Emulated:
    """Emulate candidates, and `ssgd` unless it is None, on a testbed of this host."""
    beside = [] if ssgd is None else [ssgd]
    text = emulation_spec(question, [measured.candidate.cell for measured in [*chosen, *beside]], repeats=1)
    spec = Spec.from_toml(text, question.where)
    folder = RunFolder(options.out / spec.name)
    try:
        plan = make(spec, question.where, ThisHost(), auto_of(folder.path))
        rows = rows_of_plan(plan, folder, options, text)
    except HostError as error:
        return Emulated(why_not=str(error))
    by_place = {
        _collective_key(cell): rows[cell.key] for cell in plan.cells if cell.key in rows and not cell.is_baseline
    }
    measured = _matched(chosen, by_place)
    if not measured:
        return Emulated(why_not=f"no repetition was valid; see {folder.path}")
    row = next(row for row in folder.rows() if row["status"] == "ok" and row["workers"] > 1)
    return Emulated(
        tuple(ranked(measured)),
        next(iter(_matched(beside, by_place)), None),
        row["payload_scale"],
        str(row["testbed"]),
        str(row["emulator"]),
    )


def _collective_key(cell: Cell) -> tuple[str, str]:
    return identity(cell.kind, cell.params), str(cell.axes.get("collective", ""))


def _matched(chosen: Iterable[Measured], rows: Mapping[tuple[str, str], float]) -> list[Measured]:
    return [
        replace(result, step_time_s=rows[key])
        for result in chosen
        if (key := _collective_key(result.candidate.cell)) in rows
    ]
