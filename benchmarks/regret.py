"""How much slower the advised setting is than the best one, on networks and workloads drawn at random.

    python benchmarks/regret.py [--out build/regret] [--cases 40]

The advice knows the seeds 1 to 3 of the learning library and simulates one seed of stragglers. The truth is other seeds
of both, for every recorded setting on every collective. The regret is the time to the target of the advice over that of
the best setting, less 1. A setting that does not reach the target with the other seeds has missed it. In half of the
cases the learning task is one that the advice knows; in the others it is held out, and the advice has a proxy of
another architecture. Two baselines have no search: always dts-d20-p4, and the best by the step-time law alone.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.advise.candidates import candidates, settings  # noqa: E402
from wanbench.harness.advise.evidence import Library, Tier  # noqa: E402
from wanbench.harness.advise.question import Limits, Question, ask  # noqa: E402
from wanbench.harness.advise.search import Options, rows_of_plan, search  # noqa: E402
from wanbench.harness.learning.recording import Recording, recorded  # noqa: E402
from wanbench.harness.plan.plan import Plan  # noqa: E402
from wanbench.harness.results.store import RunFolder  # noqa: E402

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


def regrets(drawn: Case, out: Path) -> dict[str, Any]:
    """A line of the table."""
    task, proxy = {each.design: each for each in recorded()}, "mnist"
    truth_of = task["gpt" if drawn.held_out else proxy]
    question = question_of(drawn)
    options = Options(out / f"case-{drawn.number:03d}", 0, say=lambda _: None)
    library = Library((with_seeds(task[proxy], advised=True),), True, question.limits)
    found = search(question, library, options)
    law = min((each for each in found.candidates if each.eligible and each.law_s), key=lambda each: each.expected_s)
    others = (with_seeds(truth_of, advised=False),)
    truth = measured(question, Library(others, True, question.limits, fewest_seeds=1), options)
    best = min(truth.values())
    advised = found.advisable[0].candidate.cell
    always = truth.get((_ALWAYS, "direct"), math.inf)
    named = {
        "advice": truth.get((advised.label, advised.collective), math.inf),
        "law_alone": truth.get((law.cell.label, law.cell.collective), math.inf),
        "always": always,
    }
    shown = {name: None if math.isinf(value) else round(value / best - 1, 5) for name, value in named.items()}
    return {**vars(drawn), "advised": f"{advised.label} on {advised.collective}", "settings": len(truth), **shown}


def measured(question: Question, library: Library, options: Options) -> Mapping[tuple[str, str], float]:
    """The time to the target of each recorded setting on each collective; infinite if it misses it."""
    there = question.changed({"run.seed": _STRAGGLERS})
    cells, _ = candidates(there, settings(library.settings))
    known = [(cell, evidence) for cell in cells if (evidence := library.evidence(cell)).tier is not Tier.UNKNOWN]
    plan = Plan(there.spec, (there.one_worker, *(cell for cell, _ in known)))
    times = rows_of_plan(plan, RunFolder(options.out / "truth"), options)
    return {
        (cell.label, cell.collective): times[cell.key] * (evidence.more_steps or math.inf)
        for cell, evidence in known
        if cell.key in times
    }


def summary(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print regrets: median, 95th percentile and misses."""
    for held_out in (False, True):
        some = [line for line in lines if line["held_out"] is held_out]
        for name in ("advice", "law_alone", "always"):
            known = [line[name] for line in some if line[name] is not None]
            text = f"{'held-out task' if held_out else 'known task':14} {name:10} {len(some)} cases"
            text += f", {len(some) - len(known)} missed the target"
            if len(known) > 1:
                worst = quantiles(known, n=20, method="inclusive")[-1]
                text += f"; regret of the others: median {median(known):.1%}, 95th percentile {worst:.1%}"
            print(text)


def main() -> None:
    """Measure the cases, and print the regrets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "regret", help="folder of the measurements")
    parser.add_argument("--cases", type=int, default=40)
    asked = parser.parse_args()
    lines = []
    for number in sorted(range(asked.cases), key=lambda number: number % 2):  # those of known tasks first
        lines.append(regrets(case(number), asked.out))
        print(*lines[-1].values(), flush=True)
        with (asked.out / "regret.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list(lines[0]))
            table.writeheader()
            table.writerows(lines)
    summary(lines)


if __name__ == "__main__":
    main()
