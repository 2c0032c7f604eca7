"""Candidates in order: those that are worth simulating, by the step-time law, and those that were measured.

Measured ones are in order of their time to equal accuracy; of equals the least stale is the first, then the one with
the fewest bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wanbench.harness.advise.candidates import identity
from wanbench.harness.advise.evidence import Evidence, Library, Tier
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.law import predict

_COLLECTIVES = 2  # of a setting that can be advised
_FIRST = 3
_HOPELESS = 5.0  # times as long as the best
_MARGIN = 2.0  # seconds a byte differ by less between settings on the same network
_SLOWER = 1.5  # a second collective is simulated only if the law has it within this factor
TIE = 0.01
MOST = 50


@dataclass(frozen=True)
class Candidate:
    """A cell, what is known of its accuracy, and its step time by the law.

    Attributes:
        law_s: also where the law is not precise enough to publish; None for algorithms that it does not describe.
            Stragglers are left out, because they need a simulation each.
    """

    cell: TrainingCell
    evidence: Evidence
    law_s: float | None

    @property
    def eligible(self) -> bool:
        """Whether it can be advised: its accuracy is known, and enough."""
        return self.evidence.more_steps is not None

    @property
    def expected_s(self) -> float:
        """The law's step time, times the steps that it needs if they are known."""
        return (self.law_s or 0.0) * (self.evidence.more_steps or 1.0)


def weighed(cells: Iterable[TrainingCell], library: Library) -> list[Candidate]:
    """Every cell with its evidence and its step time by the law."""
    known: dict[str, Evidence] = {}
    found = []
    for cell in cells:
        setting = identity(cell.kind, cell.params)
        if setting not in known:
            known[setting] = library.evidence(cell)
        found.append(Candidate(cell, known[setting], law_s(cell)))
    return found


def law_s(cell: TrainingCell) -> float | None:
    """The step time by the law without stragglers, in seconds; None for algorithms that it does not describe."""
    if not cell.algorithm().promises.lawful:
        return None
    return predict(replace(cell.law_inputs, step_cv=0.0)).step_time_s


def shortlist(candidates: Sequence[Candidate], most: int = MOST) -> list[Candidate]:
    """The candidates to simulate: all that can be advised with their fastest collectives, then the fastest others.

    Every family has at least one.
    """
    fastest = sorted(candidates, key=lambda each: (each.expected_s, each.cell.collective))
    first_s: dict[str, float] = {}
    of_setting: Counter[str] = Counter()
    chosen: list[Candidate] = []

    def choose(each: Candidate) -> None:
        of_setting[each.cell.label] += 1
        chosen.append(each)

    for each in fastest:
        near = each.expected_s <= _SLOWER * first_s.setdefault(each.cell.label, each.expected_s)
        some = each.eligible and near and of_setting[each.cell.label] < _COLLECTIVES
        if some or each.evidence.tier is Tier.NO_RISK:
            choose(each)
    for each in fastest:
        if each.cell.kind not in {one.cell.kind for one in chosen}:
            choose(each)
    for each in fastest:
        if len(chosen) < most and not of_setting[each.cell.label]:
            choose(each)
    return chosen


def sending_s(cell: TrainingCell) -> float:
    """Seconds of a step in which a worker sends its messages once, at the rate of the law; 0 without a rate."""
    law = cell.law_inputs
    return law.message_bytes * law.messages / law.period / (law.rate_bytes_per_s or math.inf)


def first(chosen: Iterable[Candidate]) -> list[Candidate]:
    """The settings that can be advised and have the least to send, to be simulated before the others."""
    found: dict[str, Candidate] = {}
    for each in sorted((each for each in chosen if each.eligible), key=lambda each: sending_s(each.cell)):
        found.setdefault(each.cell.label, each)
    return [*found.values()][:_FIRST]


def promising(chosen: Iterable[Candidate], simulated: Sequence[tuple[Candidate, float]]) -> list[Candidate]:
    """Those that are not hopeless by their bytes, and those with the mathematics of `ssgd`.

    On a slow link with loss a setting can take hours a step, which takes minutes to simulate, and the law does not know
    it. How much longer a step takes with the bytes is seen from those that were simulated first.

    Args:
        simulated: the first candidates, with their seconds of a step.
    """
    if len(simulated) < 2:
        return [*chosen]
    (light, least_s), *_, (heavy, most_s) = sorted(simulated, key=lambda each: sending_s(each[0].cell))
    more_s = sending_s(heavy.cell) - sending_s(light.cell)
    slope = max(0.0, most_s - least_s) / more_s if more_s > 0 else 0.0
    limit_s = _HOPELESS * _MARGIN * min(took_s * (each.evidence.more_steps or 1.0) for each, took_s in simulated)
    return [each for each in chosen if each.evidence.tier is Tier.NO_RISK or slope * sending_s(each.cell) <= limit_s]


@dataclass(frozen=True)
class Measured:
    """A candidate with its measured step time.

    Attributes:
        step_time_s: simulated, emulated, or by the law on another network.
        bytes_per_step: what a worker gave to collectives and peers in a step, as simulated; None if it was not.
    """

    candidate: Candidate
    step_time_s: float
    bytes_per_step: float | None = None

    @property
    def to_target_s(self) -> float:
        """Seconds to the target, in units of the steps of `ssgd`; of one without evidence, seconds of a step."""
        return self.step_time_s * (self.candidate.evidence.more_steps or 1.0)

    @property
    def name(self) -> str:
        """The setting and its collective."""
        cell = self.candidate.cell
        return f"{cell.label} on {cell.collective}" if cell.algorithm().promises.lawful else cell.label

    @property
    def staleness(self) -> int:
        """Steps from a gradient to the use of its average, at most."""
        algorithm = self.candidate.cell.algorithm()
        return algorithm.delay_steps + algorithm.period_steps - 1

    @property
    def vector_bytes_per_step(self) -> float:
        """Bytes of its messages in a step: what it sends is about in proportion."""
        cell = self.candidate.cell
        return cell.messages_per_sync * cell.message_bytes / cell.algorithm().period_steps


def ranked(measured: Iterable[Measured]) -> list[Measured]:
    """In order of time to the target; those within 1 % of the first of a group are equals."""
    left = sorted(measured, key=lambda each: each.to_target_s)
    found: list[Measured] = []
    while left:
        equals = [each for each in left if each.to_target_s <= left[0].to_target_s * (1 + TIE)]
        equals.sort(key=lambda each: (each.staleness, each.vector_bytes_per_step, each.name))
        found.append(equals[0])
        left.remove(equals[0])
    return found


def one_of_each(measured: Iterable[Measured]) -> list[Measured]:
    """The first of each setting: with its best collective."""
    found: dict[str, Measured] = {}
    for each in measured:
        found.setdefault(each.candidate.cell.label, each)
    return list(found.values())


def advisable(measured: Iterable[Measured]) -> list[Measured]:
    """Those whose accuracy is known and enough, in order."""
    return ranked(each for each in measured if each.candidate.eligible)


def without_risk(measured: Iterable[Measured]) -> list[Measured]:
    """Those with the mathematics of `ssgd`, in order."""
    return ranked(each for each in measured if each.candidate.evidence.tier is Tier.NO_RISK)
