"""Losses follow the Gilbert-Elliott chain: its share, its bursts, and the spread of its number of losses."""

import itertools
import math
import statistics
from random import Random

import pytest

from wanbench.harness.emulators.impairments import Loss, Observation, loss_gaps, loss_interval
from wanbench.harness.emulators.plan import UNLIMITED, Link
from wanbench.harness.emulators.probe import TOLERANCES, PathProbe

# Loss, and mean burst; 0 is no bursts.
CHAINS = [(0.01, 5.0), (0.1, 2.5), (0.02, 50.0), (0.5, 1.0), (0.6, 1.5), (0.1, 0.0), (0.7, 0.0)]


def drawn(loss, burst, packets, seed=1):
    """Whether each of the first packets is lost."""
    lost, gaps = [], loss_gaps(loss, burst, Random(seed))
    while len(lost) < packets:
        lost += [False] * next(gaps) + [True]
    return lost[:packets]


def memory(loss, burst):
    """The correlation of a packet's loss with that of the next one: 1 - p - r, and 0 without bursts."""
    return 1 - loss / (1 - loss) / burst - 1 / burst if burst else 0.0


def variance(loss, burst, packets):
    """The variance of the number of losses in a stationary chain: the sum of all its covariances."""
    lags = sum((packets - lag) * memory(loss, burst) ** lag for lag in range(1, packets))
    return loss * (1 - loss) * (packets + 2 * lags)


def runs(lost):
    return [len(list(group)) for is_lost, group in itertools.groupby(lost) if is_lost]


@pytest.mark.parametrize(("loss", "burst"), CHAINS)
def test_the_share_of_lost_packets_is_the_loss(loss, burst):
    lost = drawn(loss, burst, 400_000)
    deviation = math.sqrt(loss * (1 - loss) * (1 + memory(loss, burst)) / (1 - memory(loss, burst)) / len(lost))
    assert statistics.fmean(lost) == pytest.approx(loss, abs=4 * deviation)


@pytest.mark.parametrize(("loss", "burst"), CHAINS)
def test_bursts_are_geometric_with_their_mean_length(loss, burst):
    """Independent losses also follow one another: on average 1/(1 - loss) of them."""
    lengths = runs(drawn(loss, burst, 400_000))
    mean = burst or 1 / (1 - loss)
    assert statistics.fmean(lengths) == pytest.approx(mean, abs=4 * math.sqrt(mean * (mean - 1) / len(lengths)) + 1e-9)
    single = 1 / mean
    share = sum(length == 1 for length in lengths) / len(lengths)
    assert share == pytest.approx(single, abs=4 * math.sqrt(single * (1 - single) / len(lengths)))


@pytest.mark.parametrize(("loss", "burst"), [*CHAINS[:3], (0.1, 0.0)])
def test_the_number_of_losses_varies_as_the_chain_says(loss, burst):
    """In bursts of 50 the variance is 56 times that of independent losses."""
    lost = drawn(loss, burst, 2_000_000, seed=3)
    counts = [sum(lost[begin : begin + 100]) for begin in range(0, len(lost), 100)]
    assert statistics.variance(counts) == pytest.approx(variance(loss, burst, 100), rel=0.1)


def test_each_stream_begins_in_the_stationary_distribution():
    firsts = [next(loss_gaps(0.3, 5.0, Random(seed))) == 0 for seed in range(4000)]
    assert statistics.fmean(firsts) == pytest.approx(0.3, abs=4 * math.sqrt(0.3 * 0.7 / 4000))


@pytest.mark.parametrize("burst", [0.0, 5.0])
def test_a_path_that_loses_everything_lets_no_packet_pass(burst):
    assert list(itertools.islice(loss_gaps(1.0, burst, Random(1)), 50)) == [0] * 50


# ---------------------------------------------------------------- the probe


def enumerated(sent, loss, burst):
    """The probability of each number of losses, from all sequences of states."""
    ends = 1 / burst
    begins = ends * loss / (1 - loss)
    chances = [0.0] * (sent + 1)
    for states in itertools.product((False, True), repeat=sent):
        chance = loss if states[0] else 1 - loss
        for bad, then in itertools.pairwise(states):
            change = ends if bad else begins
            chance *= change if bad != then else 1 - change
        chances[sum(states)] += chance
    return chances


@pytest.mark.parametrize(("loss", "burst"), [(0.1, 3.0), (0.4, 2.0), (0.5, 1.0), (0.05, 20.0)])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_the_interval_of_losses_in_bursts_is_exact(loss, burst, confidence):
    below = list(itertools.accumulate(enumerated(10, loss, burst)))
    tail = (1 - confidence) / 2
    low = sum(chance < tail for chance in below)
    high = next(number for number, chance in enumerate(below) if chance >= 1 - tail)
    assert loss_interval(10, loss, burst, confidence) == (low, high)


def test_bursts_as_long_as_those_of_independent_losses_have_their_interval():
    assert loss_interval(2000, 0.2, 1 / 0.8, 0.99) == loss_interval(2000, 0.2, 0, 0.99)


def test_a_probe_accepts_the_losses_of_bursts_and_no_others():
    def reasons(lost, burst):
        row = PathProbe("a", "b", 1.0, 1.0, 0.0, 0.0, 0.1, 3000, lost, None, None, 0, ())
        link = Link(1_000_000, 0, 0.1, UNLIMITED, loss_burst=burst)
        return Loss().judge(Observation(link, row, 40, TOLERANCES["relay"], 1))

    low, high = loss_interval(3000, 0.1, 10.0, 0.99)
    assert high - 300 > 2.57 * math.sqrt(variance(0.1, 10.0, 3000))
    assert reasons(low, 10.0) == reasons(high, 10.0) == []
    assert len(reasons(low, 0.0)) == len(reasons(high, 0.0)) == 1
    assert reasons(high + 1, 10.0) == [
        f"{high + 1} of 3000 packets lost, expected {low} to {high} with a loss of 10 % in bursts of 10"
    ]
