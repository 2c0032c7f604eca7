"""The best setting over round-trip time and rate, by the law, corrected by simulations on a coarser grid."""

import math
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from wanbench.harness.advise.candidates import candidates, settings
from wanbench.harness.advise.evidence import Library, Tier
from wanbench.harness.advise.question import Question
from wanbench.harness.advise.ranking import Candidate, Measured, advisable, one_of_each, weighed, without_risk
from wanbench.harness.advise.search import Options, rows_of_plan
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.law import PredictInputs, one_shot_bytes, predict
from wanbench.harness.plan.plan import Plan
from wanbench.harness.results.store import RunFolder
from wanbench.harness.show.figures.map import MapData
from wanbench.harness.show.figures.names import human
from wanbench.harness.text import size
from wanbench.netprofiles import Delay, Rate

_COLUMNS, _ROWS = 60, 40
_COARSE_COLUMNS, _COARSE_ROWS = 5, 4
_SIMULATED = 3  # settings at each point of the coarse grid, besides those that the law does not describe
_WINDOW = "20 steps"


def spaced(low: float, high: float, count: int) -> tuple[float, ...]:
    """Numbers from `low` to `high`, each a constant multiple of the one before."""
    return tuple(low * (high / low) ** (index / (count - 1)) for index in range(count))


@dataclass(frozen=True)
class _Scaled:
    """A candidate whose step time is known on any uniform network: by the law, or else between simulated points.

    Attributes:
        law: its inputs on the question's network; None if the law does not describe it.
        simulated: simulated seconds by (RTT in ms, Mbit/s), filled by `_simulate`.
    """

    candidate: Candidate
    law: PredictInputs | None
    here: tuple[float, float]
    simulated: dict[tuple[float, float], float] = field(default_factory=dict)

    def by_law(self, rtt_ms: float, mbit: float) -> float:
        """The law's step time on a network."""
        assert self.law is not None
        assert self.law.rate_bytes_per_s is not None
        rtt_s, rate = self.law.rtt_s * rtt_ms / self.here[0], self.law.rate_bytes_per_s * mbit / self.here[1]
        there = replace(self.law, rtt_s=rtt_s, rate_bytes_per_s=rate, step_cv=0.0)
        return predict(replace(there, one_shot_bytes=one_shot_bytes(there))).step_time_s

    def seconds(self, rtt_ms: float, mbit: float) -> float:
        """Its step time on a network, corrected; infinite if it is unknown there."""
        if self.law is None:
            return between(self.simulated, rtt_ms, mbit)
        return self.by_law(rtt_ms, mbit) * nearby(self._ratios, rtt_ms, mbit)

    @cached_property
    def _ratios(self) -> dict[tuple[float, float], float]:
        return {network: took_s / self.by_law(*network) for network, took_s in self.simulated.items()}

    def at(self, rtt_ms: float, mbit: float) -> Measured:
        """The candidate with its step time on a network."""
        return Measured(self.candidate, self.seconds(rtt_ms, mbit))


def nearby(ratios: Mapping[tuple[float, float], float], rtt_ms: float, mbit: float) -> float:
    """The mean of known ratios, weighted by the inverse square of their distance on logarithmic axes; 1 if none."""
    if not ratios:
        return 1.0
    x, y = math.log(rtt_ms), math.log(mbit)
    weights = {point: 1 / ((x - math.log(point[0])) ** 2 + (y - math.log(point[1])) ** 2 + 1e-6) for point in ratios}
    return sum(weights[point] * ratio for point, ratio in ratios.items()) / sum(weights.values())


def between(times: Mapping[tuple[float, float], float], rtt_ms: float, mbit: float) -> float:
    """A time between the four points of a grid around a network; infinite if one is missing.

    A step takes longer with the round trip and with 1 / rate. Along each axis the two parts of a step either follow
    each other, so that the time is linear, or overlap, so that it is the longer of both; whichever fits the grid.
    """
    rtts, rates = sorted({a for a, _ in times}), sorted({b for _, b in times})
    if min(len(rtts), len(rates)) < 2 or len(times) < len(rtts) * len(rates):
        return math.inf
    by_rate = {a: {1 / b: times[a, b] for b in rates} for a in rtts}
    by_rtt = [{a: times[a, b] for a in rtts} for b in rates]
    along_rate, along_rtt = _form(by_rate.values()), _form(by_rtt)
    return _along({a: _along(column, 1 / mbit, along_rate) for a, column in by_rate.items()}, rtt_ms, along_rtt)


