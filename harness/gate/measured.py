"""Judgements of every cell from the rows of base and head, measured side by side. Pure."""

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from wanbench.harness.analysis.axes import CONDITIONS
from wanbench.harness.gate import exact, rule
from wanbench.harness.gate.noise import ALL_CELLS, HostNoise
from wanbench.harness.gate.verdict import ORDER, Judgement, Row, Timing, Verdict, by_name
from wanbench.harness.grouping import by_key
from wanbench.harness.results.hosts import NOT_RECORDED, hosts_of
from wanbench.harness.spec.tables import GateTable

# If these columns differ, the times cannot be compared.
_SAME_CELL = (
    "testbed", "emulator", "collective", "workload", "payload_scale", "kind", "params", "workers", "profile",
    "rtt_ms", "rtt_max_ms", *CONDITIONS[1:], "tcp", "host_tcp", "steps", "seed",
)  # fmt: skip


class Sides:
    """The results of base and head so far: cells that are settled without their times, and the times of the others.

    Attributes:
        counted: verdicts on values without noise in the first repetitions: messages, bytes, and simulated times.
        settled: verdicts that further measuring cannot change: failed, not comparable, new, and all simulated cells.
        timed: names of the other cells, in order.
        log_ratios: of their step times, head over base, shape (cells, rounds); NaN for a missing pair.
    """

    def __init__(
        self,
        base: Sequence[Row],
        head: Sequence[Row],
        gate: GateTable,
        other_machine: str | None = None,
        band: Callable[[str], float] = lambda _: exact.WIRE_BAND,
    ) -> None:
        """`other_machine`: the reason if the times of the two sides cannot be compared, else None. `band`: of bytes."""
        self._base, self._head = by_name(base), by_name(head)
        self._gate, self._other_machine = gate, other_machine
        counted = exact.compare(exact.entries(_without_values(base)), _without_values(head), gate, band)
        self.counted = {finding.cell: finding for finding in counted}
        verdicts = {cell: self._settle(cell) for cell in sorted(self._base.keys() | self._head.keys())}
        self.settled = {cell: finding for cell, finding in verdicts.items() if finding is not None}
        self.timed = tuple(cell for cell in sorted(self._head) if cell not in self.settled)
        self.log_ratios = self._ratios()

    def wire_noise(self) -> dict[str, float]:
        """The noise of the bytes that programs send in a step, by name of cell, if the sides are equal."""
        noise = {}
        for cell in self.timed:
            base, head = (
                {row["rep"]: exact.wire_bytes_per_step(row) for row in side[cell]} for side in (self._base, self._head)
            )
            pairs = [(base[rep], head[rep]) for rep in sorted(base.keys() & head.keys())]
            ratios = [math.log(after / before) for before, after in pairs if before and after]
            if ratios:
                noise[cell] = float(rule.noise(np.array(ratios)))
        return noise

    def _settle(self, cell: str) -> Judgement | None:
        if cell not in self._head:
            return Judgement(cell, Verdict.NOT_COMPARABLE, "only in the base")
        if (why := _why_failed(self._head[cell])) is not None:
            return Judgement(cell, Verdict.FAILED, f"head, {why}")
        if cell not in self._base:
            return Judgement(cell, Verdict.NEW, "only in the head")
        if (why := _why_failed(self._base[cell])) is not None:
            return Judgement(cell, Verdict.NOT_COMPARABLE, f"base, {why}")
        base, head = self._base[cell][0], self._head[cell][0]
        other = [key for key in _SAME_CELL if base.get(key) != head.get(key)]
        if other:
            reason = ", ".join(f"{key} {base.get(key)} -> {head.get(key)}" for key in other)
            return Judgement(cell, Verdict.NOT_COMPARABLE, reason)
        counted = self.counted[cell]
        out = _out_of_band(self._base[cell], self._head[cell], self._gate.loss_band)
        if out is not None:
            return Judgement(cell, Verdict.FAILED, out)
        if head["testbed"] == "virtual" or counted.verdict is Verdict.NOT_COMPARABLE:
            return counted
        return Judgement(cell, Verdict.NOT_COMPARABLE, self._other_machine) if self._other_machine else None

    def _ratios(self) -> rule.Floats:
        rounds = sorted({int(row["rep"]) for cell in self.timed for row in (*self._base[cell], *self._head[cell])})
        ratios = np.full((len(self.timed), len(rounds)), math.nan)
        for index, cell in enumerate(self.timed):
            for rep, (base, head) in self.pairs(cell).items():
                ratios[index, rounds.index(rep)] = math.log(head / base)
        return ratios

    def pairs(self, cell: str) -> dict[int, tuple[float, float]]:
        """The step times of base and head, in seconds, by repetition that both have."""
        base, head = _times(self._base[cell]), _times(self._head[cell])
        return {rep: (base[rep], head[rep]) for rep in sorted(base.keys() & head.keys())}


def further(sides: Sides, gate: GateTable, looks: int, noise: HostNoise) -> list[str]:
    """Names of the cells to measure further, after the first of two looks."""
    if not sides.timed:
        return []
    margins = np.array([noise.margin(cell, gate.max_slowdown) for cell in sides.timed])
    limit = noise.margin(ALL_CELLS, rule.OVERALL)
    chosen: rule.Bools = rule.to_measure_further(sides.log_ratios, margins, gate.alpha / looks, limit)
    return [cell for cell, is_chosen in zip(sides.timed, chosen.tolist(), strict=True) if is_chosen]


