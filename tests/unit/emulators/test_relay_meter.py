"""The relay's counters of its own lateness."""

import os
import socket

import pytest

from wanbench.harness.emulators.relay.process import Meter, Relay
from wanbench.harness.emulators.relay.segment import NO_OFFLOAD, Segment
from wanbench.harness.emulators.relay.switch import Port, Switch
from wanbench.workloads.process.control import Channel

MS = 1e6


def packet(due, port=None):
    return Segment(NO_OFFLOAD + bytes(1500), port, due)


@pytest.fixture
def meter(monkeypatch):
    """A meter whose period lasts one second."""
    now = iter([100.0, 101.0])
    monkeypatch.setattr("wanbench.harness.emulators.relay.process.time.monotonic", lambda: next(now))
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


def test_the_lateness_of_a_segment_is_that_of_all_its_packets(meter):
    segment = packet(0.0)
    segment.packets = 98
    meter.delivered(segment, 3 * MS)
    meter.delivered(packet(0.0), 0.1 * MS)
    report = meter.report(reset=False)
    assert (report["packets"], report["segments"]) == (99, 2)
    assert report["lateness_p50_ms"] == pytest.approx(3, abs=0.02)


def a_process():
    """A descriptor that accepts no write: EINVAL, as from a device that does not like the packet."""
    return os.pidfd_open(os.getpid())


def a_file_to_read():
    """A descriptor that accepts no write: EBADF, as after the end of a worker."""
    return os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize(("fd", "cause"), [(a_process, "refused"), (a_file_to_read, "gone")])
def test_a_packet_that_its_device_refuses_is_not_one_whose_worker_is_gone(fd, cause):
    ours, theirs = socket.socketpair()
    with ours, theirs, os.fdopen(fd(), "rb", closefd=True) as device:
        relay = Relay(Channel(ours))
        relay._write(packet(0.0, Port(0, bytes(4), device.fileno(), segments=True)))
        drops = relay.report(reset=False)["drops"]
    assert {name: count for name, count in drops.items() if count} == {cause: 1}