_Known = tuple[float, float]  # a load, and the time at it
_Form = Callable[[_Known, _Known, float], float]  # the time at a load between a lighter and a heavier one


def _in_turn(light: _Known, heavy: _Known, load: float) -> float:
    return light[1] + (load - light[0]) / (heavy[0] - light[0]) * (heavy[1] - light[1])


def _overlapped(light: _Known, heavy: _Known, load: float) -> float:
    return max(light[1], heavy[1] * load / heavy[0])


def _along(times: Mapping[float, float], load: float, form: _Form) -> float:
    """The time at a load, from the two loads around it whose times are known, or from the nearest at an end."""
    loads = sorted(times)
    after = min(max(bisect(loads, load), 1), len(loads) - 1)
    light, heavy = loads[after - 1], loads[after]
    return form((light, times[light]), (heavy, times[heavy]), min(max(load, light), heavy))


def _form(lines: Iterable[Mapping[float, float]]) -> _Form:
    """The form that predicts the known times best, each from its two neighbours."""
    every = list(lines)

    def error(form: _Form) -> float:
        total = 0.0
        for line in every:
            loads = sorted(line)
            for light, load, heavy in zip(loads, loads[1:], loads[2:], strict=False):
                predicted = form((light, line[light]), (heavy, line[heavy]), load)
                total += abs(math.log(predicted / line[load]))
        return total

    return min((_overlapped, _in_turn), key=error)


def draw_up(
    question: Question,
    library: Library,
    rtts: tuple[float, float],
    rates: tuple[float, float],
    options: Options,
    *,
    marked: bool = False,
) -> MapData:
    """Compute a map around a question on a uniform network.

    Args:
        rtts: smallest and largest round trip in ms. rates: lowest and highest rate in Mbit/s.
        marked: whether the question's network is the user's.
    """
    question = question.changed({"run.window": _WINDOW})
    table = question.spec.network
    assert table.rtt is not None
    assert table.rate is not None
    here = table.rtt.ms, table.rate.mbit
    cells, _ = candidates(question, settings(library.settings))
    every = weighed(cells, library)
    eligible = [
        _Scaled(candidate, None if candidate.law_s is None else candidate.cell.law_inputs, here)
        for candidate in every
        if candidate.eligible
    ]
    unknown = _undominated(
        _Scaled(candidate, candidate.cell.law_inputs, here)
        for candidate in every
        if candidate.evidence.tier is Tier.UNKNOWN and candidate.law_s is not None
    )
    coarse = [(rtt, rate) for rate in spaced(*rates, _COARSE_ROWS) for rtt in spaced(*rtts, _COARSE_COLUMNS)]
    simulated = _simulate(question, eligible, coarse, options)
    data = _data(eligible, unknown, spaced(*rtts, _COLUMNS), spaced(*rates, _ROWS), here if marked else None)
    subject = f"{question.reference.workload.name}, {question.workers} workers; simulated"
    if library.proxy:
        designs = [recording.design for recording in library.recordings]
        subject += f", if it learns like {designs[0]}" if len(designs) == 1 else ", accurate in every recording"
    return replace(data, subject=subject, caption=_caption(question, library, simulated))


def _data(
    eligible: Sequence[_Scaled],
    unknown: Sequence[_Scaled],
    rtts_ms: Sequence[float],
    mbits: Sequence[float],
    here: tuple[float, float] | None,
) -> MapData:
    """The best setting on each network, row by row from the lowest rate."""
    rows = [[_point(eligible, unknown, rtt_ms, mbit) for rtt_ms in rtts_ms] for mbit in mbits]
    names = [[name for name, _, _ in row] for row in rows]
    gains, ratios = [[gain for _, gain, _ in row] for row in rows], [[ratio for *_, ratio in row] for row in rows]
    drawn = {name for row in names for name in row}
    cells = {Measured(scaled.candidate, 0.0).name: scaled.candidate.cell for scaled in eligible}
    cells = {name: cell for name, cell in cells.items() if name in drawn}
    kinds = {name: cell.kind for name, cell in cells.items()}
    words = {
        name: human(cell.label, cell.kind, cell.params) + name.removeprefix(cell.label) for name, cell in cells.items()
    }
    return MapData(rtts_ms, mbits, names, gains, ratios, kinds, words, here)


