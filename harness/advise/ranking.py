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
TIE = 0.05  # 95 % of 1000 pairs of equal repetitions differ by less (results/reference/gate-power/step_times.csv)
_SEEDS = 0.1  # as far as the seeds of a recording leave open what is faster, up to this
DISAGREES = 0.25  # on a busy host, emulations differ by up to a fifth in how much longer than simulated they take
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
    by_setting: dict[str, Evidence] = {}
    candidates = []
    for cell in cells:
        setting = identity(cell.kind, cell.params)
        if setting not in by_setting:
            by_setting[setting] = library.evidence(cell)
        candidates.append(Candidate(cell, by_setting[setting], law_s(cell)))
    return candidates


def law_s(cell: TrainingCell) -> float | None:
    """The step time by the law without stragglers, in seconds; None for algorithms that it does not describe."""
    if not cell.algorithm().promises.follows_law:
        return None
    return predict(replace(cell.law_inputs, step_cv=0.0)).step_time_s


def shortlist(candidates: Sequence[Candidate], most: int = MOST) -> list[Candidate]:
    """The candidates to simulate: all that can be advised with their fastest collectives, then the fastest others.

    Every family has at least one.
    """
    fastest = sorted(candidates, key=lambda candidate: (candidate.expected_s, candidate.cell.collective))
    first_s: dict[str, float] = {}
    of_setting: Counter[str] = Counter()
    chosen: list[Candidate] = []

    def choose(candidate: Candidate) -> None:
        of_setting[candidate.cell.label] += 1
        chosen.append(candidate)

    for candidate in fastest:
        near = candidate.expected_s <= _SLOWER * first_s.setdefault(candidate.cell.label, candidate.expected_s)
        advised = candidate.eligible and near and of_setting[candidate.cell.label] < _COLLECTIVES
        if advised or candidate.evidence.tier is Tier.NO_RISK:
            choose(candidate)
    for candidate in fastest:
        if candidate.cell.kind not in {member.cell.kind for member in chosen}:
            choose(candidate)
    for candidate in fastest:
        if len(chosen) < most and not of_setting[candidate.cell.label]:
            choose(candidate)
    return chosen


def sending_s(cell: TrainingCell) -> float:
    """Seconds of a step in which a worker sends its messages once, at the rate of the law; 0 without a rate."""
    law = cell.law_inputs
    return law.message_bytes * law.messages / law.period / (law.rate_bytes_per_s or math.inf)


def first(chosen: Iterable[Candidate]) -> list[Candidate]:
    """The settings that can be advised and have the least to send, to be simulated before the others."""
    by_label: dict[str, Candidate] = {}
    for candidate in sorted(
        (candidate for candidate in chosen if candidate.eligible), key=lambda candidate: sending_s(candidate.cell)
    ):
        by_label.setdefault(candidate.cell.label, candidate)
    return [*by_label.values()][:_FIRST]


def promising(chosen: Iterable[Candidate], simulated: Sequence[tuple[Candidate, float]]) -> list[Candidate]:
    """Those that are not hopeless by their bytes, and those with the mathematics of `ssgd`.

    On a slow link with loss a setting can take hours a step, which takes minutes to simulate, and the law does not know
    it. How much longer a step takes with the bytes is seen from those that were simulated first.

    Args:
        simulated: the first candidates, with their seconds of a step.
    """
    if len(simulated) < 2:
        return [*chosen]
    (light, least_s), *_, (heavy, most_s) = sorted(simulated, key=lambda candidate: sending_s(candidate[0].cell))
    more_s = sending_s(heavy.cell) - sending_s(light.cell)
    slope = max(0.0, most_s - least_s) / more_s if more_s > 0 else 0.0
    limit_s = (
        _HOPELESS * _MARGIN * min(took_s * (candidate.evidence.more_steps or 1.0) for candidate, took_s in simulated)
    )
    return [
        candidate
        for candidate in chosen
        if candidate.evidence.tier is Tier.NO_RISK or slope * sending_s(candidate.cell) <= limit_s
    ]


@dataclass(frozen=True)
class Measured:
    """A candidate with its measured step time.

    Attributes:
        step_time_s: simulated, or by the law on another network; longer or shorter if its emulation took more or less
            than that of other settings, by more than `DISAGREES`.
        emulated_s: as emulated, if it was.
        bytes_per_step: what a worker gave to collectives and peers in a step, as simulated; None if it was not.
    """

    candidate: Candidate
    step_time_s: float
    bytes_per_step: float | None = None
    emulated_s: float | None = None

    def as_emulated(self, seconds: float, usual: float) -> Measured:
        """The same after an emulation, which decides only where it disagrees with the simulation.

        A busy host makes all settings slower. Otherwise the order of settings that are as fast would change from one
        emulation to the next.

        Args:
            usual: the median of emulated over simulated times of the settings that could be advised.
        """
        more = seconds / self.step_time_s / usual
        return replace(
            self, step_time_s=self.step_time_s * (more if abs(more - 1) > DISAGREES else 1.0), emulated_s=seconds
        )

    @property
    def reported_s(self) -> float:
        """Seconds of a step that people are told: as emulated, else as simulated."""
        return self.emulated_s or self.step_time_s

    @property
    def to_target_s(self) -> float:
        """Seconds to the target, in units of the steps of `ssgd`; of one without evidence, seconds of a step."""
        return self.step_time_s * (self.candidate.evidence.more_steps or 1.0)

    @property
    def name(self) -> str:
        """The setting and its collective."""
        cell = self.candidate.cell
        return f"{cell.label} on {cell.collective}" if cell.algorithm().promises.follows_law else cell.label

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
    """In order of time to the target. Of equals the least stale comes first, then the one with the fewest bytes."""
    remaining = sorted(measured, key=lambda result: result.to_target_s)
    order: list[Measured] = []
    while remaining:
        first_of_equals = min(
            equals(remaining), key=lambda result: (result.staleness, result.vector_bytes_per_step, result.name)
        )
        order.append(first_of_equals)
        remaining.remove(first_of_equals)
    return order


def equals(measured: Sequence[Measured]) -> list[Measured]:
    """Those that take as long to the target as the fastest, within `TIE`, or within what its seeds leave open."""
    fastest = min(measured, key=lambda result: result.to_target_s)
    apart = max(TIE, min(_SEEDS, fastest.candidate.evidence.spread - 1))
    return [result for result in measured if result.to_target_s <= fastest.to_target_s * (1 + apart)]


def one_of_each(measured: Iterable[Measured]) -> list[Measured]:
    """The first of each setting: with its best collective."""
    by_label: dict[str, Measured] = {}
    for result in measured:
        by_label.setdefault(result.candidate.cell.label, result)
    return list(by_label.values())


def advisable(measured: Iterable[Measured]) -> list[Measured]:
    """Those whose accuracy is known and enough, in order."""
    return ranked(result for result in measured if result.candidate.eligible)


def without_risk(measured: Iterable[Measured]) -> list[Measured]:
    """Those with the mathematics of `ssgd`, in order."""
    return ranked(result for result in measured if result.candidate.evidence.tier is Tier.NO_RISK)
