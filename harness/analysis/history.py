"""A metric of every cell over commits: which cell changed, at which commit, by how much, how certainly. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from wanbench.harness.analysis.changes import Change, Steps, enough, exact_steps, measured_steps
from wanbench.harness.results.columns import MORE_IS_BETTER
from wanbench.harness.results.outcome import Outcome

LEVEL = 0.05
"""The probability that any of the measured cells shows a change if none changed."""
_COUNTS = frozenset({"payload_bytes", "messages_sent"})  # repeat exactly on every testbed
_ROUNDED = {"final_loss": 0.1, "accuracy": 0.1}  # machines round differently; as for `gate.loss_band`
_FACTS = ("wanbench", "torch", "processor", "kernel")


class Place(NamedTuple):
    """A cell on a testbed: values of two testbeds are no series."""

    cell: str
    testbed: str
    emulator: str | None


@dataclass(frozen=True)
class Value:
    """The metric at one commit: median, minimum and maximum of the repetitions, and what it was measured with."""

    middle: float
    low: float
    high: float
    repeats: int
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Series:
    """One cell over the commits.

    Attributes:
        label: its name, with the testbed if it was measured on several. exact: its values repeat.
        values: one per commit; None if it has none there.
        steps: levels and changes. Their places are commits.
        judged: there are enough values to find a change.
    """

    label: str
    place: Place
    exact: bool
    values: tuple[Value | None, ...]
    steps: Steps
    judged: bool


@dataclass(frozen=True)
class Shift:
    """A change of one cell.

    Attributes:
        label: of the cell. at: the first commit at the new level. first, last: the commits after which, and at which at
            the latest, it changed, with 95 % certainty. All are indices of commits.
        before, after: the levels. half: half-width of the 95 % interval of their difference.
        p: None if the values are exact. better: whether more or less is better, as it changed.
        also: what else differs between the values on both sides, beside the commit.
        drift: it is a steady change from `first` to `last`, so that no commit is to blame.
    """

    label: str
    at: int
    first: int
    last: int
    before: float
    after: float
    half: float
    p: float | None
    better: bool
    also: tuple[str, ...] = ()
    drift: bool = False

    @property
    def change(self) -> float | None:
        """The relative change; None from zero."""
        return self.after / self.before - 1 if self.before else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the relative change; None if the values are exact or it is not known."""
        if self.change is None or not 0 < self.half < math.inf:
            return None
        half = self.half / abs(self.before)
        return self.change - half, self.change + half

    @property
    def size(self) -> float:
        """How large it is, to sort by."""
        return math.inf if self.change is None else abs(self.change)


@dataclass(frozen=True)
class History:
    """A metric of an experiment over commits.

    Attributes:
        outcomes: one per commit, in order. series: one per cell that has the metric at any commit.
        shifts: all changes by commit, losses before gains and large before small, then all drifts.
        level: at which each measured series was judged.
    """

    metric: str
    outcomes: tuple[Outcome, ...]
    series: tuple[Series, ...]
    shifts: tuple[Shift, ...]
    level: float

    @property
    def experiment(self) -> str:
        """Its name."""
        return self.outcomes[0].experiment

    @property
    def unjudged(self) -> tuple[Series, ...]:
        """Measured cells with too few values to find a change."""
        return tuple(each for each in self.series if not each.judged)

    def title(self, at: int) -> str:
        """The commit in short, with a plus if files differed from it; its number if it is not known."""
        outcome = self.outcomes[at]
        return f"#{at + 1}" if outcome.commit is None else outcome.commit[:9] + "+" * outcome.dirty

    def to_json(self) -> dict[str, Any]:
        """Plain data for machines."""
        commits = [each.model_dump(exclude={"cells", "schema_"}) for each in self.outcomes]
        return {
            "schema": 1,
            "experiment": self.experiment,
            "metric": self.metric,
            "level": LEVEL,
            "commits": commits,
            "changes": [self._shift(shift) for shift in self.shifts],
            "cells": [_series_json(series) for series in self.series],
        }

    def _shift(self, shift: Shift) -> dict[str, Any]:
        outcome, interval = self.outcomes[shift.at], shift.interval
        return {
            "cell": shift.label,
            "kind": "drift" if shift.drift else "step",
            "commit": outcome.commit,
            "subject": outcome.subject,
            "date": outcome.date,
            "after_commit": self.outcomes[shift.first].commit,
            "until_commit": self.outcomes[shift.last].commit,
            "at": shift.at,
            "before": shift.before,
            "after": shift.after,
            "change": shift.change,
            "low": None if interval is None else interval[0],
            "high": None if interval is None else interval[1],
            "p": shift.p,
            "better": shift.better,
            "also": list(shift.also),
        }


