"""A design that measures what the fastest settings cost with one's own model, within a budget of minutes."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, zip_longest

from wanbench.harness.advise.evidence import FEWEST_SEEDS
from wanbench.harness.advise.question import REFERENCE, Question
from wanbench.harness.advise.ranking import Measured, advisable, without_risk
from wanbench.harness.learning import design as designs
from wanbench.harness.learning.campaign import Rates, grid, spec_of, trials, tuning
from wanbench.harness.learning.cost import Price, measured
from wanbench.harness.learning.design import Design

FILE = "learn.toml"
_SETTINGS, _OF_A_KIND = 6, 2
_RATES = {"sgd": [0.0125, 0.025, 0.05, 0.1, 0.2, 0.4], "adamw": [0.0003, 0.001, 0.003, 0.01]}
_OUTER_RATES = [0.4, 0.7, 1.0]
_FEWEST_STEPS, _MOST_STEPS, _EVALUATIONS = 100, 2000, 10
_FASTER = 0.95  # of the time of `ssgd`: others are not worth a training


@dataclass(frozen=True)
class Proposal:
    """A design, and the minutes that it takes on this host."""

    design: Design
    minutes: float


def proposal(question: Question, simulated: Iterable[Measured], minutes: float) -> Proposal | None:
    """A design for a budget, with settings that are faster than `ssgd`.

    None if the workload has no data or no accuracy, if no setting is faster, or if not even one fits in.

    Raises:
        SpecError, HostError: the model cannot be measured.
    """
    settings = _faster(simulated)
    if not settings or not question.reference.workload.learns:
        return None
    shortest = _design(question, settings, _FEWEST_STEPS)
    price = measured(next(tuning(shortest, shortest.base)).cell)
    if not price.evaluation_s:  # no accuracy to compare
        return None
    while settings:
        times = minutes / _minutes(_design(question, settings, _FEWEST_STEPS), price)
        if times >= 1:
            steps = min(_MOST_STEPS, int(_FEWEST_STEPS * times) // _EVALUATIONS * _EVALUATIONS)
            design = _design(question, settings, steps)
            return Proposal(design, _minutes(design, price))
        settings.pop()
    return None


def _faster(simulated: Iterable[Measured]) -> list[Measured]:
    """Settings that are faster than `ssgd`: in turn the best of those that a proxy advises, and the fastest others.

    At most two are of a family. Training that depends on the network is left out: it would have to run on it.
    """
    every = list(simulated)
    ssgd_s = without_risk(every)[0].step_time_s
    worth = [
        result
        for result in every
        if result.step_time_s < _FASTER * ssgd_s and result.candidate.cell.algorithm().promises.repeats
    ]
    rest = sorted((result for result in worth if not result.candidate.eligible), key=lambda result: result.step_time_s)
    by_label: dict[str, Measured] = {}
    kinds: Counter[str] = Counter()
    for result in filter(None, chain.from_iterable(zip_longest(advisable(worth), rest))):
        cell = result.candidate.cell
        if cell.label not in by_label and kinds[cell.kind] < _OF_A_KIND and len(by_label) < _SETTINGS:
            kinds[cell.kind] += 1
            by_label[cell.label] = result
    return [*by_label.values()]


def _design(question: Question, settings: Iterable[Measured], steps: int) -> Design:
    spec = question.spec.to_dict()
    train = {key: value for key, value in spec["train"].items() if key not in {"until", "eval_every"}}
    cells = [result.candidate.cell for result in settings]
    return designs.parse(
        {
            "schema": 1,
            "name": spec["name"].removeprefix("advise").strip("._-") or "mine",
            "description": "The settings that are fastest on the network, with your own model.",
            "workers": question.workers,
            "seeds": FEWEST_SEEDS,
            "workload": spec["workload"],
            "network": {"profile": "uniform", "rtt": "1ms"},
            "train": {
                **train,
                "schedule": "cosine",
                "warmup_steps": steps // 20,
                "until": f"{steps} steps",
                "eval_every": steps // _EVALUATIONS,
            },
            "tune": {"lr": _RATES[question.reference.train.optimizer], "outer_lr": _OUTER_RATES},
            "settings": {REFERENCE: {}} | {cell.label: {"kind": cell.kind, **cell.params} for cell in cells},
        },
        question.where,
    )


def _minutes(design: Design, price: Price) -> float:
    """Of tuning, then of all seeds, on the processors of this host. Trajectories cost as much as the reference's."""
    tried = sum(len(grid(design, design.base, setting)) for setting in design.settings)
    rates = {REFERENCE: [Rates(design.tune.lr[0])]}
    tuned, final = (next(tuning(design, design.base)), next(trials(spec_of(design), design, design.base, rates)))
    processors, kept = os.cpu_count() or 1, design.seeds * len(design.settings)
    return sum(-(-count // processors) * price.of(trial.cell) for count, trial in ((tried, tuned), (kept, final))) / 60
