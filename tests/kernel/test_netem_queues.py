"""Queues in the kernel: limits, order, and values read back; tc is the independent witness."""

import dataclasses
import time

import pytest
from traffic import MS, network, one_way, other_path, receive_tcp, receive_udp, send_tcp, send_udp
from witness import Witness

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.emulators.plan import UNLIMITED, Link, Queue, worker_address
from wanbench.workloads.process.tun import tcp_counters

pytestmark = [pytest.mark.netem, pytest.mark.timed]

FROM_0 = 0x10  # the class of site 0


def goodput(here, *, warm_s=4.0, seconds=2.0):
    """Return the Mbit/s of one TCP flow from worker 0 to worker 1."""
    received = here.run(1, receive_tcp, worker_address(1), warm_s, seconds)
    here.run(0, send_tcp, worker_address(1))
    return received.result()


def reordered(here):
    return here.run(0, tcp_counters).result()["TCPSACKReorder"]


# ---------------------------------------------------------------- limits


@pytest.mark.long  # that the computed limits give the flow its rate is tested each time
def test_a_packet_limit_of_one_delay_line_halves_a_tcp_flow(netem_lab):
    """Use netem as is common: 50 Mbit/s and 50 ms one way, on one qdisc whose limit is their product."""
    here = netem_lab(network(delay_ms=50))
    tc = Witness(here.emulator.pid)
    burst = ["burst", "64k", "cburst", "64k", "quantum", "1514"]
    tc.change_class("delays", "to1", FROM_0, "rate", "50mbit", "ceil", "50mbit", *burst)
    tc.change_leaf("delays", "to1", FROM_0, "netem", "delay", "50ms", "limit", "208")
    assert 12 < goodput(here, seconds=8.0) < 32  # long enough for several teeth of TCP's sawtooth


def test_the_computed_limits_give_the_same_flow_its_rate(netem_lab):
    here = netem_lab(network(delay_ms=50, path_mbit=50))
    assert goodput(here) >= 0.9 * 50 * 1448 / 1500
    stats = here.emulator.stats()
    assert stats.drops["loss"] == stats.drops["refused"] == 0, "only the byte buffer of the path drops"


def test_a_buffer_holds_its_bytes_whatever_the_size_of_packets(netem_lab):
    """Send a burst into 64 kB, which hold 44 large packets or 1000 small ones: the rest is dropped and counted."""
    for nbytes in (64, 1500):
        link = Link(20 * MS, 0, 0.0, Queue(64_000.0, 64_000))  # so slow that few packets leave during the burst
        here = netem_lab(dataclasses.replace(network(), links={(0, 1): link, (1, 0): link}))
        sent = 2 * 64_000 // nbytes
        received = here.run(1, receive_udp, worker_address(1), sent, 1.5)
        began = time.monotonic()
        here.run(0, send_udp, worker_address(1), sent, nbytes).result()
        seconds = time.monotonic() - began
        arrived = len(received.result())
        dropped = here.emulator.stats().drops["path"]
        assert arrived + dropped == sent
        assert 64_000 <= arrived * nbytes <= 64_000 * (1 + seconds) + 3 * 1500


# ---------------------------------------------------------------- order


def test_tcp_under_jitter_sees_no_reordering(netem_lab):
    here = netem_lab(network(delay_ms=20, jitter_ms=5, path_mbit=20))
    assert goodput(here, warm_s=1.5, seconds=2.0) > 15
    assert reordered(here) == 0


def test_without_the_rate_that_keeps_order_the_same_jitter_reorders(netem_lab):
    here = netem_lab(network(delay_ms=20, jitter_ms=5, path_mbit=20))
    jitter = ["netem", "delay", "20ms", "5ms", "distribution", "normal", "limit", "10000", "rate", "0bit"]
    Witness(here.emulator.pid).change_leaf("delays", "to1", FROM_0, *jitter)
    goodput(here, warm_s=0.5, seconds=1.5)
    assert reordered(here) > 10


@pytest.mark.parametrize("to_ms", [5, 100])
def test_a_delay_that_changes_under_a_tcp_flow_neither_reorders_nor_loses(netem_lab, to_ms):
    # The buffer holds everything that is sent: only the change can lose or reorder packets.
    net = network(delay_ms=40, path_mbit=20, buffer_ms=10_000)
    here = netem_lab(net)
    received = here.run(1, receive_tcp, worker_address(1), 1.0, 2.0)
    here.run(0, send_tcp, worker_address(1))
    time.sleep(1.5)
    here.emulator.update(other_path(net, (0, 1), Link(to_ms * MS, 0, 0.0, Queue(2.5e6, 25_000_000))))
    received.result()
    counters = here.run(0, tcp_counters).result()
    assert counters["TCPSACKReorder"] == counters["RetransSegs"] == 0
    assert sum(here.emulator.stats().drops.values()) == 0


