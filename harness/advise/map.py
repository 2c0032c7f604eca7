"""The best setting over round-trip time and rate, by the law, corrected by simulations on a coarser grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wanbench.harness.advise.candidates import candidates, reference_on_gloo, settings
from wanbench.harness.advise.evidence import Library
from wanbench.harness.advise.question import Question
from wanbench.harness.advise.ranking import Measured, advisable
from wanbench.harness.advise.search import Options, rows_of_plan
from wanbench.harness.advise.shortlist import Candidate, weighed
from wanbench.harness.plan.cell import Cell, TrainingCell
from wanbench.harness.plan.law import PredictInputs, one_shot_bytes, predict
from wanbench.harness.plan.plan import Plan
from wanbench.harness.results.store import RunFolder
from wanbench.netprofiles import Delay, Rate

_COLUMNS, _ROWS = 60, 40
_COARSE_COLUMNS, _COARSE_ROWS = 6, 5
_SIMULATED = 3  # settings at each point of the coarse grid
_MATTERS = 1.1  # a setting of unknown accuracy that is faster by less is not worth a mark


@dataclass(frozen=True)
class Point:
    """One network of the map.

    Attributes:
        name: of the best setting with enough accuracy. gain: time of `ssgd` on gloo over its time to the target.
        unknown: whether a setting of unknown accuracy has steps that are over a tenth shorter.
    """

    rtt_ms: float
    mbit: float
    name: str
    gain: float
    unknown: bool


@dataclass(frozen=True)
class Map:
    """The points, row by row from the lowest rate, and what they are about.

    Attributes:
        kinds: the family of each setting by its name in the points. simulated: how many repetitions correct the law.
        marked: whether the question's network is the user's.
    """

    question: Question
    library: Library
    rtts_ms: tuple[float, ...]
    mbits: tuple[float, ...]
    points: tuple[Point, ...]
    kinds: Mapping[str, str]
    simulated: int
    marked: bool


@dataclass(frozen=True)
class _Scaled:
    """A candidate whose law can be evaluated on any uniform network."""

    candidate: Candidate
    inputs: PredictInputs

    @classmethod
    def of(cls, candidate: Candidate) -> _Scaled:
        return cls(candidate, candidate.cell.law_inputs)

    def seconds(self, rtt: float, rate: float) -> float:
        """The law's step time, with the round trip and the rate multiplied."""
        assert self.inputs.rate_bytes_per_s is not None
        there = replace(
            self.inputs, rtt_s=self.inputs.rtt_s * rtt, rate_bytes_per_s=self.inputs.rate_bytes_per_s * rate
        )
        return predict(replace(there, one_shot_bytes=one_shot_bytes(there))).step_time_s


def spaced(low: float, high: float, count: int) -> tuple[float, ...]:
    """Numbers at equal ratios."""
    return tuple(low * (high / low) ** (index / (count - 1)) for index in range(count))


