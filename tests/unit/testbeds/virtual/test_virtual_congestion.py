"""CUBIC, BBR and full buffers on the simulated clock, against their equations."""

from __future__ import annotations

import math
from collections import deque
from functools import partial

import numpy as np
import pytest

from wanbench.harness.plan.pacing import room
from wanbench.harness.testbeds.virtual.bbr import BbrConnections
from wanbench.harness.testbeds.virtual.congestion import SEGMENT_BYTES, Cubic
from wanbench.harness.testbeds.virtual.noise import lost_packets
from wanbench.harness.testbeds.virtual.tcp import INITIAL_WINDOW, Connections, Load, Tcp

ROOM = room(1500)

MS = 1_000_000
S = float(SEGMENT_BYTES)


def stalls(connections, sizes, *, begin_s=0.0, rtt_ms=100.0, rate=None, buffer=None, losses=0, apart_s=10.0):
    """How much longer in ms messages take than their bytes at the pace, one after another on one connection.

    `rate` is in bytes/s, `buffer` in bytes.
    """
    found = []
    for number, size in enumerate(sizes):
        drain = 0 if rate is None else round(size / rate * 1e9)
        room = np.array([np.inf if buffer is None else float(buffer)])
        load = Load(np.array([float(size)]), np.array([round(rtt_ms * MS)]), np.array([drain]), room, np.zeros(1))
        ready = np.array([round((begin_s + number * apart_s) * 1e9)])
        lost = np.array([[losses], [0]]) if losses else None
        _, left = connections.stall(np.zeros(1, np.int64), ready, load, lost)
        paced_ns = round(drain / ROOM) if connections.paced else drain
        found.append(float((left - ready - paced_ns)[0]) / MS)
    return found


def after_round_trips(cubic, window, count, rtt_ns):
    """The window after each of so many round trips, which acknowledge a window each."""
    for number in range(count):
        window = cubic.avoid(window, window, number * rtt_ns, rtt_ns)
        yield window


def test_cubic_is_back_at_its_old_window_after_the_cube_root_of_what_it_gave_up():
    cubic = Cubic()
    window = cubic.after_loss(1000 * S)
    assert window == pytest.approx(700 * S)
    seconds = math.cbrt(1000 * 0.3 / 0.4)  # K of RFC 9438
    assert list(after_round_trips(cubic, window, round(seconds / 0.1), 100e6))[-1] == pytest.approx(1000 * S, rel=0.01)


def test_cubic_is_not_slower_than_reno_on_short_paths():
    cubic, rounds = Cubic(), 50
    *_, window = after_round_trips(cubic, cubic.after_loss(20 * S), rounds, 1e6)
    assert window >= (14 + rounds * 3 * 0.3 / 1.7) * S * 0.99


def test_the_clock_of_cubic_stands_still_while_a_connection_is_idle():
    idle, busy = Cubic(), Cubic()
    window = idle.after_loss(1000 * S), busy.after_loss(1000 * S)
    for cubic in (idle, busy):
        cubic.avoid(window[0], S, 0.0, 100e6)
    idle.resumed(60e9)
    assert idle.avoid(window[0], S, 61e9, 100e6) == busy.avoid(window[0], S, 1e9, 100e6)


def test_cubic_leaves_slow_start_when_acknowledgements_arrive_for_half_a_round_trip():
    rtt_ns, gap_ns, cubic = 100e6, 1e6, Cubic()
    cubic.slow_start_ends(S, S, 0.0, rtt_ns, paced=False)  # the shortest round trip
    times = [rtt_ns + number * gap_ns for number in range(100)]
    ended = next(time for time in times if cubic.slow_start_ends(1000 * S, S, time, rtt_ns, paced=False))
    assert ended - rtt_ns == pytest.approx(rtt_ns / 2, abs=2 * gap_ns)


@pytest.mark.parametrize(("late_ns", "ends"), [(0.11, False), (0.13, True)])
def test_cubic_leaves_slow_start_when_eight_acknowledgements_are_late_by_an_eighth_of_a_round_trip(late_ns, ends):
    rtt_ns, cubic = 100e6, Cubic()
    cubic.slow_start_ends(S, S, 0.0, rtt_ns, paced=True)
    late = rtt_ns * (1 + late_ns)
    assert [cubic.slow_start_ends(1000 * S, S, rtt_ns + i, late, paced=True) for i in range(8)] == [False] * 7 + [ends]


