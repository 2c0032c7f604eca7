"""The relay's counters of its own lateness."""

import pytest

from wanbench.harness.emulators.relay.segment import NO_OFFLOAD, Segment
from wanbench.harness.emulators.relay.stats import Meter
from wanbench.harness.emulators.relay.switch import Switch

MS = 1e6


def packet(due):
    return Segment(NO_OFFLOAD + bytes(1500), None, due)


@pytest.fixture
def meter(monkeypatch):
    """A meter whose period lasts one second."""
    now = iter([100.0, 101.0])
    monkeypatch.setattr("wanbench.harness.emulators.relay.stats.time.monotonic", lambda: next(now))
    return Meter(Switch())


def test_packets_delayed_by_one_pause_count_as_one_pause(meter):
    for due in range(10):  # due in ten consecutive milliseconds, all written 20 ms after the first
        meter.delivered(packet(due * MS), 20 * MS)
    assert meter.report(reset=False)["overdue_pct"] == pytest.approx(2.0)


def test_pauses_add_up_and_punctual_packets_add_nothing(meter):
    meter.delivered(packet(0.0), 5 * MS)
    meter.delivered(packet(6 * MS), 6.9 * MS)
    meter.delivered(packet(10 * MS), 15 * MS)
    assert meter.report(reset=False)["overdue_pct"] == pytest.approx(1.0)


def test_a_turn_without_reads_and_the_packets_it_delayed_count_once(meter):
    meter.delivered(packet(2 * MS), 6 * MS)
    meter.turn(0.0, 8 * MS)  # the same pause, longer at its end
    assert meter.report(reset=False)["overdue_pct"] == pytest.approx(0.6)


def test_a_late_wake_up_counts_even_if_no_packet_was_due(meter):
    meter.overslept(2 * MS, 2.9 * MS)
    meter.overslept(4 * MS, 14 * MS)
    meter.delivered(packet(6 * MS), 15 * MS)  # due in that time, and written at its end
    assert meter.report(reset=False)["overdue_pct"] == pytest.approx(1.1)
