"""How much slower the advised setting is than the best one, on networks and workloads drawn at random.

    python benchmarks/regret.py [--out build/regret] [--cases 40] [--emulate 8] [--record]

The advice knows the seeds 1 to 3 of the learning library and simulates one seed of stragglers. The truth is other seeds
of both, for every recorded setting on every collective. The regret is the time to the target of the advice over that of
the best setting, less 1. A setting that does not reach the target with the other seeds has missed it. In half of the
cases the learning task is a CNN that the advice knows. In the others it is a transformer that is held out, so that the
advice has no evidence; beside it is the advice that trusts the CNN. Two baselines have no search: always dts-d20-p4,
and the best by the step-time law alone.

The first cases of known tasks are also emulated: there the truth is the emulated time of every recorded setting, on the
collective on which it is the fastest by simulation. --record stores table and figure in results/reference.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
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
from wanbench.harness.run.auto import ThisHost  # noqa: E402
from wanbench.harness.show.figures.layout import Panels, logarithmic  # noqa: E402
from wanbench.harness.show.figures.style import PAGE_IN, save, wanbench_style  # noqa: E402
from wanbench.harness.spec.experiment import Spec  # noqa: E402

_ADVISED_SEEDS, _STRAGGLERS = (1, 2, 3), 101
_ALWAYS = "dts-d20-p4"


@dataclass(frozen=True)
class Case:
    """A network, a workload, and the learning task that is the truth."""

    number: int
    workers: int
    rtt_ms: float
    mbit: float
    params: int
    step_ms: float
    step_cv: float
    held_out: bool


def case(number: int) -> Case:
    """Draw a case; the same number is always the same case."""
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
        held_out=number % 2 == 1,
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


def regrets(drawn: Case, out: Path, *, emulate: bool) -> dict[str, Any]:
    """A line of the table."""
    task, proxy = {each.design: each for each in recorded()}, "mnist"
    truth_of = task["gpt" if drawn.held_out else proxy]
    question = question_of(drawn)
    options = Options(out / f"case-{drawn.number:03d}", 0, say=lambda _: None)
    trusting = Library((with_seeds(task[proxy], advised=True),), True, question.limits)
    library = Library((), True, question.limits) if drawn.held_out else trusting
    found = search(question, library, options)
    known = search(question, trusting, options) if drawn.held_out else found
    law = min((each for each in known.candidates if each.eligible and each.law_s), key=lambda each: each.expected_s)
    truth_library = Library((with_seeds(truth_of, advised=False),), True, question.limits, fewest_seeds=1)
    truth = measured(question, truth_library, options)
    advised = found.advisable[0].candidate.cell
    named = {
        "advice": _place(advised),
        "other_task": _place(known.advisable[0].candidate.cell),
        "law_alone": _place(law.cell),
        "always": (_ALWAYS, "direct"),
    }
    times = {place: took.to_target_s for place, took in truth.items()}
    line = {**vars(drawn), "advised": f"{advised.label} on {advised.collective}", **compared(times, named, "")}
    emulated = emulated_times(question, truth, named.values(), options) if emulate else {}
    return line | compared(emulated, named, "emulated_")


Place = tuple[str, str]


def _place(cell: TrainingCell) -> Place:
    return cell.label, cell.collective


def compared(times: Mapping[Place, float], named: Mapping[str, Place], prefix: str) -> dict[str, Any]:
    """The regret of each choice, None if it misses the target; and how many settings were measured."""
    best = min(times.values(), default=1.0)
    found = {
        f"{prefix}{name}": times.get(place, math.inf) / best - 1 if times else None for name, place in named.items()
    }
    known = {name: None if value is None or math.isinf(value) else round(value, 5) for name, value in found.items()}
    return {f"{prefix}settings": len(times), **known}


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


def emulated_times(
    question: Question, truth: Mapping[Place, Truth], chosen: Iterable[Place], options: Options
) -> dict[Place, float]:
    """Emulate each recorded setting on its fastest collective, and what was chosen. Return times to the target."""
    order = sorted(truth, key=lambda place: truth[place].step_time_s)
    first = {label: (label, collective) for label, collective in reversed(order)}
    wanted = dict.fromkeys([*first.values(), *(place for place in chosen if place in truth)])
    there = question.changed({"run.seed": _STRAGGLERS})
    text = emulation_spec(there, [truth[place].cell for place in wanted], repeats=1)
    spec = Spec.from_toml(text, question.where)
    folder = RunFolder(options.out / spec.name)
    plan = make(spec, question.where, ThisHost(), auto_of(folder.path))
    rows = rows_of_plan(plan, folder, options, text)
    took = {(identity(cell.kind, cell.params), cell.axes.get("collective")): rows.get(cell.key) for cell in plan.cells
            if isinstance(cell, TrainingCell) and not cell.is_baseline}  # fmt: skip
    found = {}
    for place in wanted:
        cell = truth[place].cell
        step_s = took.get((identity(cell.kind, cell.params), cell.collective))
        if step_s is not None:
            found[place] = step_s * truth[place].more_steps
    return found


_CHOICES = (
    ("advice", "the advice"),
    ("other_task", "the advice if it trusts the CNN"),
    ("law_alone", "the best by the law alone"),
    ("always", f"always {_ALWAYS}"),
)
_GROUPS = (("known task, simulated", False, ""), ("held-out task, simulated", True, ""),
           ("known task, emulated", False, "emulated_"))  # fmt: skip


def summary(lines: Sequence[Mapping[str, Any]]) -> str:
    """The table: median, 95th percentile and misses."""
    table = ["| cases | choice | median | 95th percentile | missed the target |", "|---|---|---|---|---|"]
    for group, held_out, prefix in _GROUPS:
        some = [line for line in lines if line["held_out"] is held_out and line[f"{prefix}settings"]]
        for name, text in _CHOICES if some else ():
            if name == "other_task" and not held_out:
                continue
            known = sorted(line[f"{prefix}{name}"] for line in some if line[f"{prefix}{name}"] is not None)
            far = f"{quantiles(known, n=20, method='inclusive')[-1]:.1%}" if len(known) > 1 else ""
            middle = f"{median(known):.1%}" if known else ""
            table.append(f"| {len(some)}: {group} | {text} | {middle} | {far} | {len(some) - len(known)} |")
    return "\n".join(table) + "\n"


_LEAST_PCT, _MOST_PCT = 0.1, 1000
_COLOURS = {"advice": "#4477AA", "other_task": "#66CCEE", "law_alone": "#EE6677", "always": "#228833"}


def _title(lines: Sequence[Mapping[str, Any]]) -> str:
    known = [line["advice"] for line in lines if not line["held_out"]]
    near = sum(regret is not None and regret <= 0.1 for regret in known)
    held_out = [line for line in lines if line["held_out"]]
    missed = sum(line["advice"] is None for line in held_out)
    finding = f"The advice is within 10 % of the best setting in {near} of {len(known)} cases of a known task"
    finding += f", and misses the target in {missed} of {len(held_out)} of an unknown one" if held_out else ""
    return f"{finding}\nnetworks and workloads drawn at random, 2 to 8 workers"


@wanbench_style()
def drawn_regrets(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """For each choice, the share of the cases with at most this regret; who misses the target never gets there."""
    entries = {text: Line2D([], [], color=_COLOURS[name]) for name, text in _CHOICES}
    groups = [
        (text, held_out, prefix)
        for text, held_out, prefix in _GROUPS
        if any(line["held_out"] is held_out and line[f"{prefix}settings"] for line in lines)
    ]
    about = (
        "regret: time to the target over that of the best setting, less 1; a curve ends below 100 % where the others "
    )
    about += "miss the target"
    sheet = Panels(
        PAGE_IN, _title(lines), about, entries,
        count=len(groups), across=len(groups), panel_in=1.7, left_in=0.5, right_in=0.2, gap_in=0.35,
    )  # fmt: skip
    for place, (group, held_out, prefix) in enumerate(groups):
        some = [line for line in lines if line["held_out"] is held_out and line[f"{prefix}settings"]]
        axes = sheet.panel(place, f"{len(some)}: {group}")
        for name, _ in _CHOICES if held_out else (_CHOICES[0], *_CHOICES[2:]):
            known = sorted(100 * regret for line in some if (regret := line[f"{prefix}{name}"]) is not None)
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
    for place, number in enumerate(sorted(range(asked.cases), key=lambda number: number % 2)):  # known tasks first
        lines.append(regrets(case(number), asked.out, emulate=place < asked.emulate))
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
