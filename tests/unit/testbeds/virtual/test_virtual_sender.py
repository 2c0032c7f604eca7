"""A connection followed packet by packet, against closed forms and the rules of Linux."""

from __future__ import annotations

import math

import pytest

from wanbench.harness.testbeds.virtual.congestion import SEGMENT_BYTES, Cubic, Reno
from wanbench.harness.testbeds.virtual.sender import ConnectionPath, Sender
from wanbench.harness.testbeds.virtual.streams import Stream

MS, S, RTT_MS = 1e6, float(SEGMENT_BYTES), 100.0
FAST = 1e12  # bytes per second: packets take no time


def sender(window=10, threshold=math.inf, rules=None):
    return Sender(rules or Reno(), window * S, threshold * S, Stream(1))


def path(rate=FAST, room=math.inf, *, paced=False, loss=0.0):
    return ConnectionPath(RTT_MS * MS, 1e9 / rate, room * S, paced, loss)


def took_ms(found, segments, on, *, losses=0, tail=False, at_ms=1.0):
    return found.send(at_ms * MS, segments * S, losses, tail, on) / MS - at_ms


def settled(found):
    """The window in segments once everything is acknowledged."""
    found.advance(found.now + 60e9)
    assert found.quiet
    return found.window / S


@pytest.mark.parametrize(("segments", "round_trips"), [(10, 0), (11, 1), (30, 1), (31, 2), (70, 2), (71, 3), (150, 3)])
def test_slow_start_doubles_the_window_each_round_trip(segments, round_trips):
    assert took_ms(sender(), segments, path()) == pytest.approx(round_trips * RTT_MS, abs=0.01)


@pytest.mark.parametrize("loss", [0.001, 0.01])
def test_random_losses_give_reno_the_window_of_mathis(loss):
    """Mathis et al. 1997: on average sqrt(3 / 2p) segments in each round trip."""
    packets = round(400 / loss)
    took = took_ms(sender(), packets, path(loss=loss), losses=400)
    assert packets / (took / RTT_MS) == pytest.approx(math.sqrt(1.5 / loss), rel=0.1)


def test_a_loss_costs_a_round_trip_and_halves_the_window():
    found = sender(80, 40)
    assert took_ms(found, 40, path(), losses=1) == pytest.approx(RTT_MS, abs=1)
    assert settled(found) == 40


def test_several_losses_within_a_window_halve_it_once():
    found = sender(80, 40)
    assert took_ms(found, 60, path(), losses=5) == pytest.approx(RTT_MS, abs=1)
    assert settled(found) == 40


def test_after_a_loss_the_window_grows_by_a_segment_in_each_round_trip_that_it_limits():
    # From 5 segments on, 5 + 6 + ... carry 81 segments in nine round trips, and 95 in ten.
    found = sender(5, 5)
    assert took_ms(found, 90, path()) == pytest.approx(9 * RTT_MS, rel=0.01)
    assert settled(found) == pytest.approx(15, abs=0.5)


@pytest.mark.parametrize("threshold", [40, math.inf])
def test_a_window_that_limits_nothing_does_not_grow(threshold):
    found = sender(40, threshold)
    for number in range(10):
        took_ms(found, 15, path(), at_ms=1 + 1000 * number)
    assert settled(found) == 40


def test_a_lost_end_waits_for_a_probe_two_round_trips_after_the_last_acknowledgement():
    assert took_ms(sender(40), 20, path(), losses=1, tail=True) == pytest.approx(3 * RTT_MS, abs=1)


def test_a_packet_that_is_alone_waits_for_the_timeout():
    """The probe would be sent after 2 RTT + 200 ms, but never later than the timeout."""
    assert took_ms(sender(), 1, path(paced=True), losses=1, tail=True) == pytest.approx(RTT_MS + 200, abs=1)


