"""BBR's measurements of the round trip, against the rules of Linux."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from wanbench.harness.testbeds.virtual.bbr import RoundTrips
from wanbench.harness.testbeds.virtual.congestion import SEGMENT_BYTES
from wanbench.harness.testbeds.virtual.tcp import Load

S = 1e9  # of nanoseconds
RTT = 0.1 * S


def sent(trips, begin_ns, seconds, *, rate=12.5e6, connections=1, silent=True):
    """How much longer messages of `seconds` at the rate take that begin at once on all connections, in seconds.

    `silent`: whether all earlier ones are acknowledged.
    """
    every, silent = np.arange(connections), np.full(connections, silent)
    first, length = np.full(connections, float(begin_ns)), seconds * S
    times = np.full(connections, int(RTT)), np.full(connections, int(length))
    load = Load(np.full(connections, seconds * rate), *times, np.full(connections, np.inf), np.zeros(connections))
    return (trips.last_ns(every, first, first + length, silent, load) - first - length) / S


def pauses(trips, count):
    """When messages of a second, one behind the other, are held up, and for how long."""
    now, found = 0.0, []
    for number in range(count):
        late = float(sent(trips, now, 1.0, silent=number == 0)[0])
        if late:
            found.append((now / S, late))
        now += (1.0 + late) * S
    return found


def test_a_busy_connection_stops_for_a_round_trip_and_a_fifth_of_a_second_and_not_again_for_ten_seconds():
    found = pauses(RoundTrips(1, 1, ()), 200)
    few = 2 * 4 * SEGMENT_BYTES / 12.5e6  # four segments in each of two round trips
    assert len(found) > 5
    late = [late for _, late in found]
    assert median(late) == max(late) == pytest.approx(0.3 - few, abs=1e-6)  # less between two messages
    begun = [begin for begin, _ in found]
    assert min(b - a for a, b in pairwise(begun)) >= 10


def test_nothing_is_held_up_if_the_ten_seconds_end_in_a_silence():
    trips = RoundTrips(100, 1, ())
    assert not any(sent(trips, number * 60 * S, 0.001, connections=100).any() for number in range(20))


def measuring():
    """Connections of which half measure the round trip from 10.1 s to 10.3 s.

    They sent a segment in ten seconds: the second round trip was shorter than the first one, or not.
    """
    trips = RoundTrips(4000, 7, ())
    sent(trips, 0, 10.0, rate=SEGMENT_BYTES / 10, connections=4000)
    return trips


def test_a_new_round_trip_is_the_shortest_of_two_with_probability_a_half():
    held = sent(measuring(), 10.15 * S, 0.001, connections=4000) > 0
    assert float(np.mean(held)) == pytest.approx(0.5, abs=0.03)


def test_four_segments_pass_during_a_measurement_and_the_fifth_waits_for_a_round_trip():
    four, five = (sent(measuring(), 10.15 * S, n * SEGMENT_BYTES / 12.5e6, connections=4000) for n in (4, 5))
    assert not four.any()
    assert float(five.max()) == pytest.approx(0.1 - 5 * SEGMENT_BYTES / 12.5e6, abs=1e-6)


def test_connections_measure_at_different_times_and_the_same_seed_draws_the_same():
    once, again = (sent(RoundTrips(50, 3, ("a",)), 0, 60.0, connections=50) for _ in range(2))
    assert once.tolist() == again.tolist()
    other = sent(RoundTrips(50, 4, ("a",)), 0, 60.0, connections=50)
    assert other.tolist() != once.tolist()