def test_small_messages_under_bbr_take_half_a_round_trip_to_leave():
    # With gain g, s seconds of sending and a sample of B / (s + RTT): s = (s + RTT) / g.
    settled = stalls(BbrConnections(Tcp(congestion="bbr"), 1), [40e3] * 20, rate=1e9)[-1]
    gain = 2 / math.log(2)
    assert settled == pytest.approx(100.0 / (gain - 1), rel=0.01)


def last_under_bbr(packets, apart_ms, rtt_ms=100.0, messages=60):
    """How many ms the last message takes to leave, if each packet is measured as in `tcp_rate.c` of Linux."""
    rate, now, delivered, delivered_at, first_sent = 10 / rtt_ms, 0.0, 0, 0.0, 0.0
    flying = deque()
    for number in range(messages):
        now = begin = max(now, number * apart_ms)
        for _ in range(packets):
            while flying and flying[0][0] + rtt_ms <= now:
                sent, before, before_at, first = flying.popleft()
                delivered, delivered_at, first_sent = delivered + 1, sent + rtt_ms, sent
                rate = max(rate, (delivered - before) / max(sent - first, delivered_at - before_at))
            if not flying:
                delivered_at = first_sent = now
            flying.append((now, delivered, delivered_at, first_sent))
            now += math.log(2) / 2 / rate
    return now - begin


@pytest.mark.parametrize("apart_ms", [60, 80, 90, 110, 120, 140, 300])
def test_messages_under_bbr_take_as_long_as_packet_by_packet(apart_ms):
    connections, size = BbrConnections(Tcp(congestion="bbr"), 1), 100 * S
    settled = stalls(connections, [size] * 60, rate=1e9, apart_s=apart_ms / 1e3)[-1]
    assert settled == pytest.approx(last_under_bbr(100, apart_ms), rel=0.3)


def test_long_messages_under_bbr_use_the_whole_path():
    assert stalls(BbrConnections(Tcp(congestion="bbr"), 1), [50e6] * 3, rate=12.5e6)[1:] == [0, 0]


def test_losses_under_bbr_cost_a_round_trip_at_the_end_and_what_is_sent_again_but_no_window():
    connections = BbrConnections(Tcp(congestion="bbr"), 1)
    stalls(connections, [50e6], rate=12.5e6)
    short, long = 80 / math.ceil(1e6 / S), 4000 / math.ceil(50e6 / S)  # ms that a packet takes
    near = partial(pytest.approx, rel=0.02)
    assert stalls(connections, [1e6], begin_s=100, rate=12.5e6, losses=2) == [near(100 + 2 * short)]
    assert stalls(connections, [1e6], begin_s=200, rate=12.5e6) == [0]
    assert stalls(connections, [50e6], begin_s=300, rate=12.5e6, losses=345) == [near(100 + 345 * long)]
    assert stalls(connections, [50e6], begin_s=400, rate=12.5e6, losses=4) == [near(10 + 4 * long)]


def opened():
    """A connection with a window of 80 segments whose sender is not paced."""
    connections = Connections(Tcp(), 1, paced=False)
    stalls(connections, [INITIAL_WINDOW, 20 * S, 40 * S], rate=100e6, buffer=1e9)
    return connections


def test_a_burst_that_the_buffer_holds_costs_nothing():
    assert stalls(opened(), [40 * S], begin_s=100, rate=1e6, buffer=40 * S) == [0]


def test_two_bursts_at_once_share_the_buffer():
    connections, sizes = opened(), [30 * S, 30 * S]
    first, second = stalls(connections, sizes, begin_s=100, rate=1e6, buffer=40 * S, apart_s=0.0)
    assert first == 0
    assert second > 30 * S / 1e6 * 1e3 + 100  # behind the first, and a round trip for what was lost


def test_a_paced_sender_never_overflows_a_buffer():
    paced = [
        stalls(Connections(Tcp(), 1), [INITIAL_WINDOW, 20 * S, 40 * S], rate=1e6, buffer=room) for room in (1, 1e9)
    ]
    assert paced[0] == paced[1]


@pytest.mark.parametrize(("lossy", "gain"), [(False, 2.0), (True, 1.2)])
def test_a_paced_sender_spreads_its_window_over_a_part_of_a_round_trip(lossy, gain):
    """20 segments with a window of 40 leave two at a time, the second pair after half of its gap."""
    connections = Connections(Tcp(), 1)
    connections._window[0], connections._threshold[0] = 40 * S, 40 * S if lossy else math.inf
    rate = 1e9  # of the path; the pace is a little lower
    (late,) = stalls(connections, [20 * S], begin_s=100, rate=rate)
    gap_ms = 100.0 / gain * 2 / 40
    assert late == pytest.approx(8.5 * gap_ms + (2 - 20) * S / (rate * ROOM) * 1e3)