def _series_json(series: Series) -> dict[str, Any]:
    values = [None if each is None else [each.middle, each.low, each.high] for each in series.values]
    levels = [[level.first, level.last, level.mean] for level in series.steps.levels]
    return {
        "cell": series.label,
        "testbed": series.place.testbed,
        "emulator": series.place.emulator,
        "exact": series.exact,
        "judged": series.judged,
        "values": values,
        "levels": levels,
    }


def follow(outcomes: Sequence[Outcome], metric: str) -> History:
    """The changes of a metric over commits.

    Args:
        outcomes: at least one, in order. metric: one that some of their cells have.
    """
    found = {place: [_value(outcome, place, metric) for outcome in outcomes] for place in _places(outcomes, metric)}
    measured = sum(not _exact(place, metric) for place in found)
    level = LEVEL / max(1, measured)
    several = {place.cell for place in found if sum(other.cell == place.cell for other in found) > 1}
    series = tuple(
        _series(f"{place.cell} ({place.emulator or place.testbed})" if place.cell in several else place.cell, place,
                values, metric, level)
        for place, values in found.items()
    )  # fmt: skip
    shifts = [shift for each in series for shift in _shifts(each, metric)]
    shifts.sort(key=lambda shift: (shift.drift, shift.at, shift.better, -shift.size))
    return History(metric, tuple(outcomes), series, tuple(shifts), level)


def _places(outcomes: Sequence[Outcome], metric: str) -> list[Place]:
    found = {
        Place(name, cell.testbed, cell.emulator)
        for outcome in outcomes
        for name, cell in outcome.cells.items()
        if metric in cell.metrics
    }
    return sorted(found, key=lambda place: [_natural(part or "") for part in place])


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key in which 20ms comes before 100ms."""
    return [(int(number or 0), word) for number, word in re.findall(r"(\d+)|(\D+)", text)]


def _exact(place: Place, metric: str) -> bool:
    return place.testbed == "virtual" or metric in _COUNTS


def _value(outcome: Outcome, place: Place, metric: str) -> Value | None:
    cell = outcome.cells.get(place.cell)
    if cell is None or (cell.testbed, cell.emulator) != place[1:] or metric not in cell.metrics:
        return None
    numbers = cell.metrics[metric]
    known = {name: getattr(outcome, name) for name in _FACTS} | {"spec": cell.cell, "code": cell.code}
    facts = {name: value for name, value in known.items() if value is not None}
    return Value(numbers[0], min(numbers), max(numbers), cell.repeats, facts)


def _series(label: str, place: Place, values: Sequence[Value | None], metric: str, level: float) -> Series:
    there = [at for at, value in enumerate(values) if value is not None]
    middles = [value.middle for value in values if value is not None]
    exact = _exact(place, metric)
    steps = exact_steps(middles, _ROUNDED.get(metric, 0.0)) if exact else measured_steps(middles, level)
    moved = Steps(
        tuple(replace(each, first=there[each.first], last=there[each.last]) for each in steps.levels),
        tuple(_moved(each, there) for each in steps.changes),
        steps.drift,
    )
    return Series(label, place, exact, tuple(values), moved, exact or len(there) >= enough(level))


def _moved(change: Change, there: Sequence[int]) -> Change:
    """The change with commits in place of values."""
    return replace(change, place=there[change.place], after=there[change.after], until=there[change.until])


def _shifts(series: Series, metric: str) -> list[Shift]:
    steps, more = series.steps, metric in MORE_IS_BETTER
    if steps.drift is not None:
        first, last, drift = steps.levels[0].first, steps.levels[0].last, steps.drift
        return [
            Shift(series.label, last, first, last, drift.begin, drift.end, drift.half, drift.p,
                  (drift.end > drift.begin) == more, _also(series, first, last), drift=True)
        ]  # fmt: skip
    found = []
    for change, (old, new) in zip(steps.changes, pairwise(steps.levels), strict=True):
        found.append(
            Shift(series.label, change.place, change.after, change.until, old.mean, new.mean,
                  math.hypot(old.half, new.half), change.p, (new.mean > old.mean) == more,
                  _also(series, old.last, new.first))
        )  # fmt: skip
    return found


def _also(series: Series, old: int, new: int) -> tuple[str, ...]:
    """What else differs between two values; for measured ones also whether the code does not."""
    before, after = series.values[old], series.values[new]
    assert before is not None
    assert after is not None
    known = before.facts.keys() & after.facts.keys()
    changed = [name for name in ("spec", *_FACTS) if name in known and before.facts[name] != after.facts[name]]
    found = [name if name == "spec" else f"{name} {before.facts[name]} -> {after.facts[name]}" for name in changed]
    same_code = not series.exact and "code" in known and before.facts["code"] == after.facts["code"]
    return (*found, *(["the code is the same"] if same_code else []))
