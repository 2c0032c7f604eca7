"""CUBIC, BBR and full buffers on the simulated clock, against their equations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wanbench.harness.testbeds.virtual.bbr import BbrConnections
from wanbench.harness.testbeds.virtual.flow import SEGMENT_BYTES, Cubic
from wanbench.harness.testbeds.virtual.tcp import INITIAL_WINDOW, Connections, Load, Tcp

MS = 1_000_000
S = float(SEGMENT_BYTES)


def stalls(connections, sizes, *, begin_s=0.0, rtt_ms=100.0, rate=None, buffer=None, losses=0, apart_s=10.0):
    """The stall in ms of messages one after another on one connection; `rate` in bytes/s, `buffer` in bytes."""
    found = []
    for number, size in enumerate(sizes):
        drain = 0 if rate is None else round(size / rate * 1e9)
        room = None if buffer is None else np.array([float(buffer)])
        load = Load(np.array([float(size)]), np.array([round(rtt_ms * MS)]), np.array([drain]), room)
        ready = np.array([round((begin_s + number * apart_s) * 1e9)])
        lost = np.array([losses]) if losses else None
        left = connections.stall(np.zeros(1, np.int64), ready, load, lost, None).left_ns
        found.append(float((left - ready - drain)[0]) / MS)
    return found


def test_cubic_is_back_at_its_old_window_after_the_cube_root_of_what_it_gave_up():
    cubic, rtt_s = Cubic(), 0.1
    window = cubic.after_loss(1000 * S)
    assert window == pytest.approx(700 * S)
    seconds = math.cbrt(1000 * 0.3 / 0.4)  # K of RFC 9438
    for _ in range(round(seconds / rtt_s)):
        window, _, _ = cubic.avoid(window, window + 1, math.inf, rtt_s * 1e9)
    assert window == pytest.approx(1000 * S, rel=0.01)


def test_cubic_is_not_slower_than_reno_on_short_paths():
    cubic, rounds = Cubic(), 50
    window = cubic.after_loss(20 * S)
    for _ in range(rounds):
        window, _, _ = cubic.avoid(window, window + 1, math.inf, 1e6)
    assert window >= (14 + rounds * 3 * 0.3 / 1.7) * S * 0.999


@pytest.mark.parametrize(("paced", "share"), [(False, 0.5), (True, 1.0)])
def test_cubic_leaves_slow_start_without_a_loss_when_acknowledgements_show_a_full_path(paced, share):
    full, rtt_ns = 1000 * S, 100e6
    ends = Cubic().slow_start_ends(full, rtt_ns, rtt_ns / full, paced=paced)
    assert ends == pytest.approx(share * full)


def test_small_messages_under_bbr_take_half_a_round_trip_to_leave():
    # With gain g, s seconds of sending and a sample of B / (s + RTT): s = (s + RTT) / g.
    settled = stalls(BbrConnections(Tcp(congestion="bbr"), 1), [40e3] * 20, rate=1e9)[-1]
    gain = 2 / math.log(2)
    assert settled == pytest.approx(100.0 / (gain - 1), rel=0.01)


def test_long_messages_under_bbr_use_the_whole_path():
    assert stalls(BbrConnections(Tcp(congestion="bbr"), 1), [50e6] * 3, rate=12.5e6)[1:] == [0, 0]


def test_a_loss_under_bbr_costs_its_round_trip_and_no_window():
    connections = BbrConnections(Tcp(congestion="bbr"), 1)
    stalls(connections, [50e6], rate=12.5e6)
    assert stalls(connections, [1e6], begin_s=100, rate=12.5e6, losses=2) == [200.0]
    assert stalls(connections, [1e6], begin_s=200, rate=12.5e6) == [0]


def opened():
    """A connection with a window of 80 segments whose sender is not paced."""
    connections = Connections(Tcp(), 1, paced=False)
    stalls(connections, [INITIAL_WINDOW, 20 * S, 40 * S], rate=100e6, buffer=1e9)
    return connections


def test_a_burst_that_the_buffer_holds_costs_nothing():
    assert stalls(opened(), [40 * S], begin_s=100, rate=1e6, buffer=40 * S) == [0]


def test_a_burst_beyond_the_buffer_is_lost_and_halves_the_window():
    connections = opened()
    (lost,) = stalls(connections, [40 * S], begin_s=100, rate=1e6, buffer=30 * S)
    # Nothing follows the lost packets: a probe, its answer, and the retransmission, behind what the buffer held.
    assert lost == pytest.approx(4 * 100 + 30 * S / 1e6 * 1e3)
    # Of 80 segments 40 are allowed now. A message of 41 waits for the first acknowledgement.
    assert stalls(connections, [40 * S, 41 * S], begin_s=200, rate=1e9, buffer=1e9) == [
        0,
        pytest.approx(100.0, rel=0.01),
    ]


def test_two_bursts_at_once_share_the_buffer():
    connections, sizes = opened(), [30 * S, 30 * S]
    first, second = stalls(connections, sizes, begin_s=100, rate=1e6, buffer=40 * S, apart_s=0.0)
    assert first == 0
    assert second > 30 * S / 1e6 * 1e3 + 100  # behind the first, and a round trip for what was lost


def test_a_paced_sender_never_overflows_a_buffer():
    connections = Connections(Tcp(), 1)
    assert stalls(connections, [INITIAL_WINDOW, 20 * S, 40 * S], rate=1e6, buffer=1.0) == [0, 0, 0]


def test_a_message_waits_for_the_window_that_the_one_before_it_occupies():
    connections = Connections(Tcp(), 1, paced=False)
    stalls(connections, [INITIAL_WINDOW], rate=1e9, buffer=1e9)  # 20 segments are allowed now
    first, second = stalls(connections, [20 * S, 20 * S], begin_s=100, rate=1e9, buffer=1e9, apart_s=0.0)
    assert first == 0
    assert second == pytest.approx(100.0, rel=0.02)
