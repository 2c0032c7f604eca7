"""The effect of both emulators on real packets: workers in namespaces, the kernel's TCP and UDP."""

import dataclasses
import itertools
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import traffic
from lab import probed
from leftovers import alive, gone_within, host_state, namespaces
from traffic import MS, network, one_way, other_path, receive_tcp, receive_udp, send_tcp, send_udp

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.emulators.impairments import loss_interval
from wanbench.harness.emulators.plan import UNLIMITED, EmulatedNetwork, Link, Queue, worker_address
from wanbench.harness.emulators.probe import TOLERANCES, probe
from wanbench.workloads.process.tun import tcp_counters

pytestmark = pytest.mark.timed

# ---------------------------------------------------------------- fidelity


def test_every_direction_has_its_own_one_way_delay(lab):
    net = network(delay_ms=20)
    there_and_back = {(0, 1): Link(35 * MS, 0, 0.0, UNLIMITED), (1, 0): Link(10 * MS, 0, 0.0, UNLIMITED)}
    net = EmulatedNetwork(net.sites, net.site_of, net.up, net.down, net.local_delay_ns, there_and_back)
    here = lab(net)
    for source, to, delay_ms in ((0, 1, 35), (1, 0, 10)):
        delays = [delay for _, delay in one_way(here, source, to, nbytes=64, gap_s=0.002)]
        assert len(delays) == 40
        assert statistics.median(delays) == pytest.approx(delay_ms, abs=1.0)


def test_one_tcp_flow_gets_the_rate_of_its_path(lab):
    here = lab(network(delay_ms=5, path_mbit=40))
    received = here.run(1, receive_tcp, worker_address(1), 1.0, 2.0)
    here.run(0, send_tcp, worker_address(1))
    assert received.result() == pytest.approx(40 * 1448 / 1500, rel=0.06)


def show_link():
    return subprocess.check_output(["ip", "link", "show", "wan0"], text=True)


def test_jumbo_frames_carry_more_payload_at_the_same_rate(lab):
    """At 9001 bytes 99.4 % of the rate is payload, at 1500 bytes 96.5 %.."""
    here = lab(dataclasses.replace(network(delay_ms=5, path_mbit=40), mtu=9001))
    assert "mtu 9001" in here.run(0, show_link).result()
    received = here.run(1, receive_tcp, worker_address(1), 1.0, 2.0)
    here.run(0, send_tcp, worker_address(1))
    assert received.result() == pytest.approx(40 * 8949 / 9001, rel=0.015)
    paths = here.emulator.stats().paths
    there = next(path for path in paths if (path["src"], path["dst"]) == ("s0", "s1"))
    assert there["bytes"] / there["packets"] == pytest.approx(9001, rel=0.02)


def test_two_workers_of_a_site_share_its_uplink(lab):
    here = lab(network(3, site_of=(0, 0, 1, 2), delay_ms=5, up_mbit=40))
    received = [here.run(rank, receive_tcp, worker_address(rank), 1.5, 2.0) for rank in (2, 3)]
    for source, to in ((0, 2), (1, 3)):
        here.run(source, send_tcp, worker_address(to))
    assert sum(each.result() for each in received) == pytest.approx(40 * 1448 / 1500, rel=0.06)


def test_a_full_buffer_drops_and_tcp_notices(lab):
    here = lab(network(delay_ms=5, path_mbit=20, buffer_ms=10))
    received = here.run(1, receive_tcp, worker_address(1), 0.5, 1.5)
    here.run(0, send_tcp, worker_address(1))
    received.result()
    assert here.emulator.stats().drops["path"] > 0
    assert here.run(0, tcp_counters).result()["RetransSegs"] > 0


def test_counted_losses_are_the_packets_that_do_not_arrive(lab):
    here = lab(network(loss=0.2))
    got = one_way(here, 0, 1, 500, nbytes=64, gap_s=0.0002)
    stats = here.emulator.stats()
    assert 400 - 45 < len(got) < 400 + 45  # five standard deviations
    assert stats.drops["loss"] == 500 - len(got)
    assert stats.paths[0]["packets"] == len(got)