def test_a_later_message_reveals_the_lost_end_of_the_one_before():
    alone = sender(40)
    took_ms(alone, 20, path(), losses=1, tail=True)
    second = took_ms(alone, 5, path(), at_ms=51.0)  # its acknowledgements come 50 ms after those of the first
    assert second == pytest.approx(RTT_MS, abs=1)


def test_what_the_buffer_cannot_hold_of_a_burst_is_lost_and_nothing_else():
    found = sender(40, 20)
    found.send(1 * MS, 40 * S, 0, False, path(1e6, room=30))
    assert sum(sent.nbytes for sent in found.missing) == pytest.approx(10 * S)


def test_a_burst_beyond_the_buffer_is_repaired_after_a_probe_by_a_packet_for_each_acknowledgement():
    """Ten of 40 are lost. The probe repairs the last, and its acknowledgement begins the recovery of the other nine:

    one, then two for each acknowledgement of a repair: 1 + 2 + 4 + 2, in four round trips.
    """
    found, served_ms = sender(40, 20), 30 * S / 1e6 * 1e3
    took = took_ms(found, 40, path(1e6, room=30))
    probe_ms = 2 * found._smoothed_ns / MS  # after the last acknowledgement, a round trip after the queue is empty
    assert took == pytest.approx(served_ms + RTT_MS + probe_ms + 4 * RTT_MS, rel=0.08)
    assert settled(found) == 20


def test_two_messages_share_the_window():
    found = sender(20, 20)
    first, second = took_ms(found, 20, path()), took_ms(found, 20, path())
    assert first == pytest.approx(0, abs=0.01)
    assert second == pytest.approx(RTT_MS, abs=0.01)


def test_a_path_that_the_window_fills_costs_a_paced_sender_nothing():
    rate = 100 * S / 0.1  # 100 segments in a round trip
    found = sender(150, 150)
    took = took_ms(found, 100_000, path(rate, paced=True))
    assert took == pytest.approx(100_000 * S / rate * 1e3, rel=1e-4)


def test_losses_halve_a_large_window_of_which_a_packet_stands_for_many():
    """Losses in a window of thousands of packets, of which one stands for many, halve it like that of a few."""
    rate = 3000 * S / 0.1
    found = sender(6000, 6000)
    took = took_ms(found, 30_000, path(rate, paced=True), losses=2)
    # Each halves the window, to 3000 and 1500 at least: the first costs nothing, the second half of some round trips.
    assert 0 <= took - 30_000 * S / rate * 1e3 < 10 * RTT_MS
    assert settled(found) < 3100


def test_a_copy_is_independent_and_equal():
    found = sender(40, 40, Cubic())
    took_ms(found, 30, path(loss=0.01), losses=2)
    other = found.copy()
    assert took_ms(found, 100, path(loss=0.1), losses=5) == took_ms(other, 100, path(loss=0.1), losses=5)


@pytest.mark.parametrize("after_ms", [60, 10])
def test_a_packet_is_lost_a_quarter_of_a_round_trip_after_its_acknowledgement_was_due(after_ms):
    """RFC 8985: a packet sent later is acknowledged. Its own round trip has passed by then, or a quarter is left."""
    found = sender()
    found.send(1 * MS, S, 1, True, path())
    found.send((1 + after_ms) * MS, S, 0, False, path())
    known_ms = 1 + RTT_MS + max(after_ms, RTT_MS / 4)
    found.advance((known_ms - 0.5) * MS)
    assert found.missing
    found.advance((known_ms + 0.5) * MS)
    assert not found.missing
    assert not found.quiet


@pytest.mark.parametrize("rules", [Reno, Cubic])
def test_round_trips_that_pass_at_once_take_as_long_as_packet_by_packet(rules, monkeypatch):
    def took():
        return took_ms(sender(20, 20, rules()), 20_000, path(loss=0.001), losses=20)

    quick = took()
    monkeypatch.setattr(Sender, "_pass_rounds", lambda found: False)
    slow = took()
    assert quick != slow
    assert quick == pytest.approx(slow, rel=0.02)