def _point(
    eligible: Sequence[_Scaled], unknown: Sequence[_Scaled], rtt_ms: float, mbit: float
) -> tuple[str, float, float]:
    """The name of the best setting on a network; the time of `ssgd`, on its fastest collective, over its time to the
    target; and its step time over the shortest one of unknown accuracy, at least 1."""
    measured = [scaled.at(rtt_ms, mbit) for scaled in eligible]
    best, ssgd = advisable(measured)[0], without_risk(measured)[0]
    faster_s = min((scaled.seconds(rtt_ms, mbit) for scaled in unknown), default=math.inf)
    return best.name, ssgd.to_target_s / best.to_target_s, max(1.0, best.step_time_s / faster_s)


def _undominated(unknown: Iterable[_Scaled]) -> list[_Scaled]:
    """The candidates that by the law can be the fastest somewhere.

    A candidate is left out if another on the same collective sends no more, no sooner and no more often.
    """
    by_costs: dict[tuple[str, int, int, int], _Scaled] = {}
    for scaled in unknown:
        law = scaled.law
        assert law is not None
        by_costs.setdefault((law.collective, law.message_bytes * law.messages, -law.delay, -law.period), scaled)

    def dominated(costs: tuple[str, int, int, int]) -> bool:
        alike = (other for other in by_costs if other[0] == costs[0] and other != costs)
        return any(all(a <= b for a, b in zip(other[1:], costs[1:], strict=True)) for other in alike)

    return [scaled for costs, scaled in by_costs.items() if not dominated(costs)]


def _simulate(
    question: Question, eligible: Sequence[_Scaled], networks: Sequence[tuple[float, float]], options: Options
) -> int:
    """Simulate the first settings by the law, and all that it does not describe, at some networks. Return how many."""
    chosen: dict[str, tuple[_Scaled, TrainingCell, tuple[float, float]]] = {}
    for rtt_ms, mbit in networks:
        network = {"network.rtt": str(Delay.from_ms(rtt_ms)), "network.rate": str(Rate.from_mbit(mbit))}
        there = question.changed(network).reference.network
        by_law = one_of_each(advisable(scaled.at(rtt_ms, mbit) for scaled in eligible if scaled.law is not None))
        first = {id(scaled.candidate) for scaled in by_law[:_SIMULATED]}
        for scaled in eligible:
            if id(scaled.candidate) in first or scaled.law is None:
                cell = scaled.candidate.cell
                axes = {**cell.axes, "rtt": network["network.rtt"], "rate": network["network.rate"]}
                moved = replace(cell, network=there, axes=axes)
                chosen[moved.key] = scaled, moved, (rtt_ms, mbit)
    cells = [question.one_worker, *(cell for _, cell, _ in chosen.values())]
    folder = RunFolder(options.out / f"{question.spec.name}-map"[:80])
    rows = rows_of_plan(Plan(question.spec, tuple(cells), part=True), folder, options)
    for key, (scaled, _, point) in chosen.items():
        if key in rows:
            scaled.simulated[point] = rows[key]
    return len(rows)


def _caption(question: Question, library: Library, simulated: int) -> str:
    """The conditions, and where the evidence comes from."""
    workload, limits = question.reference.workload, question.limits
    times_ms = sorted({1e3 * time_s for time_s in question.reference.each_step_time_s})
    compute = " to ".join(f"{time_ms:g}" for time_ms in dict.fromkeys((times_ms[0], times_ms[-1])))
    proxies = ", ".join(
        f"{recording.design} ({recording.about['workers']} workers, {recording.about['seeds']} seeds)"
        for recording in library.recordings
    )
    what = f"prox{'ies' if len(library.recordings) > 1 else 'y'}, not this model" if library.proxy else "this model"
    points = f"{100 * limits.accuracy_drop:g} percentage point{'s' * (limits.accuracy_drop != 0.01)}"
    return (
        f"{size(workload.message_bytes)} a gradient, {compute} ms of compute a step, "
        f"{question.spec.network.tcp.congestion}; best: the shortest time to within {points} of ssgd's accuracy, "
        f"recorded with {proxies or 'nothing'}: {what}; by the step-time law, corrected by {simulated} simulated "
        "networks and settings; a uniform network without loss; compression takes no time unless it is known."
    )
