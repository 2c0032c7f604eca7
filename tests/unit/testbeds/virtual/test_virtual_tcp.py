"""The model of TCP: the time that windows and losses add to a message."""

from __future__ import annotations

import numpy as np
import pytest
from virtual_world import ends, star

from wanbench.harness.plan.pacing import room
from wanbench.harness.testbeds.virtual.congestion import SEGMENT_BYTES
from wanbench.harness.testbeds.virtual.sender import MIN_TIMEOUT_NS
from wanbench.harness.testbeds.virtual.tcp import INITIAL_WINDOW, Connections, Load, Tcp

ROOM = room(1500)

MS = 1_000_000
RTT_MS = 100.0
S = float(SEGMENT_BYTES)


def stalls(sizes, *, tcp=None, rate=None, at=None, losses=None, tail=None):
    """The stall in ms of messages of these sizes, one after another on one connection. `rate` is in bytes/s."""
    connection = Connections(tcp or Tcp(), 1)
    index = np.zeros(1, np.int64)
    found = []
    for i, size in enumerate(sizes):
        drain = 0 if rate is None else round(size / rate * 1e9)
        load = Load(
            np.array([float(size)]), np.array([round(RTT_MS * MS)]), np.array([drain]), np.array([np.inf]), np.zeros(1)
        )
        ready = np.array([i * 1000 * MS if at is None else round(at[i] * 1e9)])
        lost = None if losses is None else np.array([[losses[i]], [0 if tail is None else tail[i]]])
        _, left = connection.stall(index, ready, load, lost)
        found.append(float((left - ready - (drain / ROOM if tcp is None or tcp.ramp else drain))[0]) / MS)
    return found


def test_ten_segments_are_sent_at_once():
    assert stalls([INITIAL_WINDOW]) == [0]


@pytest.mark.parametrize(("segments", "round_trips"), [(11, 1), (30, 1), (31, 2), (70, 2), (71, 3), (150, 3)])
def test_slow_start_doubles_the_window_each_round_trip(segments, round_trips):
    assert stalls([segments * S]) == [round_trips * RTT_MS]


def test_an_open_window_stays_open():
    assert stalls([70 * S] * 3) == [2 * RTT_MS, 0, 0]


def test_the_window_grows_to_at_most_twice_the_bytes_in_flight():
    assert stalls([10 * S, 20 * S, 41 * S]) == [0, 0, RTT_MS]


def test_a_round_trip_filled_by_the_rate_is_no_stall():
    # Ten segments in 100 ms fill the path. The first two leave together, and are acknowledged a round trip after both
    # have left: 20 ms later than the path needs.
    assert stalls([1e6], rate=INITIAL_WINDOW / 0.1 / ROOM) == [pytest.approx(20.0)]
    # At twice that, the first round trip is half empty, and two segments take 10 ms in each of the first two.
    assert stalls([1e6], rate=2 * INITIAL_WINDOW / 0.1 / ROOM) == [pytest.approx(70.0)]


def test_the_window_has_a_maximum():
    long = 3.9 * Tcp().largest_window
    assert stalls([long, long, long], at=[0, 100, 200])[1:] == [3 * RTT_MS] * 2


def test_a_window_opens_to_twice_what_the_buffers_of_hosts_let_through_and_idle_time_halves_that():
    """Linux asks whether the window is less than twice the bytes in flight (`tcp_is_cwnd_limited`)."""
    buffers = Tcp(largest_window=40 * S, slow_start_after_idle=True)
    timeout_s = RTT_MS / 1e3 + MIN_TIMEOUT_NS / 1e9
    assert stalls([70 * S, 41 * S], tcp=buffers) == [2 * RTT_MS, RTT_MS]  # no more than 40 segments at once
    at = [0, 2 * RTT_MS / 1e3 + 1.5 * timeout_s]
    assert stalls([70 * S, 40 * S], at=at, tcp=buffers) == [2 * RTT_MS, 0]  # half of 80
    assert stalls([70 * S, 41 * S], at=at, tcp=buffers) == [2 * RTT_MS, RTT_MS]


def test_idle_connections_keep_their_window_unless_slow_start_after_idle_is_set():
    assert stalls([70 * S] * 2, at=[0, 3600])[1] == 0
    after_idle = Tcp(slow_start_after_idle=True)
    first, second = stalls([70 * S] * 2, at=[0, 3600], tcp=after_idle)
    assert second == first
    timeout_s = (RTT_MS * MS + MIN_TIMEOUT_NS) / 1e9
    assert stalls([30 * S] * 2, at=[0, 0.9 * timeout_s], tcp=after_idle)[1] == 0


def test_without_windows_only_losses_cost_time():
    off = Tcp(ramp=False)
    assert stalls([1e9, 1e9, 1e9], tcp=off, losses=[0, 3, 0]) == [0, RTT_MS, 0]


def test_no_message_overtakes_another_on_a_connection():
    connection = Connections(Tcp(), 1)
    index = np.zeros(1, np.int64)
    first, second, third = np.array([10]), np.array([20]), np.array([30])
    assert connection.in_order(index, second, np.array([50])).tolist() == [50]
    assert connection.in_order(index, third, np.array([40])).tolist() == [50]
    assert connection.in_order(index, first, np.array([40])).tolist() == [40]  # it began before both


@pytest.mark.parametrize("congestion", ["reno", "cubic", "bbr"])
def test_a_host_limits_a_connection_to_a_window_in_a_round_trip(congestion):
    window, rtt_s, rate = 3 << 20, 0.1, 250e6
    tcp = Tcp(congestion=congestion, largest_window=window)
    network = star([1, 1], 1e3 * rtt_s, rate)
    shorter, longer = (ends(network, "direct", nbytes, tcp=tcp)[0][0] for nbytes in (40_000_000, 80_000_000))
    assert longer - shorter == pytest.approx(40e6 / window * rtt_s, rel=0.03)
