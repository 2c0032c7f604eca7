"""What the relay finds after a pause arrived during the pause, not as a burst at its end."""

import math

import pytest

from wanbench.harness.emulators.plan import Queue
from wanbench.harness.emulators.relay.process import evenly, found_since
from wanbench.harness.emulators.relay.segment import NO_OFFLOAD, Segment
from wanbench.harness.emulators.relay.switch import Port, TailDrop

MS = 1e6


def test_a_relay_that_slept_finds_a_packet_at_once():
    assert found_since(looked=1 * MS, asleep=2 * MS, wake=4 * MS, woken=3 * MS) == 3 * MS


def test_a_relay_that_did_not_sleep_finds_what_arrived_since_it_looked():
    assert found_since(looked=1 * MS, asleep=2.5 * MS, wake=4 * MS, woken=2.51 * MS) == 1 * MS


def test_a_relay_that_overslept_finds_what_arrived_since_it_should_have_woken():
    assert found_since(looked=1 * MS, asleep=2 * MS, wake=4 * MS, woken=54 * MS) == 4 * MS


def test_a_relay_that_sleeps_without_limit_is_never_late():
    assert found_since(looked=1 * MS, asleep=2 * MS, wake=None, woken=54 * MS) == 54 * MS


@pytest.mark.parametrize("count", [0, 1, 7])
def test_packets_arrive_at_even_distances_and_the_last_one_now(count):
    arrived = list(evenly(count, 4.0, 54.0))
    assert arrived == pytest.approx([4 + 50 * (index + 1) / count for index in range(count)])


def test_a_pause_of_the_relay_overflows_no_buffer_that_the_traffic_does_not_fill():
    rate = 4e6  # bytes/s: 1500 bytes in 0.375 ms
    queue = TailDrop(Queue(rate_bytes_per_s=rate, buffer_bytes=20_000))
    port = Port(0, bytes(4), -1, segments=True)
    packets = math.floor(0.9 * rate * 0.05 / 1500)  # paced at 0.9 of the rate, for 50 ms
    for arrived in evenly(packets, 0.0, 50 * MS):
        assert queue.admit(Segment(NO_OFFLOAD + bytes(1500), port, arrived))
    burst = TailDrop(Queue(rate_bytes_per_s=rate, buffer_bytes=20_000))
    assert not all(burst.admit(Segment(NO_OFFLOAD + bytes(1500), port, 50 * MS)) for _ in range(packets))
