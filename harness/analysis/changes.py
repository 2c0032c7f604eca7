"""Change points in a series of one number per commit. Pure: equal series give equal answers.

A series is exact if its values repeat, as simulated times and counts do: every difference is a change at a known
commit.

A measured series has noise. Levels are proposed by circular binary segmentation (Olshen et al., Circular binary
segmentation for the analysis of array-based DNA copy number data, Biostatistics 5, 2004): the arc of values whose mean
differs the most from that of the others, then the same in each part. So a change that was taken back is found too. Then
every proposed change is tested between its neighbours, and the weakest is dropped until all are significant. Both tests
permute (Antoch and Huskova, Permutation tests in change point analysis, Statistics & Probability Letters 53, 2001): if
nothing changed, all orders of the values were equally likely, whatever their distribution. Means are of Huber's scores:
a value far from the median counts as a value at 2.5 standard deviations. A level has at least three values. So one
outlier is no change, and a change is known three commits later.

A series that drifts has no commit to blame. It is told from steps by Schwarz's criterion (Yao, Estimating the number of
change-points via Schwarz' criterion, Statistics & Probability Letters 6, 1988).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.analysis.paired import quantile

Floats = NDArray[np.float64]

LEAST = 3
"""Values of a measured level."""
_FAR = 2.5  # standard deviations
_TO_DEVIATION = 1.4826  # from the median of absolute deviations, for normal noise
_SEED = 1
_PER_LEVEL = 5  # permutations that are as clear as the data, at a p-value that is just significant
_FEWEST = 199  # permutations
_CHUNK = 500  # permutations
_TINY = 1e-300
# Siegmund, Confidence sets in change-point problems, International Statistical Review 56, 1988: the logarithm of the
# likelihood at the true place is within this of the largest one with a probability of 95 %: (1 - exp(-x))^2 = 0.95.
_NEAR = -math.log(1 - math.sqrt(0.95))


@dataclass(frozen=True)
class Change:
    """A change of the level.

    Attributes:
        place: the first value at the new level. after, until: the values after which, and at which at the latest, the
            level changed, with 95 % certainty.
        p: the probability of a change at least as clear if nothing had changed; None if the values are exact.
    """

    place: int
    after: int
    until: int
    p: float | None


@dataclass(frozen=True)
class Level:
    """Values between two changes, `first` to `last`: their mean, and the half-width of its 95 % interval.

    `half` is 0 for exact values, and infinite if the noise is not known.
    """

    first: int
    last: int
    mean: float
    half: float


@dataclass(frozen=True)
class Drift:
    """A steady change: both ends of the line through the values.

    `half` is the half-width of the 95 % interval of their difference. `p`: as of a change.
    """

    begin: float
    end: float
    half: float
    p: float


@dataclass(frozen=True)
class Steps:
    """What a series did: its levels and the changes between them, or a drift."""

    levels: tuple[Level, ...]
    changes: tuple[Change, ...] = ()
    drift: Drift | None = None


def exact_steps(values: Sequence[float], tolerance: float = 0.0) -> Steps:
    """Levels of values that repeat exactly.

    Args:
        values: at least one. tolerance: the relative difference from the first value of a level that is none.
    """
    firsts = [0]
    for place, value in enumerate(values):
        level = values[firsts[-1]]
        if abs(value - level) > tolerance * abs(level):
            firsts.append(place)
    ends = [*firsts[1:], len(values)]
    levels = tuple(Level(first, end - 1, values[first], 0.0) for first, end in zip(firsts, ends, strict=True))
    return Steps(levels, tuple(Change(first, first - 1, first, None) for first in firsts[1:]))


def measured_steps(values: Sequence[float], level: float) -> Steps:
    """Levels of values with noise.

    Args:
        values: at least one. level: the probability of a change if there is none.
    """
    series = np.asarray(values, dtype=float)
    changes = _confirmed(series, _proposed(series, 0, len(series), level), level)
    levels = _levels(series, [0, *(change.place for change in changes), len(series)])
    if changes and (drift := _drift(series, levels, min(change.p or 0.0 for change in changes))) is not None:
        return Steps(_levels(series, [0, len(series)]), (), drift)
    return Steps(levels, tuple(changes))


@lru_cache
def enough(level: float) -> int:
    """The number of measured values that can show a change: fewer have too few orders for this level.

    Half of `level` is left for chance among the permutations.
    """
    return next(n for n in range(2 * LEAST, 1000) if _as_clear(n) <= level / 2)


def _as_clear(count: int) -> float:
    """The share of the orders of two levels in which one level is an arc, as in the data."""
    one, other = count // 2, count - count // 2
    inner = sum(max(0, size - 2 * LEAST + 1) for size in (one, other))
    return (2 + inner) / math.comb(count, one)


def _proposed(series: Floats, begin: int, end: int, level: float) -> list[int]:
    """Places between `begin` and `end` at which the level may have changed, ascending."""
    count = end - begin
    if count < enough(level):
        return []
    scores = _scores(series[begin:end])
    seen, place, length = max(
        (float(block.max()), first + int(block.argmax()), length) for length, first, block in _arcs(scores[None, :])
    )
    if _p_value(scores, seen, level, _clearest_arc) is None:
        return []
    inner = [begin + at for at in (place, place + length) if 0 < at < count]
    parts = [begin, *inner, end]
    found = [at for left, right in pairwise(parts) for at in _proposed(series, left, right, level)]
    return sorted([*inner, *found])


@dataclass(frozen=True)
class _Test:
    """The clearest split of two neighbouring levels, its p-value if it is significant, and its t."""

    place: int
    after: int
    until: int
    p: float | None
    t: float


def _confirmed(series: Floats, places: list[int], level: float) -> list[Change]:
    """The changes that are significant between their neighbours, each at its most likely place."""
    while places:
        tests: list[_Test] = []
        for at in range(len(places)):
            begin, end = (places[at - 1] if at else 0), (places[at + 1] if at + 1 < len(places) else len(series))
            tests.append(_test(series, begin, end, level))
            places[at] = tests[-1].place
        if all(test.p is not None for test in tests):
            return [Change(test.place, test.after, test.until, test.p) for test in tests]
        del places[min(range(len(tests)), key=lambda at: tests[at].t)]
    return []


def _test(series: Floats, begin: int, end: int, level: float) -> _Test:
    scores = _scores(series[begin:end])
    contrasts = _splits(scores[None, :])[:, 0]
    best = int(contrasts.argmax())
    sides = (scores[: best + LEAST], scores[best + LEAST :])
    variance = sum(float(((side - side.mean()) ** 2).sum()) for side in sides) / (len(scores) - 2)
    near = np.flatnonzero(contrasts**2 >= contrasts[best] ** 2 - 2 * _NEAR * variance)
    p = _p_value(scores, float(contrasts[best]), level, lambda rows: _splits(rows).max(axis=0))
    first = begin + LEAST
    t = float(contrasts[best]) / math.sqrt(variance) if variance else math.inf
    return _Test(first + best, first + int(near[0]) - 1, first + int(near[-1]), p, t)


def _scores(values: Floats) -> Floats:
    """Values minus their median, cut off at `_FAR` deviations; only their signs if more than half of them are equal."""
    centred = values - np.median(values)
    deviation = _TO_DEVIATION * float(np.median(np.abs(centred)))
    return np.clip(centred, -_FAR * deviation, _FAR * deviation) if deviation else np.sign(centred)


def _sums(rows: Floats) -> Floats:
    """Sums of the first 0 to all values of each row, whose mean is taken off: a column for every row."""
    sums = np.zeros((rows.shape[1] + 1, len(rows)))
    np.cumsum((rows - rows.mean(axis=1, keepdims=True)).T, axis=0, out=sums[1:])
    return sums


def _splits(rows: Floats) -> Floats:
    """The difference of the means on both sides of each split, over its standard error at unit variance.

    A line for every split and a column for every row.
    """
    count = rows.shape[1]
    sizes = np.arange(LEAST, count - LEAST + 1)
    errors = np.sqrt(sizes * (count - sizes) / count)
    contrasts: Floats = np.abs(_sums(rows)[LEAST : count - LEAST + 1]) / errors[:, None]
    return contrasts


def _arcs(rows: Floats) -> Iterator[tuple[int, int, Floats]]:
    """The same for arcs against all other values: (length, first begin, contrasts with a line for every begin)."""
    count, sums = rows.shape[1], _sums(rows)
    for length in range(LEAST, count - LEAST + 1):
        error = math.sqrt(length * (count - length) / count)
        yield length, 0, np.abs(sums[length : length + 1]) / error
        if count - length >= 2 * LEAST:
            ends, begins = sums[length + LEAST : count - LEAST + 1], sums[LEAST : count - LEAST - length + 1]
            yield length, LEAST, np.abs(ends - begins) / error


def _clearest_arc(rows: Floats) -> Floats:
    best = np.zeros(len(rows))
    for _, _, contrasts in _arcs(rows):
        np.maximum(best, contrasts.max(axis=0), out=best)
    return best


def _p_value(scores: Floats, seen: float, level: float, statistic: Callable[[Floats], Floats]) -> float | None:
    """The share of permutations whose statistic is at least the one that was seen; None if it is above `level`."""
    orders = max(_FEWEST, math.ceil(_PER_LEVEL / level) - 1)
    most = math.floor(level * (orders + 1)) - 1  # permutations that may be as clear
    random = np.random.default_rng(_SEED)
    reached = 0
    for first in range(0, orders, _CHUNK):
        rows = np.tile(scores, (min(_CHUNK, orders - first), 1))
        reached += int((statistic(random.permuted(rows, axis=1)) >= seen * (1 - 1e-9)).sum())
        if reached > most:
            return None
    return (reached + 1) / (orders + 1)


def _levels(series: Floats, firsts: Sequence[int]) -> tuple[Level, ...]:
    """The levels that begin at these places, the last of which is the end. Outliers count as in the tests."""
    sides = [series[first:end] for first, end in pairwise(firsts)]
    rest = np.concatenate([side - np.median(side) for side in sides])
    most = _FAR * _TO_DEVIATION * float(np.median(np.abs(rest)))
    kept = [np.clip(side, np.median(side) - most, np.median(side) + most) for side in sides]
    freedom = len(series) - len(sides)
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in kept)
    reach = quantile(freedom) * math.sqrt(squares / freedom) if freedom else math.inf
    return tuple(
        Level(first, end - 1, float(side.mean()), reach / math.sqrt(len(side)))
        for (first, end), side in zip(pairwise(firsts), kept, strict=True)
    )


def _drift(series: Floats, levels: Sequence[Level], p: float) -> Drift | None:
    """The line through a series if Schwarz's criterion prefers it to the levels."""
    count = len(series)
    scores, at = _scores(series), np.arange(count) - (count - 1) / 2
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in (scores[x.first : x.last + 1] for x in levels))
    line = scores - scores.mean() - at * float(at @ scores) / float(at @ at)
    steps_bic = count * math.log(max(squares, _TINY)) + (2 * len(levels) - 1) * math.log(count)
    if count * math.log(max(float(line @ line), _TINY)) + 2 * math.log(count) >= steps_bic:
        return None
    slope = float(at @ series) / float(at @ at)
    rest = series - series.mean() - slope * at
    half = quantile(count - 2) * math.sqrt(float(rest @ rest) / (count - 2) / float(at @ at)) * (count - 1)
    middle, rise = float(series.mean()), slope * (count - 1)
    return Drift(middle - rise / 2, middle + rise / 2, half, p)
