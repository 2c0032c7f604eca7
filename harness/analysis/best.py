"""The best algorithm on each network of a run: the fastest to the target that is about as accurate as SSGD. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wanbench.harness.analysis.axes import axes_of, axis_value
from wanbench.harness.analysis.order import absent, algorithm_order, by_value, comparable
from wanbench.harness.analysis.paired import MeanInterval, paired_difference, unequal_steps
from wanbench.harness.analysis.summary import AnalysisError, Line, cells, frame, records, says_little
from wanbench.harness.results.rules import ACCURACY_BAND

REFERENCE = "ssgd"
ALONE = "local"  # it does not communicate, so it is no way to train one model
TIE_SHARE = 0.01


@dataclass(frozen=True)
class Standing:
    """One algorithm, with its parameters, on one network.

    Attributes:
        algorithm, kind, params: label, family and settings.
        scalability, low, high: median, minimum and maximum of the valid repetitions; NaN without a one-worker cell.
        step_time_s: median. repeats: number of valid repetitions.
        accuracy, accuracy_low, accuracy_high: median, minimum and maximum; None if the workload does not train a model.
        accuracy_change: accuracy minus that of the reference on the same network after as many steps, else None.
        not_compared: why, if the numbers of steps are the reason.
        paired: the mean of that difference over repetitions with equal seeds, None if there are none.
        workload, cell: the names of the workload and of the cell. host: where hosts are kept apart, else None.
        setting, choices: the label of the algorithm alone, and the text of each choice, by axis (`analysis.axes`).
        time_to_target_s: median, None without a target or if fewer than half of the repetitions reach it.
        megabytes_per_step: payload that one worker sends per step, None if it is not recorded.
        unscaled_megabytes_per_step: the same before `payload_scale`, None if that is 1.
    """

    algorithm: str
    kind: str
    params: Mapping[str, Any]
    scalability: float
    low: float
    high: float
    step_time_s: float
    repeats: int
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None
    accuracy_change: float | None
    megabytes_per_step: float | None
    paired: MeanInterval | None = None
    workload: str = ""
    cell: str = ""
    host: str | None = None
    unscaled_megabytes_per_step: float | None = None
    time_to_target_s: float | None = None
    not_compared: str | None = None
    setting: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def speeds(self) -> tuple[float, float, float]:
        """Steps a second: median, minimum and maximum, which differ as those of the scalability do."""
        ends = [1.0 if math.isnan(end) else end / self.scalability for end in (self.low, self.high)]
        return 1 / self.step_time_s, ends[0] / self.step_time_s, ends[1] / self.step_time_s

    @property
    def staleness(self) -> int:
        """Steps from a gradient to the use of its average, at most, by the parameters of the algorithm."""
        delay, period, age = (int(self.params.get(name) or 0) for name in ("delay", "period", "staleness"))
        return delay + age * period + max(0, period - 1)

    @property
    def change(self) -> float | None:
        """Accuracy minus that of the reference: the mean over pairs if there are any, else of the medians."""
        return self.accuracy_change if self.paired is None else self.paired.mean

    @property
    def change_text(self) -> str:
        """The change in percentage points, with its 95 % interval if known, or why there is none; else ""."""
        if self.change is None:
            return self.not_compared or ""
        points = f"{100 * self.change:+z.2f}"
        if self.paired is None or self.kind == REFERENCE or not self.paired.bounded:
            return points
        return f"{points} ({100 * self.paired.low:+z.2f} to {100 * self.paired.high:+z.2f})"

    @property
    def accurate(self) -> bool:
        """True unless it is known to be further below the reference than `verify` allows."""
        return self.change is None or self.change >= -ACCURACY_BAND


@dataclass(frozen=True)
class NetworkStandings:
    """All algorithms on one network.

    Attributes:
        where: the swept axes and their values here; empty if only the algorithm is swept.
        standings: in the order of a legend. lost: labels of the cells without a valid repetition.
        name: the profile, or the RTT of a uniform network. testbeds: of the valid cells.
    """

    where: Mapping[str, Any]
    standings: tuple[Standing, ...]
    lost: tuple[str, ...]
    name: str = ""
    testbeds: frozenset[str] = frozenset()

    @property
    def best(self) -> Standing | None:
        """Of the algorithms that are equally fast, the least stale, then the one that sends the least; None if none.

        The bytes that a user's own program sends are not known, so of its algorithms the fastest is the best.
        """
        sent = {id(s): math.inf if s.megabytes_per_step is None else s.megabytes_per_step for s in self.as_fast}
        return min(self.as_fast, key=lambda s: (s.staleness, sent[id(s)], -s.scalability), default=None)

    @property
    def as_fast(self) -> tuple[Standing, ...]:
        """The accurate algorithms that are as fast as the fastest.

        With a target, they reach it within 1 % of the shortest time. Otherwise their scalability (where it says little,
        their steps a second) is within 1 % of the highest, or their repetitions overlap with its.
        """
        little = says_little(s.scalability for s in self.standings)
        able = [s for s in self.standings if s.accurate and s.kind != ALONE]
        compared = [s for s in able if little or not math.isnan(s.scalability)]
        if not compared:
            return ()
        times = [s.time_to_target_s for s in compared if s.time_to_target_s is not None]
        if times:
            limit = min(times) * (1 + TIE_SHARE)
            return tuple(s for s in compared if s.time_to_target_s is not None and s.time_to_target_s <= limit)
        speeds = {id(s): s.speeds if little else (s.scalability, s.low, s.high) for s in compared}
        speed, low, _ = max(speeds.values())
        floor = min(speed * (1 - TIE_SHARE), low)
        return tuple(s for s in compared if speeds[id(s)][0] >= floor or speeds[id(s)][2] >= low)


def networks(rows: Iterable[Line]) -> list[NetworkStandings]:
    """The networks of a run, in the order of their axes.

    Raises:
        AnalysisError: no cell with more than one worker has a valid repetition.
    """
    table = frame(rows)
    summary = [line for line in cells(table) if line["workers"] != 1]
    if not any(line["status"] == "ok" for line in summary):
        raise AnalysisError("no cell with more than one worker has a valid result yet, so there is nothing to compare")
    axes = axes_of(table)
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in summary:
        groups.setdefault(tuple(comparable(line[axis]) for axis in axes), []).append(line)
    seeds = _accuracies(records(table))
    standings = [_network(dict(zip(axes, key, strict=True)), lines, seeds) for key, lines in groups.items()]
    return sorted(standings, key=lambda network: [by_value(value) for value in network.where.values()])


@dataclass(frozen=True)
class Effect:
    """What a choice does to the step time, everything else equal.

    Attributes:
        axis: the choice. best: the text of its fastest value.
        ratios: by each other value, the step time divided by that of the best: geometric mean, minimum and maximum.
        compared, left_out: the number of networks and other choices at which all values were measured, and of the rest.
    """

    axis: str
    best: str
    ratios: Mapping[str, tuple[float, float, float]]
    compared: int
    left_out: int


def effects(cases: Iterable[NetworkStandings]) -> list[Effect]:
    """The effect of each choice, over the networks and other choices at which all of its values were measured."""
    groups: dict[str, dict[tuple[Any, ...], dict[str, float]]] = {}
    for network in cases:
        for standing in network.standings:
            for axis, text in standing.choices.items():
                rest = {name: value for name, value in standing.choices.items() if name != axis}
                key = (*map(str, network.where.items()), standing.setting, *rest.items())
                groups.setdefault(axis, {}).setdefault(key, {})[text] = standing.step_time_s
    return [effect for axis, of_axis in groups.items() if (effect := _effect(axis, [*of_axis.values()])) is not None]


def _effect(axis: str, groups: Sequence[Mapping[str, float]]) -> Effect | None:
    texts = list(dict.fromkeys(text for group in groups for text in group))
    complete = [group for group in groups if len(group) == len(texts) > 1]
    if not complete:
        return None
    means = {text: math.prod(group[text] ** (1 / len(complete)) for group in complete) for text in texts}
    best = min(texts, key=lambda text: means[text])
    spans = {text: [group[text] / group[best] for group in complete] for text in texts if text != best}
    ratios = {text: (means[text] / means[best], min(span), max(span)) for text, span in spans.items()}
    return Effect(axis, best, ratios, len(complete), len(groups) - len(complete))


Seeds = Mapping[tuple[Any, ...], Mapping[int, float]]


def _accuracies(rows: Iterable[Line]) -> Seeds:
    """The accuracy of each seed, by run, cell and host."""
    accuracies: dict[tuple[Any, ...], dict[int, float]] = {}
    for row in rows:
        if row["status"] == "ok" and not absent(row["seed"]) and not absent(row["accuracy"]):
            of_cell = accuracies.setdefault((row["run"], row["cell"], row["hosts"]), {})
            of_cell[int(row["seed"])] = float(row["accuracy"])
    return accuracies


def _network(where: Mapping[str, Any], lines: Sequence[Line], seeds: Seeds) -> NetworkStandings:
    valid = [line for line in lines if line["status"] == "ok"]
    references = [line for line in valid if line["kind"] == REFERENCE and not math.isnan(line["accuracy"])]
    standings = []
    for line in valid:  # a learning rate, say, is that of its own reference
        alike = [reference for reference in references if reference["choices"] == line["choices"]]
        standings.append(_standing(line, next(iter(alike or references), None), seeds))
    standings.sort(key=lambda s: algorithm_order(s.algorithm, s.kind, s.params))
    lost = tuple(str(line["algorithm"]) for line in lines if line["status"] != "ok")
    testbeds = frozenset(line["testbed"] for line in valid)
    name = str(lines[0]["profile"] or "the network")
    if name == "uniform" and not absent(lines[0]["rtt_ms"]):
        name = axis_value("rtt_ms", lines[0]["rtt_ms"])
    return NetworkStandings(where, tuple(standings), lost, name, testbeds)


def _standing(line: Line, reference: Line | None, seeds: Seeds) -> Standing:
    accuracy = None if math.isnan(line["accuracy"]) else float(line["accuracy"])
    paired = why_not = None
    if accuracy is not None and reference is not None:
        why_not = unequal_steps(line["steps_total"], reference["steps_total"])
    compared = reference if why_not is None else None
    if compared is not None:
        own_seeds, reference_seeds = (
            seeds.get((result["run"], result["cell"], result["hosts"]), {}) for result in (line, compared)
        )
        paired = paired_difference(own_seeds, reference_seeds)
    return Standing(
        algorithm=str(line["algorithm"]),
        kind=str(line["kind"]),
        params=line["params"] or {},
        scalability=float(line["scalability"]),
        low=float(line["scalability_min"]),
        high=float(line["scalability_max"]),
        step_time_s=float(line["step_time_s"]),
        repeats=int(line["repeats"]),
        accuracy=accuracy,
        accuracy_low=None if accuracy is None else float(line["accuracy_min"]),
        accuracy_high=None if accuracy is None else float(line["accuracy_max"]),
        accuracy_change=None if accuracy is None or compared is None else accuracy - float(compared["accuracy"]),
        not_compared=why_not,
        megabytes_per_step=megabytes_per_step(line),
        paired=paired,
        workload=str(line["workload"]),
        cell=str(line["cell"]),
        host=line["hosts"],
        unscaled_megabytes_per_step=unscaled_megabytes_per_step(line),
        time_to_target_s=None if absent(line["time_to_target_s"]) else float(line["time_to_target_s"]),
        setting=line["setting"],
        choices={axis: line["words"][axis] for axis in line["choices"]},
    )


def megabytes_per_step(line: Line) -> float | None:
    """Payload that one worker sends per step, in MB (10^6); None if the row does not record how many steps it ran."""
    payload, steps, workers = line.get("payload_bytes"), line.get("steps_total"), line["workers"]
    if payload is None or steps is None or not steps > 0 or payload != payload:
        return None
    return float(payload) / float(steps) / float(workers) / 1e6


def unscaled_megabytes_per_step(line: Line) -> float | None:
    """`megabytes_per_step` of the workload itself, before `payload_scale`; None if that is 1."""
    sent = megabytes_per_step(line)
    return None if sent is None or line["payload_scale"] == 1 else sent / float(line["payload_scale"])
