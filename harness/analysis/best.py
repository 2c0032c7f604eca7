"""The best algorithm on each network of a run: the fastest to the target that is about as accurate as SSGD. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wanbench.harness.analysis.axes import (
    absent,
    algorithm_order,
    axes_of,
    axis_value,
    by_value,
    comparable,
    value_text,
)
from wanbench.harness.analysis.paired import MeanInterval, paired_difference, unequal_steps
from wanbench.harness.analysis.summary import ALONE, Line, cells, compared_by_steps, frame, records
from wanbench.harness.grouping import by_key
from wanbench.harness.results.rules import ACCURACY_BAND
from wanbench.harness.spec.axes import is_commands_own

REFERENCE = "ssgd"
TIE_SHARE = 0.01


@dataclass(frozen=True)
class Standing:
    """One algorithm, with its parameters, on one network.

    Attributes:
        algorithm, kind, params: label, family and settings.
        scalability, low, high: median, minimum and maximum of the valid repetitions; NaN without a one-worker cell.
        step_time_s, step_low_s, step_high_s: median, minimum and maximum. repeats: number of valid repetitions.
        accuracy, accuracy_low, accuracy_high: median, minimum and maximum; None if the workload does not train a model.
        accuracy_change: accuracy minus that of the reference on the same network after as many steps, else None.
        not_compared: why, if the numbers of steps or other settings of the training are the reason.
        paired: the mean of that difference over repetitions with equal seeds, None if there are none.
        workload, cell: the names of the workload and of the cell. host: where hosts are kept apart, else None.
        behind: accuracy minus that of the best reference on the network, if references differ in what they train with.
        setting, choices: the label of the algorithm alone, and the text of each choice, by axis (`analysis.axes`).
        time_to_target_s: median, None without a target or if fewer than half of the repetitions reach it.
        target_low_s, target_high_s: its minimum and maximum; NaN if it is not known, or a repetition never reaches it.
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
    step_low_s: float = math.nan
    step_high_s: float = math.nan
    target_low_s: float = math.nan
    target_high_s: float = math.nan
    behind: float | None = None

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
        return all(change is None or change >= -ACCURACY_BAND for change in (self.change, self.behind))