def test_losses_come_in_bursts_as_the_chain_says(lab):
    """Lose 10 % in bursts of 5. Alone, packets would be lost 1.1 in a row."""
    sent, bursty = 4000, with_bursts(network(loss=0.1), 5.0)
    here = lab(bursty)
    lengths = bursts_of(one_way(here, 0, 1, sent, nbytes=64, gap_s=0.0002), sent)
    low, high = loss_interval(sent, 0.1, 5.0, 0.9999)
    assert low <= sum(lengths) <= high
    assert sum(lengths) == here.emulator.stats().drops["loss"]
    deviation = math.sqrt(5.0 * 4.0 / len(lengths))  # of the mean of geometric lengths
    assert statistics.fmean(lengths) == pytest.approx(5.0, abs=4 * deviation)
    here.emulator.update(network(loss=0.1))
    alone = bursts_of(one_way(here, 0, 1, 1000, nbytes=64, gap_s=0.0002), 1000)
    assert statistics.fmean(alone) < 1.5


def with_bursts(net, burst):
    links = {pair: dataclasses.replace(link, loss_burst=burst) for pair, link in net.links.items()}
    return dataclasses.replace(net, links=links)


def bursts_of(got, sent):
    """The lengths of the runs of packets that did not arrive."""
    arrived = [-1, *(number for number, _ in got), sent]
    return [after - before - 1 for before, after in itertools.pairwise(arrived) if after > before + 1]


def test_jitter_keeps_the_order(lab):
    here = lab(network(jitter_ms=5))
    got = one_way(here, 0, 1, 300, nbytes=64, gap_s=0.001)
    assert [number for number, _ in got] == list(range(300))
    assert statistics.stdev(delay for _, delay in got) > 0.5


def test_a_change_in_mid_flow_reorders_and_loses_nothing(lab):
    net = network(delay_ms=100)
    here = lab(net)
    received = here.run(1, receive_udp, worker_address(1), 400, 1.0)
    sent = here.run(0, send_udp, worker_address(1), 400, 64, 0.001)
    time.sleep(0.4)
    here.emulator.update(other_path(net, (0, 1), Link(5 * MS, 0, 0.0, UNLIMITED)))
    sent.result()
    got = received.result()
    assert [number for number, _ in got] == list(range(400))
    assert got[0][1] > 99
    assert got[-1][1] < 7


def test_an_update_in_mid_flow_reorders_and_loses_nothing(lab):
    """Make the path shorter, longer, and change its rate, while 400 packets are in flight."""
    here = lab(network(delay_ms=100, path_mbit=40))
    here.emulator.stats(reset=True)
    received = here.run(1, receive_udp, worker_address(1), 400, 1.0)
    sent = here.run(0, send_udp, worker_address(1), 400, 64, 0.001)
    time.sleep(0.3)
    for delay_ms, mbit in ((5, 20), (60, 80), (2, 30)):
        here.emulator.update(network(delay_ms=delay_ms, path_mbit=mbit))
        time.sleep(0.1)
    sent.result()
    got, stats = received.result(), here.emulator.stats()
    assert [number for number, _ in got] == list(range(400))
    assert got[0][1] > 99
    assert sum(stats.drops.values()) == 0
    assert [(path["src"], path["dst"], path["packets"]) for path in stats.paths] == [("s0", "s1", 400)]


def test_a_cut_loses_only_packets_sent_during_it(lab):
    net = network(delay_ms=50)
    here = lab(net)
    cut = {pair: Link(link.delay_ns, 0, 1.0, link.queue) for pair, link in net.links.items()}
    here.emulator.stats(reset=True)
    received = here.run(1, receive_udp, worker_address(1), 600, 2.0)
    sent = here.run(0, send_udp, worker_address(1), 600, 64, 0.001)
    time.sleep(0.4)
    here.emulator.update(EmulatedNetwork(net.sites, net.site_of, net.up, net.down, net.local_delay_ns, cut))
    time.sleep(0.2)
    here.emulator.update(net)
    sent.result()
    numbers = [number for number, _ in received.result()]
    gaps = [(a, b) for a, b in itertools.pairwise(numbers) if b != a + 1]
    assert len(gaps) == 1, "what was past the cut arrives, and what comes after it has healed"
    ((before, after),) = gaps
    assert (numbers[0], numbers[-1]) == (0, 599)
    assert here.emulator.stats().drops["loss"] == after - before - 1 == 600 - len(numbers) > 50