class Correction:
    """Simulated over predicted step times at some networks; elsewhere that of the nearest one where both are known."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[tuple[float, float, float]]] = {}

    def learn(self, cell: TrainingCell, rtt_ms: float, mbit: float, ratio: float) -> None:
        """Remember a ratio."""
        self._known.setdefault((cell.label, cell.collective), []).append((math.log(rtt_ms), math.log(mbit), ratio))

    def at(self, cell: TrainingCell, rtt_ms: float, mbit: float) -> float:
        """The ratio on a network: the mean of the known ones, weighted by the inverse square of their distance."""
        known = self._known.get((cell.label, cell.collective))
        if not known:
            return 1.0
        x, y = math.log(rtt_ms), math.log(mbit)
        weights = [1 / ((x - a) ** 2 + (y - b) ** 2 + 1e-6) for a, b, _ in known]
        return sum(weight * ratio for weight, (_, _, ratio) in zip(weights, known, strict=True)) / sum(weights)


def draw_up(question: Question, library: Library, rtts: tuple[float, float], rates: tuple[float, float],
            options: Options, *, marked: bool = False) -> Map:  # fmt: skip
    """Compute a map around a question on a uniform network.

    Args:
        rtts: smallest and largest round trip in ms. rates: lowest and highest rate in Mbit/s.
    """
    cells, _ = candidates(question, settings(library.settings))
    scaled = [_Scaled.of(each) for each in weighed(cells, library) if each.law_s is not None]
    known = [each for each in scaled if each.candidate.eligible]
    unknown = _fastest_of_a_kind([each for each in scaled if not each.candidate.evidence.sources
                                  and not each.candidate.eligible])  # fmt: skip
    correction = Correction()
    simulated = _correct(question, known, rtts, rates, correction, options)
    gloo = next(each for each in known if each.candidate.cell.key == reference_on_gloo(question).key)
    grid = spaced(*rtts, _COLUMNS), spaced(*rates, _ROWS)
    points = tuple(
        _point(question, known, unknown, gloo, rtt_ms, mbit, correction) for mbit in grid[1] for rtt_ms in grid[0]
    )
    kinds = {Measured(each.candidate, 0.0).name: each.candidate.cell.kind for each in known}
    return Map(question, library, *grid, points, kinds, simulated, marked)


def _fastest_of_a_kind(unknown: Iterable[_Scaled]) -> list[_Scaled]:
    """One setting of unknown accuracy for each number of bytes, delay and period: others take as long."""
    found: dict[tuple[Any, ...], _Scaled] = {}
    for each in unknown:
        inputs = each.inputs
        found.setdefault((inputs.message_bytes, inputs.messages, inputs.delay, inputs.period, inputs.collective), each)
    return list(found.values())


def _measured_at(question: Question, each: _Scaled, rtt_ms: float, mbit: float, ratio: float) -> Measured:
    base = question.spec.network
    assert base.rtt is not None
    assert base.rate is not None
    return Measured(each.candidate, ratio * each.seconds(rtt_ms / base.rtt.ms, mbit / base.rate.mbit))


def _point(question: Question, known: Sequence[_Scaled], unknown: Sequence[_Scaled], gloo: _Scaled, rtt_ms: float,
           mbit: float, correction: Correction) -> Point:  # fmt: skip
    def at(each: _Scaled) -> Measured:
        return _measured_at(question, each, rtt_ms, mbit, correction.at(each.candidate.cell, rtt_ms, mbit))

    best = advisable(map(at, known))[0]
    faster = min((at(each).step_time_s for each in unknown), default=math.inf)
    baseline = at(gloo).step_time_s
    return Point(rtt_ms, mbit, best.name, baseline / best.to_target_s, best.step_time_s > _MATTERS * faster)


def _correct(question: Question, known: Sequence[_Scaled], rtts: tuple[float, float], rates: tuple[float, float],
             correction: Correction, options: Options) -> int:  # fmt: skip
    """Simulate the first settings, and `ssgd` on gloo, at the points of a coarse grid. Return how many."""
    gloo = reference_on_gloo(question)
    wanted: dict[str, tuple[_Scaled, Cell, float, float]] = {}
    for mbit in spaced(*rates, _COARSE_ROWS):
        for rtt_ms in spaced(*rtts, _COARSE_COLUMNS):
            network = {"network.rtt": str(Delay.from_ms(rtt_ms)), "network.rate": str(Rate.from_mbit(mbit))}
            there = question.changed(network)
            order = advisable(_measured_at(question, each, rtt_ms, mbit, 1.0) for each in known)
            first = {id(each.candidate) for each in order[:_SIMULATED]}
            for each in known:
                cell = each.candidate.cell
                if id(each.candidate) in first or cell.key == gloo.key:
                    axes = {**cell.axes, "rtt": network["network.rtt"], "rate": network["network.rate"]}
                    moved = replace(cell, network=there.reference.network, axes=axes)
                    wanted[moved.key] = each, moved, rtt_ms, mbit
    cells = [question.one_worker, *(cell for _, cell, _, _ in wanted.values())]
    folder = RunFolder(options.out / f"{question.spec.name}-map"[:80])
    rows = rows_of_plan(Plan(question.spec, tuple(cells)), folder, options)
    for key, (each, _, rtt_ms, mbit) in wanted.items():
        if key in rows:
            law = _measured_at(question, each, rtt_ms, mbit, 1.0).step_time_s
            correction.learn(each.candidate.cell, rtt_ms, mbit, rows[key] / law)
    return len(rows)


def points_as_rows(found: Map) -> list[Mapping[str, Any]]:
    """The points as rows of a CSV."""
    return [
        {"rtt_ms": round(p.rtt_ms, 4), "rate_mbit": round(p.mbit, 4), "best": p.name, "gain_over_ssgd_on_gloo": p.gain,
         "faster_setting_of_unknown_accuracy": p.unknown}
        for p in found.points
    ]  # fmt: skip