def test_a_rate_changes_under_a_flow(netem_lab):
    net = network(delay_ms=5, path_mbit=20)
    here = netem_lab(net)
    received = here.run(1, receive_tcp, worker_address(1), 2.0, 2.0)
    here.run(0, send_tcp, worker_address(1))
    time.sleep(1.0)
    here.emulator.update(other_path(net, (0, 1), Link(5 * MS, 0, 0.0, Queue(1.25e6, 125_000))))
    assert received.result() == pytest.approx(10 * 1448 / 1500, rel=0.06)


# ---------------------------------------------------------------- read back


def test_tc_shows_the_configured_values(netem_lab):
    net = network(delay_ms=50, jitter_ms=2, loss=0.25, path_mbit=100, up_mbit=200)
    tc = Witness(netem_lab(net).emulator.pid)
    (line,) = [line for line in tc.qdiscs("delays", "to1").splitlines() if "netem" in line]
    assert "parent 1:10" in line
    assert "delay 50ms  2ms" in line
    assert "loss 25%" in line
    assert "rate 100Mbit" in line
    assert "bfifo 110: parent 1:10 limit 1250000b" in tc.qdiscs("paths", "to1")
    (line,) = tc.classes("paths", "to1").splitlines()
    assert "rate 100Mbit ceil 100Mbit burst 25000b cburst 25000b" in line
    assert "rate 200Mbit ceil 200Mbit" in tc.classes("downs", "to1")


def test_a_value_that_differs_in_the_kernel_is_named(netem_lab):
    net = network(delay_ms=20, path_mbit=100)
    here = netem_lab(net)
    tc = Witness(here.emulator.pid)
    tc.change_leaf("delays", "to1", FROM_0, *["netem", "delay", "21ms", "limit", "313500", "rate", "100mbit"])
    message = r"^netem: apply: delays: to1 \(s0 -> s1\): netem: delay_ns: expected 20000000, the kernel has 21000000$"
    with pytest.raises(EmulatorError, match=message):
        here.emulator.apply(net)
    here.emulator.apply(net)  # built again
    assert "delay 20ms" in Witness(here.emulator.pid).qdiscs("delays", "to1")


def test_a_class_that_differs_in_the_kernel_is_named(netem_lab):
    net = network(delay_ms=20, path_mbit=100)
    here = netem_lab(net)
    rates = ["rate", "90mbit", "ceil", "100mbit", "burst", "25000", "cburst", "25000", "quantum", "1514"]
    Witness(here.emulator.pid).change_class("paths", "to1", FROM_0, *rates)
    message = r"^netem: update: paths: to1 \(s0 -> s1\): htb class: rate: expected 12500000, the kernel has 11250000$"
    with pytest.raises(EmulatorError, match=message):
        here.emulator.update(other_path(net, (1, 0), Link(5 * MS, 0, 0.0, UNLIMITED)))


# ---------------------------------------------------------------- counters


def test_every_queue_counts_its_own_drops(netem_lab):
    """Send from two sites to a third, twice the rate of its `down`."""
    free, narrow = UNLIMITED, Queue(1.25e6, 30_000)
    net = dataclasses.replace(network(3, delay_ms=5), down=(free, free, narrow))
    here = netem_lab(net)
    received = here.run(2, receive_udp, worker_address(2), 10_000, 1.0)
    sending = [here.run(rank, send_udp, worker_address(2), 800, 1500, 0.0012) for rank in (0, 1)]
    for each in sending:
        each.result()
    arrived, stats = len(received.result()), here.emulator.stats()
    assert stats.drops == {"up": 0, "path": 0, "down": 1600 - arrived, "loss": 0, "refused": 0}
    assert stats.drops["down"] > 50
    assert [site["down_dropped"] for site in stats.sites] == [0, 0, 1600 - arrived]
    assert [tuple(path[key] for key in ("src", "dst", "packets", "bytes")) for path in stats.paths] == [
        ("s0", "s2", 800, 1_200_000),
        ("s1", "s2", 800, 1_200_000),
    ]
    assert (stats.packets, stats.bytes) == (arrived, 1500 * arrived)
    assert (stats.lateness_p99_ms, stats.overdue_pct, stats.not_ipv4, stats.cpu_s) == (None,) * 4


def test_a_reset_starts_a_new_period(netem_lab):
    here = netem_lab(network())
    one_way(here, 0, 1, 20, nbytes=64, gap_s=0.001)
    assert here.emulator.stats(reset=True).packets == 20
    one_way(here, 0, 1, 5, nbytes=64, gap_s=0.001)
    stats = here.emulator.stats()
    assert (stats.packets, [path["packets"] for path in stats.paths]) == (5, [5])