def test_a_paced_message_opens_the_window_to_twice_what_is_on_its_way_and_not_to_twice_its_bytes():
    connections = Connections(Tcp(), 1)
    connections._window[0] = 1000 * S
    stalls(connections, [900 * S], rate=100 * S / 0.1)  # 100 segments in a round trip
    assert connections._window[0] == 1000 * S


def test_a_message_waits_for_the_window_that_the_one_before_it_occupies():
    connections = Connections(Tcp(), 1, paced=False)
    stalls(connections, [INITIAL_WINDOW], rate=1e9, buffer=1e9)  # 20 segments are allowed now
    first, second = stalls(connections, [20 * S, 20 * S], begin_s=100, rate=1e9, buffer=1e9, apart_s=0.0)
    assert first == 0
    assert second == pytest.approx(100.0, rel=0.02)


def left_ms(connections, at_ms, segments, *, losses=0, rate=1e6, loss=None):
    """When a message that is ready at `at_ms` has left; `rate` in bytes/s."""
    size, ready = segments * S, np.array([round(at_ms * MS)])
    path = np.array([np.inf]), np.array([loss or 0.0])
    load = Load(np.array([size]), np.array([100 * MS]), np.array([round(size / rate * 1e9)]), *path)
    lost = np.array([[losses], [0]]) if losses else None
    return float(connections.stall(np.zeros(1, np.int64), ready, load, lost)[1][0]) / MS


@pytest.mark.parametrize("paced", [True, False])
def test_a_message_that_was_ready_earlier_goes_before_those_that_were_computed_earlier(paced):
    def opened():
        found = Connections(Tcp(), 1, paced=paced)
        left_ms(found, 0, 100)
        return found

    alone, late = opened(), opened()
    expected = left_ms(alone, 5000, 50, losses=1)
    left_ms(late, 5500, 50, losses=2)
    assert left_ms(late, 5000, 50, losses=1) == pytest.approx(expected, abs=40 * S / 1e6 * 1e3)
    assert left_ms(late, 9000, 20) < 9000 + 500


def test_a_connection_is_followed_only_until_everything_is_acknowledged():
    connections = opened()
    left_ms(connections, 100_000, 40, losses=1)
    assert connections._followed.among(np.array([0]))
    left_ms(connections, 200_000, 10)
    assert not connections._followed.among(np.array([0]))
    assert connections._window[0] == connections._threshold[0] < 80 * S


def test_a_full_path_is_followed_from_the_first_loss_until_everything_is_acknowledged():
    connections, one = Connections(Tcp(), 1), np.array([0])
    full = 80 * S / 0.1  # a window of 80 segments fills the path
    for number in range(10):
        left_ms(connections, 1000 * number, 400, rate=full, loss=1e-7)
    assert not connections._followed.among(one)
    left_ms(connections, 10_000, 400, rate=full, loss=1e-7, losses=1)
    left_ms(connections, 10_050, 400, rate=full, loss=1e-7)
    assert connections._followed.among(one)
    left_ms(connections, 60_000, 10, rate=full, loss=1e-7)
    assert not connections._followed.among(one)


@pytest.mark.parametrize(("packets", "loss"), [(400_000, 0.01), (900_000, 0.001), (3_000, 0.5), (900, 0.9)])
def test_the_number_of_lost_packets_of_a_long_message_is_binomial(packets, loss):
    quantiles = np.arange(0.0005, 1, 0.001)
    lost = np.array([lost_packets(float(quantile), packets, loss) for quantile in quantiles])
    assert lost.mean() == pytest.approx(packets * loss, rel=0.002)
    assert lost.std() == pytest.approx(math.sqrt(packets * loss * (1 - loss)), rel=0.02)


def test_lost_packets_follow_from_the_seed_and_the_name():
    def left(seed, name):
        connections = Connections(Tcp(), 1, seed=seed, name=(name,))
        return [left_ms(connections, 10_000 * number, 300, losses=3) for number in range(5)]

    assert left(1, "a") == left(1, "a")
    assert left(1, "a") != left(2, "a")
    assert left(1, "a") != left(1, "b")
