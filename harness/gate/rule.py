"""The decision rule for measured step times. Pure and vectorised, so that tests simulate the rule that builds use.

A sample is one number per repetition and cell. Base and head alternate, and repetition r of both shares a seed, so
d_r = log(head_r / base_r) is free of the host's drift. A cell has regressed if the mean of d is above
log(1 + margin) by a one-sided t-test, Holm-corrected over all cells (Holm 1979). There are two looks at the
samples, each at half the error rate (Bonferroni). Only cells that are undecided after the first look are measured
further. The mean over cells shows a change of all cells that is too small to be seen in one.

Arrays of log-ratios have the shape (..., cells, rounds), with NaN for a missing pair.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from wanbench.harness.analysis.equivalence import holm

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LOOKS = (5, 10)
"""The number of rounds at each look."""
OVERALL = 0.01
"""The relative slowdown of all cells together that counts."""
NOISE_LIMIT = 0.1
"""The noise from which on only a regression is decided: twice as much would let a slowdown of 20 % pass."""
_UNCHANGED_CONFIDENCE = 0.95
_NOISES_PER_MARGIN = 2.0


@dataclass(frozen=True)
class Moments:
    """Count, mean and standard error (NaN for fewer than two) of each cell's log-ratios, shape (..., cells)."""

    pairs: NDArray[np.int64]
    mean: Floats
    error: Floats

    def interval(self) -> tuple[Floats, Floats]:
        """The two-sided 95 % interval of the mean."""
        reach = stats.t.ppf(0.975, np.maximum(self.pairs - 1, 1)) * self.error
        return self.mean - reach, self.mean + reach

    def p_above(self, bound: Floats | float) -> Floats:
        """One-sided p-value of "the mean is at most `bound`"; 1 for fewer than two pairs."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (self.mean - bound) / self.error
        return np.where(self.pairs >= 2, stats.t.sf(np.nan_to_num(t, nan=-np.inf), np.maximum(self.pairs - 1, 1)), 1.0)

    def p_below(self, bound: Floats | float) -> Floats:
        """One-sided p-value of "the mean is at least `bound`"; 1 for fewer than two pairs."""
        return replace(self, mean=-self.mean).p_above(-bound)


def moments(d: Floats) -> Moments:
    """Moments along the last axis, without NaN."""
    there = ~np.isnan(d)
    pairs = there.sum(axis=-1)
    mean = np.where(there, d, 0).sum(axis=-1) / np.maximum(pairs, 1)
    variance = np.where(there, (d - mean[..., None]) ** 2, 0).sum(axis=-1) / np.maximum(pairs - 1, 1)
    error = np.where(pairs >= 2, np.sqrt(variance / np.maximum(pairs, 1)), np.nan)
    return Moments(pairs, np.where(pairs > 0, mean, np.nan), error)


@dataclass(frozen=True)
class Decision:
    """The verdicts on each cell. If none is true, the cell is undecided."""

    regressed: Bools
    improved: Bools
    unchanged: Bools

    @property
    def undecided(self) -> Bools:
        """The cells to measure further."""
        return np.asarray(~(self.regressed | self.improved | self.unchanged))


def decide(d: Floats, margins: Floats | float, alpha: float) -> Decision:
    """Judge every cell.

    Args:
        margins: the relative slowdown of each cell that does not count yet.
        alpha: family-wise error rate of this look.
    """
    sample, bound = moments(d), np.log1p(margins)
    regressed = holm(sample.p_above(bound), alpha)
    improved = holm(sample.p_below(-bound), alpha)
    unchanged = sample.p_below(bound) < 1 - _UNCHANGED_CONFIDENCE
    return Decision(regressed, improved, unchanged & ~regressed & ~improved)


@dataclass(frozen=True)
class Overall:
    """All cells together: the mean of their log-ratios is one sample per round.

    Attributes:
        mean: of the samples. low: its lower one-sided bound, which is judged.
        slower: low is above the threshold. doubtful: it is not, but the mean is above half the threshold.
    """

    mean: Floats
    low: Floats
    slower: Bools
    doubtful: Bools


def overall(d: Floats, alpha: float, threshold: Floats | float = OVERALL) -> Overall:
    """Judge all cells together at the error rate `alpha`, from the rounds in which every cell has a pair."""
    sample = moments(d.mean(axis=-2))
    reach = stats.t.ppf(1 - alpha, np.maximum(sample.pairs - 1, 1)) * sample.error
    bound = np.log1p(threshold)
    slower = sample.mean - reach > bound
    return Overall(sample.mean, sample.mean - reach, slower, ~slower & (sample.mean > bound / 2))


def to_measure_further(d: Floats, margins: Floats | float, alpha: float, threshold: Floats | float = OVERALL) -> Bools:
    """The cells to measure after the first look: the undecided ones, or all if a general slowdown is in doubt."""
    doubtful = np.asarray(overall(d, alpha, threshold).doubtful)
    return np.asarray(decide(d, margins, alpha).undecided | doubtful[..., None])


def noise(d: Floats) -> Floats:
    """The noise of each cell: the typical size of the mean log-ratio that a first look finds between equal sides.

    It is the root mean square of d divided by the square root of the rounds of a first look. Because it is taken about
    zero and not about the mean, a bias from which side runs first counts as noise. NaN without a pair.
    """
    there = ~np.isnan(d)
    square, pairs = np.where(there, d, 0) ** 2, there.sum(axis=-1)
    return np.where(pairs > 0, np.sqrt(square.sum(axis=-1) / np.maximum(pairs, 1) / LOOKS[0]), np.nan)


def margin(max_slowdown: float, measured_noise: Floats | float) -> Floats | float:
    """The margin that a change must exceed: the user's limit, or twice the noise if that is larger."""
    return np.maximum(max_slowdown, _NOISES_PER_MARGIN * np.asarray(measured_noise))