def test_an_update_to_other_places_is_refused(lab):
    here = lab(network(2))
    with pytest.raises(EmulatorError, match="update: the sites or workers differ from the applied network"):
        here.emulator.update(network(3))
    assert len(one_way(here, 0, 1, 10, nbytes=64)) == 10


def test_the_probe_finds_the_network_that_was_applied(lab):
    net = network(4, delay_ms=30, jitter_ms=0.5, up_mbit=40)
    here = lab(net)
    report = probed(net, here.workers, TOLERANCES[here.emulator.name])
    assert report.reasons == ()
    assert (len(report.rows), report.paths_total) == (4, 12)  # all are equal
    assert report.shared_up is not None
    assert report.network == net.key()
    assert report.one_way_error_ms < 1.3


def test_the_probe_reports_a_network_that_differs(lab):
    net = network(delay_ms=30, path_mbit=40)
    here = lab(net)
    here.emulator.update(other_path(net, (1, 0), Link(36 * MS, 0, 0.0, Queue(2.5e6, 10**6))))
    delay, rate = probe(net, here.workers, tolerance=TOLERANCES["relay"]).reasons
    assert re.match(r"s1 -> s0: one-way delay 36(\.\d+)? ms, configured 30", delay)
    assert re.match(r"s1 -> s0: rate (19\.[89]\d*|20(\.[01]\d*)?) Mbit/s, configured 40 ", rate)


# ---------------------------------------------------------------- start and end


def test_close_leaves_nothing_behind(lab):
    before = host_state()[0]
    here = lab(network(3))
    pids = [here.emulator.pid, *here.pids]
    ours = set().union(*map(namespaces, pids))
    assert len(ours) >= 3
    here.close()
    here.close()
    assert gone_within(2, pids)
    devices, spaces = host_state()
    assert devices == before
    assert not ours & spaces


ORPHAN = """
import sys, time
sys.path[:0] = {paths!r}
from lab import Lab
from traffic import network
from {emulator.__module__} import {emulator.__name__}
lab = Lab(network(3), {emulator.__name__})
print(lab.emulator.pid, *lab.pids, flush=True)
time.sleep(60)
"""


def test_sigkill_of_the_controller_leaves_nothing_behind(emulator):
    here = Path(__file__).parent
    before = host_state()[0]
    program = ORPHAN.format(
        paths=[str(here), str(Path(traffic.__file__).parent), str(here.parents[1])], emulator=emulator
    )
    controller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    with controller:
        pids = [int(pid) for pid in controller.stdout.readline().split()]
        assert len(pids) == 4
        assert all(alive(pid) for pid in pids)
        ours = set().union(*map(namespaces, pids))
        assert len(ours) >= 3
        controller.kill()
    assert gone_within(2, pids)
    devices, spaces = host_state()
    assert devices == before
    assert not ours & spaces


def test_a_killed_emulator_is_reported_as_killed(emulator):
    here = emulator()
    os.kill(here.pid, signal.SIGKILL)
    with pytest.raises(EmulatorError, match=f"^{here.name}: the process was killed by SIGKILL$"):
        here.stats()
    here.close()


def test_a_closed_emulator_is_reported_as_closed(emulator):
    here = emulator()
    here.close()
    with pytest.raises(EmulatorError, match=f"^{here.name}: the emulator was closed$"):
        here.stats()


def test_ctrl_c_does_not_end_an_emulator(emulator):
    with closing(emulator()) as here:
        os.kill(here.pid, signal.SIGINT)
        time.sleep(0.05)
        assert here.stats().packets == 0
