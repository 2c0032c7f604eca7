"""How much slower the advised setting is than the best one, on networks and workloads drawn at random.

    python benchmarks/regret.py [--out build/regret] [--cases 40] [--emulate 8] [--record]

In half of the cases the learning task is a CNN whose recording the advice knows: seeds 1 to 3 of it, and one seed of
stragglers. The truth is other seeds of both, for every recorded setting on every collective. The regret is the time to
the target of the advice over that of the best setting, less 1. A setting whose other seeds do not reach the target has
missed it. In the other half the truth is a transformer trained with momentum SGD, with all its seeds, which is held out
of the library: once the advice knows the CNN and the same transformer with AdamW, and once the CNN alone, whose
architecture is another one. Two baselines: always dts-d20-p4, and the evidence with the step-time law, without a
simulation.

The first cases of the known task are also emulated, with the recorded number of steps. The advice then emulates its
first three settings beside `ssgd`, as the command does. The truth is another emulation: of the choices, and recorded
settings that are simulated to take at most twice the time of the best one, on their fastest collective. --record stores
table and figure in results/reference.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.advise.candidates import candidates, identity, settings  # noqa: E402
from wanbench.harness.advise.evidence import Library, Tier  # noqa: E402
from wanbench.harness.advise.question import Limits, Question, ask  # noqa: E402
from wanbench.harness.advise.reproduce import emulation_spec  # noqa: E402
from wanbench.harness.advise.search import Options, rows_of_plan, search  # noqa: E402
from wanbench.harness.learning.recording import Recording, recorded  # noqa: E402
from wanbench.harness.plan.cell import TrainingCell  # noqa: E402
from wanbench.harness.plan.plan import Plan, make  # noqa: E402
from wanbench.harness.results.planned import auto_of  # noqa: E402
from wanbench.harness.results.store import RunFolder  # noqa: E402
from wanbench.harness.run.host import ThisHost  # noqa: E402
from wanbench.harness.show.figures.drawing import save  # noqa: E402
from wanbench.harness.show.figures.layout import Panels, logarithmic  # noqa: E402
from wanbench.harness.show.figures.style import PAGE_IN, wanbench_style  # noqa: E402
from wanbench.harness.spec.experiment import Spec  # noqa: E402

_ADVISED_SEEDS, _STRAGGLERS = (1, 2, 3), 101
_NEAR = 2.0
_ALWAYS = "dts-d20-p4"


@dataclass(frozen=True)
class Task:
    """What is learned: the recordings that the advice knows, and the one that is the truth."""

    title: str
    known: tuple[str, ...]
    truth: str


_TASKS = {
    "known": Task("known task", ("mnist",), "mnist"),
    "optimiser": Task("known model, another optimiser", ("mnist", "gpt"), "gpt-sgd"),
    "model": Task("another model", ("mnist",), "gpt-sgd"),
}


@dataclass(frozen=True)
class Case:
    """A network, a workload, and the learning task."""

    number: int
    workers: int
    rtt_ms: float
    mbit: float
    params: int
    step_ms: float
    step_cv: float
    task: str


def tasks(number: int) -> tuple[str, ...]:
    """The tasks of a case."""
    return ("optimiser", "model") if number % 2 else ("known",)


def case(number: int, task: str) -> Case:
    """Draw a case; the same number is always the same network and workload."""
    random = Random(f"regret {number}")

    def between(low: float, high: float) -> float:
        return float(f"{low * (high / low) ** random.random():.3g}")

    return Case(
        number,
        random.randint(2, 8),
        between(5, 300),
        between(10, 10_000),
        int(between(1e5, 2e6)),
        between(20, 500),
        random.choice([0.02, 0.02, 0.3, 0.8]),
        task,
    )


def question_of(drawn: Case) -> Question:
    """The question of a case."""
    network: dict[str, Any] = {"profile": "uniform", "rtt": f"{drawn.rtt_ms}ms", "rate": f"{drawn.mbit}Mbit"}
    network |= {"tcp": {"congestion": "cubic"}}
    workload = f"params={drawn.params},tensors=8,step_time={drawn.step_ms}ms,step_cv={drawn.step_cv}"
    return ask(network, workload, drawn.workers, Limits())


def with_seeds(recording: Recording, *, advised: bool) -> Recording:
    """A recording with the seeds that the advice knows, or with the others; with all if there are no others."""
    known = [one for one in recording.trajectories if (one.seed in _ADVISED_SEEDS) == advised]
    return replace(recording, trajectories=known) if known else recording


Place = tuple[str, str]
MISSED, NOT_RECORDED, NOT_VALID = "missed", "not recorded", "not valid"


def regrets(drawn: Case, out: Path, *, emulate: bool) -> dict[str, Any]:
    """A line of the table."""
    of = {each.design: each for each in recorded()}
    task = _TASKS[drawn.task]
    question = question_of(drawn)
    options = Options(out / f"case-{drawn.number:03d}", 0, say=lambda _: None)
    known = tuple(with_seeds(of[name], advised=True) if name == task.truth else of[name] for name in task.known)
    found = search(question, Library(known, True, question.limits), options)
    law = min((each for each in found.candidates if each.eligible and each.law_s), key=lambda each: each.expected_s)
    truth_of = with_seeds(of[task.truth], advised=False) if task.truth in task.known else of[task.truth]
    truth_library = Library((truth_of,), True, question.limits, fewest_seeds=1)
    truth = measured(question, truth_library, options)
    advised = found.advisable[0].candidate.cell
    named = {"advice": _place(advised), "law": _place(law.cell), "always": (_ALWAYS, "direct")}
    times = {place: took.to_target_s for place, took in truth.items()}
    line = {**vars(drawn), "advised": f"{advised.label} on {advised.collective}"}
    line |= compared(times, named, NOT_RECORDED, "")
    if emulate:  # as `advise` does: the order of the first three is the emulated one
        confirmed = search(question, Library(known, True, question.limits), replace(options, emulate=3))
        named["advice"] = _place(confirmed.advisable[0].candidate.cell)
    near = [place for place in fastest_collectives(truth) if times[place] <= _NEAR * min(times.values())]
    wanted = dict.fromkeys([*near, *(place for place in named.values() if math.isfinite(times.get(place, math.inf)))])
    apart = replace(options, out=options.out / "truth-emulated")
    emulated = emulated_times(question, truth, wanted, apart) if emulate else {}
    missed = {place: math.inf for place in named.values() if times.get(place) == math.inf} if emulate else {}
    line |= compared(emulated | missed, named, NOT_VALID, "emulated_")
    return line | {"emulated_settings": len(emulated), "emulated_wanted": len(wanted) if emulate else 0}


def _place(cell: TrainingCell) -> Place:
    return cell.label, cell.collective


def compared(times: Mapping[Place, float], named: Mapping[str, Place], lacking: str, prefix: str) -> dict[str, Any]:
    """The regret of each choice, or why it has none; and how many settings were measured.

    Args:
        lacking: why a choice is not among the times.
    """
    best = min(times.values(), default=math.nan)

    def outcome(place: Place) -> float | str:
        if place not in times:
            return lacking
        return round(times[place] / best - 1, 5) if math.isfinite(times[place]) else MISSED

    regret = {f"{prefix}{name}": outcome(place) if times else None for name, place in named.items()}
    return {f"{prefix}settings": len(times), **regret}


@dataclass(frozen=True)
class Truth:
    """A recorded setting on a collective: its cell, seconds of a step, and steps as a multiple of those of `ssgd`."""

    cell: TrainingCell
    step_time_s: float
    more_steps: float

    @property
    def to_target_s(self) -> float:
        """Infinite if it misses the target."""
        return self.step_time_s * self.more_steps


def measured(question: Question, library: Library, options: Options) -> Mapping[Place, Truth]:
    """Simulate each recorded setting on each collective."""
    there = question.changed({"run.seed": _STRAGGLERS})
    cells, _ = candidates(there, settings(library.settings))
    known = [(cell, evidence) for cell in cells if (evidence := library.evidence(cell)).tier is not Tier.UNKNOWN]
    plan = Plan(there.spec, (there.one_worker, *(cell for cell, _ in known)))
    times = rows_of_plan(plan, RunFolder(options.out / "truth"), options)
    return {
        (cell.label, cell.collective): Truth(cell, times[cell.key], evidence.more_steps or math.inf)
        for cell, evidence in known
        if cell.key in times
    }


def fastest_collectives(truth: Mapping[Place, Truth]) -> list[Place]:
    """Each setting on the collective on which its steps are the shortest."""
    order = sorted(truth, key=lambda place: truth[place].step_time_s)
    return [*{label: (label, collective) for label, collective in reversed(order)}.values()]


def emulated_times(
    question: Question, truth: Mapping[Place, Truth], wanted: Iterable[Place], options: Options
) -> dict[Place, float]:
    """Emulate settings. Return the times to the target of those with a valid repetition."""
    places = list(wanted)
    there = question.changed({"run.seed": _STRAGGLERS})
    text = emulation_spec(there, [truth[place].cell for place in places], repeats=1)
    spec = Spec.from_toml(text, question.where)
    folder = RunFolder(options.out / spec.name)
    plan = make(spec, question.where, ThisHost(), auto_of(folder.path))
    rows = rows_of_plan(plan, folder, options, text)
    took = {
        (identity(cell.kind, cell.params), cell.axes.get("collective")): rows.get(cell.key)
        for cell in plan.cells
        if isinstance(cell, TrainingCell) and not cell.is_baseline
    }
    found = {}
    for place in places:
        cell = truth[place].cell
        step_s = took.get((identity(cell.kind, cell.params), cell.collective))
        if step_s is not None:
            found[place] = step_s * truth[place].more_steps
    return found


_CHOICES = (
    ("advice", "the advice"),
    ("law", "the evidence and the law, not simulated"),
    ("always", f"always {_ALWAYS}"),
)
_GROUPS = (
    (f"{_TASKS['known'].title}, simulated", "known", ""),
    (f"{_TASKS['known'].title}, step times emulated", "known", "emulated_"),
    (f"{_TASKS['optimiser'].title}, simulated", "optimiser", ""),
    (f"{_TASKS['model'].title}, simulated", "model", ""),
)


def of_group(lines: Sequence[Mapping[str, Any]], task: str, prefix: str) -> list[Mapping[str, Any]]:
    """The lines of a group that were measured."""
    return [line for line in lines if line["task"] == task and line[f"{prefix}settings"]]


def numbers(lines: Iterable[Mapping[str, Any]], column: str) -> list[float]:
    """The regrets in a column, from the smallest, without those that are a reason."""
    return sorted(line[column] for line in lines if isinstance(line[column], float))


def summary(lines: Sequence[Mapping[str, Any]]) -> str:
    """The table: median, 95th percentile, and the cases without a regret by reason."""
    table = ["| cases | choice | median | 95th percentile | without a regret |", "|---|---|---|---|---|"]
    for group, task, prefix in _GROUPS:
        some = of_group(lines, task, prefix)
        for name, text in _CHOICES if some else ():
            known = numbers(some, f"{prefix}{name}")
            far = f"{quantiles(known, n=20, method='inclusive')[-1]:.1%}" if len(known) > 1 else ""
            middle = f"{median(known):.1%}" if known else ""
            why = Counter(line[f"{prefix}{name}"] for line in some if isinstance(line[f"{prefix}{name}"], str))
            reasons = ", ".join(f"{count} {reason}" for reason, count in why.items())
            table.append(f"| {len(some)}: {group} | {text} | {middle} | {far} | {reasons} |")
    return "\n".join(table) + "\n"


_LEAST_PCT, _MOST_PCT = 0.1, 1000
_COLOURS = {"advice": "#4477AA", "law": "#EE6677", "always": "#228833"}


def _title(lines: Sequence[Mapping[str, Any]]) -> str:
    near = []
    for name, task in _TASKS.items():
        some = of_group(lines, name, "")
        count = sum(regret <= 0.1 for regret in numbers(some, "advice"))
        near.append(f"{count} of {len(some)} ({task.title})")
    finding = f"Simulated, the advice is within 10 % of the best setting in {', '.join(near)}"
    return f"{finding}\nnetworks and workloads drawn at random, 2 to 8 workers"


@wanbench_style()
def drawn_regrets(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """For each choice, the share of the cases with at most this regret; the others never get there."""
    entries = {text: Line2D([], [], color=_COLOURS[name]) for name, text in _CHOICES}
    groups = [group for group in _GROUPS if of_group(lines, *group[1:])]
    about = (
        "regret: time to the target over that of the best setting, less 1; a curve ends below 100 % where the choice "
        "misses the target, was not recorded for the task, or has no valid emulation; a setting is advised only if all "
        "models that the library has agree that it reaches the target"
    )
    sheet = Panels(
        PAGE_IN, _title(lines), about, entries,
        count=len(groups), across=2, panel_in=1.7, left_in=0.5, right_in=0.2, gap_in=0.35,
    )  # fmt: skip
    for place, (group, task, prefix) in enumerate(groups):
        some = of_group(lines, task, prefix)
        axes = sheet.panel(place, f"{len(some)}: {group}")
        for name, _ in _CHOICES:
            known = [100 * regret for regret in numbers(some, f"{prefix}{name}")]
            shares = [100 * (index + 1) / len(some) for index in range(len(known))]
            values = [_LEAST_PCT, *(max(_LEAST_PCT, value) for value in known), _MOST_PCT]
            axes.step(values, [0, *shares, shares[-1] if shares else 0], where="post", color=_COLOURS[name])
        logarithmic(axes.xaxis, _LEAST_PCT, _MOST_PCT)
        axes.set_ylim(-2, 102)
        sheet.label(place, "regret (%)", "cases (%)")
    return sheet.figure


def main() -> None:
    """Measure the cases, and print the regrets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "regret", help="folder of the measurements")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--emulate", type=int, default=8, help="number of cases that are emulated too")
    parser.add_argument("--record", action="store_true", help="store table and figure in results/reference/regret")
    asked = parser.parse_args()
    to = ROOT / "results" / "reference" / "regret" if asked.record else asked.out
    to.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    numbered = [(number, task) for number in range(asked.cases) for task in tasks(number)]
    for place, (number, task) in enumerate(sorted(numbered, key=lambda each: each[1] != "known")):  # known tasks first
        lines.append(regrets(case(number, task), asked.out, emulate=place < asked.emulate))
        print(*lines[-1].values(), flush=True)
        with (to / "regret.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list(lines[0]))
            table.writeheader()
            table.writerows(lines)
    (to / "regret.md").write_text(summary(lines))
    figure = drawn_regrets(lines)
    for form in ("svg", "png"):
        save(figure, to / f"regret.{form}")
    print(summary(lines), end="")


if __name__ == "__main__":
    main()