@dataclass(frozen=True)
class NetworkStandings:
    """All algorithms on one network.

    Attributes:
        where: the swept axes and their values here; empty if only the algorithm is swept.
        standings: in the order of a legend.
        name: the profile, or the RTT of a uniform network. testbeds: of the valid cells.
        by_steps: whether the fastest is the one with the shortest step, not the highest scalability.
        invalid: the labels of the algorithms that have no valid repetition here.
    """

    where: Mapping[str, Any]
    standings: tuple[Standing, ...]
    name: str = ""
    testbeds: frozenset[str] = frozenset()
    by_steps: bool = False
    invalid: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The swept axes and their values here, or its name if nothing but the algorithm is swept."""
        return ", ".join(axis_value(axis, value) for axis, value in self.where.items()) or self.name

    @property
    def best(self) -> Standing | None:
        """Of the algorithms that are equally fast, the least stale, then the one that sends the least; None if none.

        Times to a target vary much, so there it is one of those within 1 % of the shortest. The bytes that a user's own
        program sends are not known, so of its algorithms the fastest is the best.
        """
        limit_s = min((s.time_to_target_s or math.inf for s in self.as_fast), default=0.0) * (1 + TIE_SHARE)
        able = [s for s in self.as_fast if (s.time_to_target_s or 0.0) <= limit_s]
        sent = {id(s): math.inf if s.megabytes_per_step is None else s.megabytes_per_step for s in able}
        return min(able, key=lambda s: (s.staleness, sent[id(s)], -self._speed(s)[0]), default=None)

    @property
    def as_fast(self) -> tuple[Standing, ...]:
        """The accurate algorithms that are as fast as the fastest.

        With a target, they reach it within 1 % of the shortest time, or in times that overlap with its. Otherwise their
        scalability, or their steps a second with `by_steps`, is within 1 % of the highest, or overlaps with it.
        """
        able = [s for s in self.standings if s.accurate and s.kind != ALONE]
        compared = [s for s in able if self.by_steps or not math.isnan(s.scalability)]
        if not compared:
            return ()
        timed = [(s.time_to_target_s, s) for s in compared if s.time_to_target_s is not None]
        if timed:
            shortest_s, first = min(timed, key=lambda entry: entry[0])
            limit_s = max(shortest_s * (1 + TIE_SHARE), first.target_high_s)
            return tuple(s for time_s, s in timed if time_s <= limit_s or s.target_low_s <= first.target_high_s)
        speeds = {id(s): self._speed(s) for s in compared}
        speed, low, _ = max(speeds.values())
        floor = min(speed * (1 - TIE_SHARE), low)
        return tuple(s for s in compared if speeds[id(s)][0] >= floor or speeds[id(s)][2] >= low)

    def _speed(self, standing: Standing) -> tuple[float, float, float]:
        """What is compared: median, minimum and maximum."""
        if not self.by_steps:
            return standing.scalability, standing.low, standing.high
        return 1 / standing.step_time_s, 1 / standing.step_high_s, 1 / standing.step_low_s


def networks(rows: Iterable[Line]) -> list[NetworkStandings]:
    """The networks of a run, in the order of their axes; none if no cell of several workers has a valid repetition."""
    table = frame(rows)
    summary = [line for line in cells(table) if line["workers"] != 1]
    if not any(line["status"] == "ok" for line in summary):
        return []
    axes = axes_of(table)
    places = ({**{axis: comparable(line[axis]) for axis in axes}, **line["conditions"]} for line in summary)
    groups = by_key(zip((tuple(where.items()) for where in places), summary, strict=True))
    seeds, by_steps = _accuracies(records(table)), compared_by_steps(summary)
    standings = [_network(dict(key), lines, seeds, by_steps) for key, lines in groups.items()]
    return sorted(standings, key=lambda network: [by_value(value) for value in network.where.values()])


@dataclass(frozen=True)
class Effect:
    """What a choice does to the step time, everything else equal.

    Attributes:
        axis: the choice. best: the text of its fastest value.
        ratios: by each other value: the step time divided by that of the best (geometric mean, minimum and maximum),
            how many pairs of cells have both values, and whether the best is faster in each of them.
        cells: of how many combinations of network, algorithm and other choices.
    """

    axis: str
    best: str
    ratios: Mapping[str, tuple[float, float, float, int, bool]]
    cells: int


_Times = Mapping[str, Standing]  # by the text of a choice, everything else equal


def effects(cases: Iterable[NetworkStandings]) -> list[Effect]:
    """The effect of each choice on the step time; empty if a target decides which is the fastest."""
    groups: dict[str, dict[tuple[Any, ...], dict[str, Standing]]] = {}
    for network in cases:
        for standing in network.standings:
            if standing.time_to_target_s is not None:
                return []
            for axis, text in standing.choices.items() if standing.kind != ALONE else ():
                rest = {name: value for name, value in standing.choices.items() if name != axis}
                key = (*map(str, network.where.items()), standing.setting, *rest.items())
                groups.setdefault(axis, {}).setdefault(key, {})[text] = standing
    return [_effect(axis, [*of_axis.values()]) for axis, of_axis in groups.items()]


def _effect(axis: str, groups: Sequence[_Times]) -> Effect:
    """The value that no other beats on average where both were measured, and the ratios to it."""
    texts = list(dict.fromkeys(text for group in groups for text in group))
    logs = {text: [_mean_log(groups, text, other) for other in texts if other != text] for text in texts}
    best = min(texts, key=lambda text: (any(log > 0 for log in logs[text]), sum(logs[text])))
    ratios = {}
    for text in texts:
        both = [(group[text], group[best]) for group in groups if text in group and best in group and text != best]
        if both:
            spans = [slow.step_time_s / fast.step_time_s for slow, fast in both]
            always = all(
                s.step_low_s > f.step_high_s and s.step_time_s > f.step_time_s * (1 + TIE_SHARE) for s, f in both
            )
            mean = math.exp(sum(map(math.log, spans)) / len(spans))
            ratios[text] = (mean, min(spans), max(spans), len(both), always)
    return Effect(axis, best, ratios, len(groups))


def _mean_log(groups: Sequence[_Times], text: str, other: str) -> float:
    logs = [
        math.log(group[text].step_time_s / group[other].step_time_s)
        for group in groups
        if text in group and other in group
    ]
    return sum(logs) / len(logs) if logs else 0.0


Seeds = Mapping[tuple[Any, ...], Mapping[int, float]]


def _accuracies(rows: Iterable[Line]) -> Seeds:
    """The accuracy of each seed, by run, cell and host."""
    accuracies = by_key(
        ((row["run"], row["cell"], row["hosts"]), (int(row["seed"]), float(row["accuracy"])))
        for row in rows
        if row["status"] == "ok" and not absent(row["seed"]) and not absent(row["accuracy"])
    )
    return {cell: dict(of_cell) for cell, of_cell in accuracies.items()}


def _network(where: Mapping[str, Any], lines: Sequence[Line], seeds: Seeds, by_steps: bool) -> NetworkStandings:
    valid = [line for line in lines if line["status"] == "ok"]
    references = [line for line in valid if line["kind"] == REFERENCE and not math.isnan(line["accuracy"])]
    several = len({str(_training(line)) for line in references}) > 1
    top = max((float(line["accuracy"]) for line in references), default=math.nan) if several else math.nan
    standings = []
    for line in valid:
        own = [reference for reference in references if _training(reference) == _training(line)]
        standing = _standing(line, own[0] if own else None, seeds)
        if references and not own and standing.accuracy is not None:
            standing = replace(standing, not_compared="not compared: no ssgd was trained with the same settings")
        behind = None if math.isnan(top) or standing.accuracy is None else standing.accuracy - top
        standings.append(replace(standing, behind=behind))
    standings.sort(key=lambda s: algorithm_order(s.setting, s.kind, s.params))
    testbeds = frozenset(line["testbed"] for line in valid)
    name = str(lines[0]["profile"] or "the network")
    if name == "uniform" and not absent(lines[0]["rtt_ms"]):
        name = axis_value("rtt_ms", lines[0]["rtt_ms"])
    invalid = tuple(str(line["algorithm"]) for line in lines if line["status"] != "ok")
    return NetworkStandings(where, tuple(standings), name, testbeds, by_steps, invalid)


def _training(line: Line) -> dict[str, Any]:
    """The swept values that a cell is trained with, and that its reference must have too."""
    return {
        key: value for key, value in (line["axes"] or {}).items() if key.startswith("train.") or is_commands_own(key)
    }


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
        target_low_s=float(line["time_to_target_s_min"]),
        target_high_s=float(line["time_to_target_s_max"]),
        setting=line["setting"],
        choices={axis: value_text(axis, value) for axis, value in line["choices"].items()},
        step_low_s=float(line["step_time_s_min"]),
        step_high_s=float(line["step_time_s_max"]),
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