def findings(
    sides: Sides, gate: GateTable, looks: int, noise: HostNoise, regressed: Collection[str] = ()
) -> tuple[list[Judgement], Judgement | None]:
    """The verdict on every cell, and on all measured cells together (None if no time was measured).

    Args:
        looks: the number of times that the data are judged; the error rate is divided by it.
        regressed: cells that regressed at an earlier look.
    """
    if not sides.timed:
        return list(sides.settled.values()), None
    margins = np.array([noise.margin(cell, gate.max_slowdown) for cell in sides.timed])
    alpha = gate.alpha / looks
    decision = rule.decide(sides.log_ratios, margins, alpha)
    sample = rule.moments(sides.log_ratios)
    low, high = (np.expm1(end) for end in sample.interval())
    judgements = dict(sides.settled)
    for i, cell in enumerate(sides.timed):
        verdict = _verdict(decision, i) if cell not in regressed else Verdict.REGRESSED
        pairs = sides.pairs(cell).values()
        timing = Timing(
            base_s=statistics.median(base for base, _ in pairs) if pairs else None,
            head_s=statistics.median(head for _, head in pairs) if pairs else None,
            change=_finite(math.expm1(sample.mean[i])),
            low=_finite(float(low[i])),
            high=_finite(float(high[i])),
            noise=noise.cells.get(cell),
            margin=float(margins[i]),
            pairs=len(pairs),
        )
        doubt = "" if verdict is Verdict.REGRESSED else noise.doubt(cell, gate.max_slowdown)
        counted = sides.counted[cell]  # counts have no noise, so the worse verdict holds
        worst = min(counted.verdict, Verdict.INCONCLUSIVE if doubt else verdict, key=ORDER.index)
        judgements[cell] = Judgement(cell, worst, "; ".join(filter(None, (counted.text, doubt))), timing)
    return [judgements[cell] for cell in sorted(judgements)], _together(sides, alpha, noise)


def _verdict(decision: rule.Decision, index: int) -> Verdict:
    decided = (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.UNCHANGED)
    return next((verdict for verdict in decided if getattr(decision, str(verdict))[index]), Verdict.INCONCLUSIVE)


def _together(sides: Sides, alpha: float, noise: HostNoise) -> Judgement:
    limit = noise.margin(ALL_CELLS, rule.OVERALL)
    overall = rule.overall(sides.log_ratios, alpha, limit)
    low, high = (float(np.expm1(end)) for end in rule.moments(sides.log_ratios.mean(axis=0)).interval())
    verdict, reason = Verdict.UNCHANGED, ""
    if overall.slower:
        verdict = Verdict.REGRESSED
        reason = f"at least {100 * math.expm1(float(overall.low)):.1f} % slower; the limit is {100 * limit:.1f} %"
    elif overall.doubtful:
        reason = "perhaps slower, but too little to be sure"
    if not overall.slower and (doubt := noise.doubt(ALL_CELLS, rule.OVERALL)):
        verdict, reason = Verdict.INCONCLUSIVE, doubt
    change = _finite(math.expm1(float(overall.mean)))
    rounds = int((~np.isnan(sides.log_ratios)).all(axis=0).sum())  # in which every cell has a pair
    timing = Timing(None, None, change, _finite(low), _finite(high), noise.cells.get(ALL_CELLS), limit, rounds)
    return Judgement(ALL_CELLS, verdict, reason, timing)


def _why_failed(rows: Sequence[Row]) -> str | None:
    """The reason of the first repetition that failed."""
    reasons = ((row["rep"], exact.why_failed(row)) for row in rows)
    return next((f"rep {rep}: {why}" for rep, why in reasons if why is not None), None)


def _without_values(rows: Sequence[Row]) -> list[Row]:
    return [{**row, **dict.fromkeys(exact.VALUES)} for row in rows]


def _times(rows: Sequence[Row]) -> dict[int, float]:
    """The step time of each valid repetition, by number; of one worker, the median of the hosts that measured it."""
    times = by_key((int(row["rep"]), float(row["step_time_s"])) for row in rows if row["status"] == "ok")
    return {rep: statistics.median(of_rep) for rep, of_rep in times.items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _out_of_band(base: Sequence[Row], head: Sequence[Row], band: float) -> str | None:
    """The change if the median of a trained value leaves its band: speed must not change the result of training."""
    for key in exact.VALUES:
        sides = [[row[key] for row in rows if row.get(key) is not None] for rows in (base, head)]
        if not all(sides):
            continue
        before, after = map(statistics.median, sides)
        if not exact.near(before, after, band):
            return f"{exact.change(key, before, after)}, outside ±{100 * band:g} %"
    return None


def other_machine(base: Mapping[str, Any], head: Mapping[str, Any]) -> str | None:
    """The reason if times of two runs cannot be compared, else None.

    Args:
        base, head: manifests of their folders.
    """
    before, after = _machine(base), _machine(head)
    return ", ".join(f"{key} {before[key]} -> {after[key]}" for key in before if before[key] != after[key]) or None


def unlike_hosts(base: Sequence[Row], head: Sequence[Row]) -> str | None:
    """The reason if one side, or both together, were measured on hosts that are not alike, else None.

    On equal hosts, or if a host was not recorded, a one-worker cell that changed may be a change of the code.
    """
    sides = [hosts_of(rows) for rows in (base, head)]
    names = [set(side.names) for side in sides]
    if names[0] != names[1] and not any(NOT_RECORDED in of_side or not of_side for of_side in names):
        sides.append(hosts_of([*base, *head]))
    return next(filter(None, (side.problem for side in sides)), None)


def _machine(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The properties that times depend on: processor, major version of the kernel, minor version of torch."""
    return {
        "processor": str(manifest.get("cpu")),
        "kernel": str(manifest.get("kernel")).partition(".")[0],
        "torch": ".".join(str(manifest.get("versions", {}).get("torch")).split(".")[:2]),
    }
