"""How much slower the advised setting is than the best one, for a learning task that the library does not have.

    python benchmarks/regret.py [--out build/regret] [--networks 20] [--record]
    python benchmarks/regret.py --draw          draws what is recorded again

Networks and workloads are drawn at random. On each of them, every recorded task is held out in turn: the advice knows
the other recordings, and the truth is the one that is held out, with every setting of it on every collective. The
regret is the time to the target of the advice over that of the best setting, less 1. A setting that does not reach the
target has missed it. There are three baselines: always `ssgd` on its fastest collective; the evidence with the
step-time law, without a simulation; and always the same setting, which is the best on the other tasks, of those that
at least three of them have.

On as many other networks the task is not held out: the advice knows seeds 1 to 3 of the CNN and one seed of
stragglers, and the truth is other seeds of both. --record stores tables and figure in results/reference.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, median, quantiles
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "results" / "reference" / "regret"
sys.path.insert(0, str(ROOT))

from wanbench.harness.advise.candidates import candidates  # noqa: E402
from wanbench.harness.advise.evidence import Library, source  # noqa: E402
from wanbench.harness.advise.question import Limits, Question, ask  # noqa: E402
from wanbench.harness.advise.ranking import Candidate, advisable, law_s, shortlist, weighed  # noqa: E402
from wanbench.harness.advise.ranking import Measured as Timed  # noqa: E402
from wanbench.harness.advise.search import Options, rows_of_plan  # noqa: E402
from wanbench.harness.learning.design import BASE, REFERENCE  # noqa: E402
from wanbench.harness.learning.recording import Recording, recorded  # noqa: E402
from wanbench.harness.learning.summary import percent  # noqa: E402
from wanbench.harness.plan.cell import TrainingCell  # noqa: E402
from wanbench.harness.plan.plan import Plan  # noqa: E402
from wanbench.harness.results.store import RunFolder  # noqa: E402
from wanbench.harness.show.figures.drawing import save  # noqa: E402
from wanbench.harness.show.figures.layout import Panels, logarithmic  # noqa: E402
from wanbench.harness.show.figures.style import PAGE_IN, SIMULATED, wanbench_style  # noqa: E402
from wanbench.harness.show.grid import markdown  # noqa: E402

_ADVISED_SEEDS, _STRAGGLERS = (1, 2, 3), 101
_EQUAL = 0.01  # as `advise` ranks
_SLOWER = 1.1  # of two collectives, one this much slower by the law is not simulated
_LEAST_TASKS = 3
_KNOWN = "known"
TASKS = {
    "mnist": "a CNN",
    "residual": "a residual network with batch norm",
    "recurrent": "a recurrent network",
    "gpt": "a transformer with AdamW",
    "gpt-sgd": "a transformer with momentum SGD",
}
MISSED, NOT_RECORDED = "missed", "not recorded"
Place = tuple[str, str]
"""A setting and its collective."""
Times = Mapping[Place, float]
"""Seconds to the target in units of the steps of `ssgd`; infinite for a setting that misses it."""


@dataclass(frozen=True)
class Network:
    """A network and a workload."""

    number: int
    workers: int
    rtt_ms: float
    mbit: float
    params: int
    step_ms: float
    step_cv: float

    def question(self, optimizer: str = "sgd") -> Question:
        """What is asked there."""
        network: dict[str, Any] = {"profile": "uniform", "rtt": f"{self.rtt_ms}ms", "rate": f"{self.mbit}Mbit"}
        network |= {"tcp": {"congestion": "cubic"}}
        workload = f"params={self.params},tensors=8,step_time={self.step_ms}ms,step_cv={self.step_cv}"
        question = ask(network, workload, self.workers, Limits())
        return question if optimizer == "sgd" else question.changed({"train": {"optimizer": optimizer}})


def drawn(number: int) -> Network:
    """Draw a network; the same number is always the same."""
    random = Random(f"regret {number}")

    def between(low: float, high: float) -> float:
        return float(f"{low * (high / low) ** random.random():.3g}")

    return Network(
        number,
        random.randint(2, 8),
        between(5, 300),
        between(10, 10_000),
        int(between(1e5, 2e6)),
        between(20, 500),
        random.choice([0.02, 0.02, 0.3, 0.8]),
    )


@dataclass(frozen=True)
class Case:
    """A network with a task: what the advice knows, and the truth."""

    network: Network
    task: str
    known: tuple[Recording, ...]
    truth: Recording

    @property
    def optimizer(self) -> str:
        """The optimizer of the task."""
        return str(self.truth.about["train"].get("optimizer", "sgd"))


def cases(networks: int) -> list[Case]:
    """Every task held out on the networks with odd numbers, and a known task on those with even ones."""
    of = {recording.design: recording for recording in recorded() if recording.design in TASKS}
    known, truth = (with_seeds(of["mnist"], advised=advised) for advised in (True, False))
    held_out = [
        Case(drawn(number), task, tuple(of[other] for other in of if other != task), of[task])
        for number in range(1, 2 * networks, 2)
        for task in of
    ]
    return [*held_out, *(Case(drawn(number), _KNOWN, (known,), truth) for number in range(0, 2 * networks, 2))]


def with_seeds(recording: Recording, *, advised: bool) -> Recording:
    """A recording with the seeds that the advice knows, or with the others."""
    known = [each for each in recording.trajectories if (each.seed in _ADVISED_SEEDS) == advised]
    return replace(recording, trajectories=known)


@dataclass(frozen=True)
class Measured:
    """A case with the choices of the advice and of the law, and the time that each setting takes in truth."""

    case: Case
    choices: Mapping[str, Place]
    times: Times
    undecided: str

    def best(self, label: str) -> Place:
        """A setting on its fastest collective."""
        return min((where for where in self.times if where[0] == label), key=self.times.__getitem__)

    def has(self, label: str) -> bool:
        """Whether the truth has this setting."""
        return any(setting == label for setting, _ in self.times)

    def regret(self, place: Place) -> float | str:
        """Of a choice; or why it has none."""
        if place not in self.times:
            return NOT_RECORDED
        least = min(self.times.values())
        return round(self.times[place] / least - 1, 5) if math.isfinite(self.times[place]) else MISSED


def measured(case: Case, out: Path) -> Measured:
    """Choose as `advise` does, among what the case knows, and simulate the truth."""
    question = case.network.question(case.optimizer)
    folder = out / (f"network-{case.network.number:03d}" + ("" if case.optimizer == "sgd" else f"-{case.optimizer}"))
    library = Library(case.known, case.task != _KNOWN, question.limits)
    cells, _ = candidates(question, library.settings)
    every = weighed(cells, library)
    eligible = [candidate for candidate in every if candidate.eligible]
    took = simulated(question, [candidate.cell for candidate in shortlist(eligible, 0)], folder / "advice")
    advised = advisable(Timed(each, took[each.cell.key]) for each in eligible if each.cell.key in took)[0]
    law = min((candidate for candidate in eligible if candidate.law_s), key=lambda candidate: candidate.expected_s)
    choices = {"advice": place(advised.candidate.cell), "law": place(law.cell)}
    there = question.changed({"run.seed": _STRAGGLERS})
    truth = times_of(case.truth, there, {*choices.values()}, folder / "truth")
    return Measured(case, choices, truth, undecided(every, law.expected_s))


def place(cell: TrainingCell) -> Place:
    """Where a cell stands in the tables."""
    return cell.label, cell.collective


def undecided(every: Iterable[Candidate], advised_s: float) -> str:
    """The fastest setting, by the law, that no recording speaks against, and the seeds that would decide."""
    faster = [each for each in every if each.evidence.undecided and each.law_s is not None and each.law_s < advised_s]
    fastest = min(faster, key=lambda candidate: candidate.expected_s, default=None)
    return "" if fastest is None else f"{fastest.cell.label}{fastest.evidence.undecided}"


def times_of(truth: Recording, question: Question, chosen: Container[Place], folder: Path) -> dict[Place, float]:
    """Simulate each recorded setting on its fastest collectives by the law, and what was chosen."""
    cells, _ = candidates(question, Library((truth,), False, question.limits).settings)
    steps = more_steps(truth, question, cells)
    law = {cell.key: law_s(cell) or 0.0 for cell in cells}
    least = {cell.label: min(law[other.key] for other in cells if other.label == cell.label) for cell in cells}
    near = [
        cell
        for cell in cells
        if cell.label in steps and (law[cell.key] <= _SLOWER * least[cell.label] or place(cell) in chosen)
    ]
    took = simulated(question, near, folder)
    return {place(cell): took[cell.key] * steps[cell.label] for cell in near if cell.key in took}


def simulated(question: Question, cells: Sequence[TrainingCell], folder: Path) -> dict[str, float]:
    """Seconds of a step by the key of the cell."""
    plan = Plan(question.spec, (question.one_worker, *cells), part=True)
    return rows_of_plan(plan, RunFolder(folder), Options(folder, 0, say=lambda _: None))


def more_steps(truth: Recording, question: Question, cells: Iterable[TrainingCell]) -> dict[str, float]:
    """Steps to the target as a multiple of those of `ssgd`, by setting; infinite for one that misses it.

    Without settings whose training depends on the network: they were not recorded on this one.
    """
    library = Library((truth,), False, question.limits)
    steps = {REFERENCE: 1.0}
    for cell in cells:
        for known in library.evidence(cell).sources:
            steps[cell.label] = known.more_steps or math.inf
    return steps


def fixed(own: Measured, every: Iterable[Measured]) -> str | None:
    """The setting that misses the target least often on the other tasks, with the least mean regret of these.

    None for the known task. Only settings that were recorded for at least three of the others, and for this task too,
    so that there is a regret.
    """
    if own.case.task == _KNOWN:
        return None
    others = [each for each in every if each.case.task not in {_KNOWN, own.case.task}]
    scores: dict[str, tuple[int, float]] = {}
    for label in sorted({label for label, _ in own.times}):
        having = [each for each in others if each.has(label)]
        regrets = [each.regret(each.best(label)) for each in having]
        reached = [regret for regret in regrets if isinstance(regret, float)]
        if reached and len({each.case.task for each in having}) >= _LEAST_TASKS:
            scores[label] = len(regrets) - len(reached), fmean(reached)
    return min(scores, key=scores.__getitem__)


def line(measured: Measured, always: str | None) -> dict[str, Any]:
    """A line of the table of all cases.

    Args:
        always: the setting of the last baseline.
    """
    times = measured.times
    choices = {**measured.choices, "ssgd": measured.best(REFERENCE)}
    if always is not None:
        choices["always"] = measured.best(always)
    best = min(times, key=times.__getitem__)
    return {
        **vars(measured.case.network),
        "task": measured.case.task,
        "settings": len(times),
        "best": " on ".join(best),
        "advised": " on ".join(measured.choices["advice"]),
        "fixed": always or "",
        **{name: measured.regret(choices[name]) if name in choices else "" for name, _ in _CHOICES},
        "undecided": measured.undecided,
    }


_CHOICES = (
    ("advice", "the advice"),
    ("ssgd", "always `ssgd`, on its fastest collective"),
    ("law", "the evidence and the law, not simulated"),
    ("always", "always the best setting on the other tasks"),
)
_LOOKS: Mapping[str, Mapping[str, Any]] = {  # widths: equal curves stay visible; dashes are equally long
    name: {"color": colour, "linewidth": width, "linestyle": (0, tuple(part / width for part in SIMULATED[1]))}
    for name, colour, width in (
        ("advice", "#4477AA", 4.0), ("ssgd", "#CCBB44", 2.5), ("law", "#EE6677", 1.0), ("always", "#228833", 1.0),
    )
}  # fmt: skip
_GROUPS = {**{task: f"held out: {title}" for task, title in TASKS.items()}, _KNOWN: "a CNN that is known"}
_LEAST_PCT = 0.1


def numbers(lines: Iterable[Mapping[str, Any]], column: str) -> list[float]:
    """The regrets in a column, from the smallest, without those that are a reason."""
    return sorted(line[column] for line in lines if isinstance(line[column], float))


def against_baselines(lines: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """On how many networks the advice takes less time than every baseline, as much (within 1 %), or more."""
    counts: Counter[str] = Counter()
    for line in lines:
        own = 1 + line["advice"] if isinstance(line["advice"], float) else math.inf
        least = 1 + min(line[name] for name in ("ssgd", "law", "always") if isinstance(line[name], float))
        equal = own <= least * (1 + _EQUAL) and least <= own * (1 + _EQUAL)
        counts["equal" if equal else "less" if own < least else "more"] += 1
    return counts


def summary(lines: Sequence[Mapping[str, Any]]) -> str:
    """The table: median, 95th percentile, the cases without a regret by reason, and the advice against the others."""
    body = []
    for task, title in _GROUPS.items():
        some = [line for line in lines if line["task"] == task]
        for name, text in _CHOICES if some else ():
            if all(line[name] == "" for line in some):
                continue
            known = numbers(some, name)
            far = f"{quantiles(known, n=20, method='inclusive')[-1]:.1%}" if len(known) > 1 else ""
            why = Counter(line[name] for line in some if isinstance(line[name], str))
            counts = against_baselines(some)
            compared = f"{counts['less']} less, {counts['equal']} equal, {counts['more']} more"
            body.append(
                [
                    f"{len(some)}: {title}" if name == "advice" else "",
                    text,
                    f"{median(known):.1%}" if known else "",
                    far,
                    ", ".join(f"{count} {reason}" for reason, count in why.items()),
                    compared if name == "advice" else "",
                ]
            )
    header = ["networks", "choice", "median", "95th percentile", "without a regret", "time, against the best baseline"]
    return markdown(header, body, marked=True)


def evidence_table() -> str:
    """What each recording says of the settings that several have, at the allowed drop."""
    of = {recording.design: recording for recording in recorded() if recording.design in TASKS}
    names = Counter(name for each in of.values() for condition, name in each.by_setting if condition == BASE)
    body = [
        [f"`{name}`", *(_said(each, name) for each in of.values())]
        for name, count in names.items()
        if count >= len(of) - 1 and name != REFERENCE
    ]
    return markdown(["setting", *(f"{TASKS[design]} (`{design}`)" for design in of)], body, marked=True)


def _said(recording: Recording, name: str) -> str:
    if (BASE, name) not in recording.by_setting:
        return "-"
    known = source(recording, BASE, name, Limits(), proxy=True)
    if known is None:
        return "diverged"
    against = known.difference
    points = percent(against.mean, against.high, signed=True)
    more = "over 100" if known.deciding_seeds is None else known.deciding_seeds
    return {True: f"**{points}**", False: points, None: f"{points}: open, {more} seeds"}[known.holds]


@wanbench_style()
def drawn_regrets(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """For each choice, the share of the networks with at most this regret; the others never get there."""
    entries = {text.replace("`ssgd`", "SSGD"): Line2D([], [], **_LOOKS[name]) for name, text in _CHOICES}
    tasks = [task for task in _GROUPS if any(line["task"] == task for line in lines)]
    about = (
        "regret: time to the target over that of the best setting, less 1 (simulated); regrets below "
        f"{_LEAST_PCT} % are drawn at {_LEAST_PCT} %; a curve ends below 100 % where the choice misses the target; the "
        "last panel's task is known, each other is held out; a setting is advised only if every recording but that of "
        "the task shows that it keeps to the allowed drop of one point of accuracy"
    )
    sheet = Panels(
        PAGE_IN, _title(lines), about, entries,
        count=len(tasks), across=3, panel_in=1.5, left_in=0.5, right_in=0.2, gap_in=0.35,
    )  # fmt: skip
    largest = max(_EQUAL, *(regret for name in _LOOKS for regret in numbers(lines, name)))
    most_pct = 100 * 10 ** math.ceil(math.log10(largest))
    for panel, task in enumerate(tasks):
        some = [line for line in lines if line["task"] == task]
        axes = sheet.panel(panel, _GROUPS[task].removeprefix("held out: "))
        for name, look in _LOOKS.items():
            if all(line[name] == "" for line in some):
                continue
            known = [100 * regret for regret in numbers(some, name)]
            shares = [100 * (index + 1) / len(some) for index in range(len(known))]
            values = [_LEAST_PCT, *(max(_LEAST_PCT, value) for value in known), most_pct]
            axes.step(values, [0, *shares, shares[-1] if shares else 0], where="post", **look)
        logarithmic(axes.xaxis, _LEAST_PCT, most_pct)
        ticks = axes.get_xticks()
        axes.set_xticks(ticks, [f"{'≤' if tick == _LEAST_PCT else ''}{tick:g}" for tick in ticks])
        axes.set_ylim(-2, 102)
        sheet.label(panel, "regret (%)", "networks (%)")
    return sheet.figure


def draw(folder: Path) -> None:
    """Draw the table of a folder, in the folder."""
    with (folder / "regret.csv").open(newline="") as file:
        lines = [{**line, **{name: _read(line[name]) for name, _ in _CHOICES}} for line in csv.DictReader(file)]
    figure = drawn_regrets(lines)
    for form in ("svg", "png"):
        print(save(figure, folder / f"regret.{form}"))


def _read(text: str) -> float | str:
    """A regret, or the reason why there is none."""
    try:
        return float(text)
    except ValueError:
        return text


def _title(lines: Sequence[Mapping[str, Any]]) -> str:
    held_out = [line for line in lines if line["task"] != _KNOWN]
    missed = sum(line["advice"] == MISSED for line in held_out)
    counts = against_baselines(held_out)
    return (
        f"For a task that is held out, the advice missed the target in {missed} of {len(held_out)} cases; against the "
        f"best baseline it takes less time in {counts['less']}, as much in {counts['equal']}, more in {counts['more']}"
        "\nnetworks and workloads drawn at random, 2 to 8 workers"
    )


def main() -> None:
    """Measure the cases, and print the regrets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "regret", help="folder of the measurements")
    parser.add_argument("--networks", type=int, default=20, help="with a task held out, and as many with a known one")
    parser.add_argument("--record", action="store_true", help="store tables and figure in results/reference/regret")
    parser.add_argument("--draw", action="store_true", help="measure nothing: draw what is recorded")
    asked = parser.parse_args()
    if asked.draw:
        draw(RECORDED)
        return
    to = RECORDED if asked.record else asked.out
    to.mkdir(parents=True, exist_ok=True)
    every = []
    for case in cases(asked.networks):
        every.append(measured(case, asked.out))
        print(case.network.number, case.task, every[-1].choices, flush=True)
    lines = [line(each, fixed(each, every)) for each in every]
    with (to / "regret.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows(lines)
    (to / "regret.md").write_text(summary(lines))
    (to / "settings.md").write_text(evidence_table())
    draw(to)
    print(summary(lines), evidence_table(), sep="\n", end="")


if __name__ == "__main__":
    main()
