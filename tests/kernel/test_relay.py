"""What only the relay does: it reports its lateness, and the packets that it could not deliver."""

import time

import pytest
from traffic import network, one_way, send_udp

from wanbench.harness.emulators.plan import worker_address
from wanbench.workloads.process.tun import device_counters

pytestmark = pytest.mark.timed


def test_lateness_cpu_and_traffic_are_reported_for_the_period(relay_lab):
    here = relay_lab(network())
    here.emulator.stats(reset=True)
    one_way(here, 0, 1, 100, nbytes=1500, gap_s=0.001)
    stats = here.emulator.stats(reset=True)
    assert (stats.packets, stats.bytes) == (100, 150_000)
    assert 0 <= stats.lateness_p50_ms <= stats.lateness_p99_ms <= stats.lateness_max_ms
    assert stats.read_lag_p99_ms <= stats.read_lag_max_ms
    assert 0 < stats.cpu_s < stats.seconds
    assert here.emulator.stats().packets == 0


def test_a_packet_to_an_unknown_address_is_counted(relay_lab):
    here = relay_lab(network())
    here.run(0, send_udp, worker_address(9), 3).result()
    time.sleep(0.1)
    assert here.emulator.stats().drops["unknown"] == 3


def test_a_replaced_worker_gets_no_packets_of_its_predecessor(relay_lab):
    here = relay_lab(network(delay_ms=600))
    here.run(0, send_udp, worker_address(1), 50).result()
    here.replace(1)
    time.sleep(1.0)
    stats = here.emulator.stats()
    assert (stats.drops["gone"], stats.packets) == (50, 0)
    assert len(one_way(here, 0, 1, 10, nbytes=64, gap_s=0.001)) == 10


def test_device_counters_see_ip_bytes(relay_lab):
    here = relay_lab(network())
    before = here.run(0, device_counters).result()
    one_way(here, 0, 1, 10, nbytes=1000, gap_s=0.001)
    after = here.run(0, device_counters).result()
    assert after["tx_bytes"] - before["tx_bytes"] == 10_000
    assert after["tx_packets"] - before["tx_packets"] == 10
