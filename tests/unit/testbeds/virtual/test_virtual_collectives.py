"""The time of an all-reduce on the virtual network: the models of the collectives agree with the law."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from virtual_world import NO_RAMP, ends, on_the_wire, star

from wanbench.harness.plan.law import PredictInputs, all_reduce_time, gloo_rounds
from wanbench.harness.testbeds.virtual.collectives import COLLECTIVES, Gloo
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import Tcp

MIB = 1 << 20
# https://github.com/BinhangYuan/tc_cluster_setting, results/allreduce.md at 21a012d: gloo on AWS under tc.
# nodes, one-way delay in ms, Gbit/s, MB, ms
PUBLISHED = """\
4,1,5,128,485 4,5,2,128,1517 4,10,1,128,2993 4,1,5,256,959 4,5,2,256,2989 4,10,1,256,5909
8,1,5,128,537 8,5,2,128,1814 8,10,1,128,3582 8,1,5,256,1111 8,5,2,256,3562 8,10,1,256,6999
16,1,5,128,612 16,5,2,128,1950 16,10,1,128,3873 16,1,5,256,1239 16,5,2,256,3861 16,10,1,256,7636
"""


def slowest(network, collective, nbytes, **more):
    """Seconds of one all-reduce that all ranks join at 0, for the slowest rank."""
    return max(ends(network, collective, nbytes, **more)[0])


@pytest.mark.parametrize("collective", list(COLLECTIVES))
@pytest.mark.parametrize("workers", [2, 3, 4, 7, 8, 16])
def test_latency_alone_costs_the_round_trips_of_the_law(collective, workers):
    inputs = PredictInputs(workers, 0.0, 0.1, None, 64_000, collective=collective)
    expected = sum(all_reduce_time(inputs, 64_000))
    if (workers, collective) == (2, "gloo"):  # it adds up 16 kB at 10 GB/s before it asks for more, twice
        expected += 2 * 16_000 / 10e9
    assert slowest(star([1] * workers, 100.0), collective, 64_000) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("collective", ["direct", "ring", "hierarchical"])
@pytest.mark.parametrize("workers", [2, 4, 7, 16])
def test_bytes_alone_cost_the_rate_of_the_law(collective, workers):
    nbytes = 64_000_000
    inputs = PredictInputs(workers, 0.0, 0.0, 1e8, nbytes, collective=collective)
    expected = sum(all_reduce_time(inputs, nbytes)) * on_the_wire(nbytes) / nbytes
    assert slowest(star([1] * workers, 0.0, rate=1e8), collective, nbytes) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("mib", [1, 8, 64])
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_a_hop_of_gloo_takes_a_round_trip_and_one_to_two_segments(workers, mib):
    nbytes, rate, rtt_s = mib * MIB, 125e6, 0.05
    hops = gloo_rounds(workers, nbytes)
    segment_s = on_the_wire(nbytes * (workers - 1) // (hops * workers)) / rate
    t = slowest(star([1] * workers, 50.0, rate=rate), "gloo", nbytes)
    assert hops * (rtt_s + segment_s) * 0.99 <= t <= hops * (rtt_s + 2 * segment_s) * 1.01


def test_a_link_that_is_always_full_gives_gloo_its_law():
    nbytes = 64 * MIB
    t = slowest(star([1] * 4, 0.2, rate=12.5e6), "gloo", nbytes)
    law = sum(all_reduce_time(PredictInputs(4, 0.0, 2e-4, 12.5e6, nbytes, collective="gloo"), nbytes))
    assert t == pytest.approx(law * on_the_wire(nbytes) / nbytes, rel=0.02)


@pytest.mark.parametrize("line", re.findall(r"\S+", PUBLISHED))
def test_the_published_times_of_gloo_under_tc_are_predicted_within_20_percent(line):
    (row,) = csv.reader(io.StringIO(line))
    nodes, delay_ms, gbit, mb, published_ms = (int(value) for value in row)
    t = slowest(star([1] * nodes, 2.0 * delay_ms, rate=gbit * 125e6), "gloo", mb * MIB)
    assert 0.8 < t * 1e3 / published_ms < 1.2


@pytest.mark.parametrize("collective", ["direct", "ring", "hierarchical"])
def test_twenty_operations_issued_apart_overlap(collective):
    network = star([1] * 4, 100.0)
    alone = slowest(network, collective, 4000)
    network = star([1] * 4, 100.0 * 6 / alone)  # one operation takes 6 s
    joins = [[0.3 * i] for i in range(20)]
    for join, finished in zip(joins, ends(network, collective, 4000, joins), strict=True):
        assert finished == pytest.approx([join[0] + 6.0] * 4, rel=1e-6)


def test_gloo_runs_two_operations_on_each_channel_and_queues_the_rest():
    network, joins = star([1] * 4, 1000.0), [[0.3 * i] for i in range(20)]
    wide = ends(network, "gloo", 4000, joins, channels=10)
    assert [max(times) for times in wide] == pytest.approx([0.3 * i + 6.0 for i in range(20)])
    narrow = ends(network, "gloo", 4000, joins, channels=1)
    assert [max(times) for times in narrow] == pytest.approx([6.0 * (i // 2 + 1) + 0.3 * (i % 2) for i in range(20)])


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_only_with_two_workers_do_gloos_notes_wait_behind_its_segments(workers):
    plan = Gloo(VirtualNetwork(star([1] * workers)), 64 * MIB)
    chain = next(plan.rounds(np.zeros(workers, np.int64), 0))[0]
    note = next(chain)
    segment = chain.send(note.ready)
    assert (note.connections is segment.connections) == (workers == 2)


def test_operations_in_flight_share_an_uplink():
    rate = 1e6
    network, nbytes = star([1] * 4, 1000.0, rate=rate), 1_000_000
    wire = 2 * 3 / 4 * on_the_wire(nbytes) / rate
    alone = slowest(network, "direct", nbytes)
    finished = [max(times) for times in ends(network, "direct", nbytes, [[0.3 * i] for i in range(20)])]
    assert alone == pytest.approx(0.5 + wire, rel=0.01)
    # Each operation occupies the link for longer than the interval between them, so the link is the limit.
    assert finished[-1] == pytest.approx(20 * wire + 1.0, rel=0.05)


def test_workers_of_one_site_share_its_uplink():
    nbytes, rate = 10_000_000, 1e7
    spread, packed = star([1] * 4, 10.0, rate=rate), star([2, 2], 10.0, rate=rate)
    # Packed, each site sends 2 x 2 of the pieces between sites instead of 3 from each worker.
    ratio = slowest(packed, "direct", nbytes) / slowest(spread, "direct", nbytes)
    assert ratio == pytest.approx(4 / 3, rel=0.02)


def test_hierarchical_sends_one_vector_per_site():
    nbytes, rate = 10_000_000, 1e7
    one, many = (slowest(star([n] * 4, 10.0, rate=rate, local_ms=1.0), "hierarchical", nbytes) for n in (1, 8))
    assert many == pytest.approx(one + 0.002, rel=1e-6)


@pytest.mark.parametrize("collective", list(COLLECTIVES))
def test_no_rank_ends_before_the_last_has_joined(collective):
    late = [0.0, 0.5, 2.0, 0.1]
    (finished,) = ends(star([1] * 4, 100.0), collective, 64_000, [late])
    together = slowest(star([1] * 4, 100.0), collective, 64_000)
    assert all(end > 2.0 for end in finished)
    assert 2.05 <= max(finished) <= 2.0 + together + 1e-9


def test_a_late_rank_delays_a_direct_exchange_only_by_its_own_lateness():
    (finished,) = ends(star([1] * 4, 100.0), "direct", 64_000, [[0.0, 0.0, 0.0, 1.0]])
    assert finished == pytest.approx([1.1, 1.1, 1.1, 1.1], abs=0.0501)
    assert max(finished) == pytest.approx(1.1)


def test_a_ring_costs_two_rounds_of_its_hops_and_not_the_worst_hop_each_time():
    delays = {(0, 1): 10.0, (1, 2): 20.0, (2, 3): 30.0, (3, 0): 140.0}
    network = star([1] * 4, 0.0, delays_ms=delays)
    assert slowest(network, "ring", 4000) == pytest.approx(0.4 - 0.030)


@pytest.mark.parametrize("ms", [1, 20, 100, 300])
@pytest.mark.parametrize("workers", [2, 4, 8, 16])
def test_the_chunks_of_a_ring_hide_as_much_latency_as_in_the_law(workers, ms):
    nbytes, rate = 10_000_000, 12.5e6
    t = slowest(star([1] * workers, float(ms), rate=rate), "ring", nbytes)
    inputs = PredictInputs(workers, 0.0, ms / 1e3, rate, nbytes, collective="ring", chunked=True)
    latency_s, wire_s = all_reduce_time(inputs, nbytes)
    assert t == pytest.approx(latency_s + wire_s * on_the_wire(nbytes) / nbytes, rel=0.03)


@pytest.mark.parametrize("collective", list(COLLECTIVES))
def test_the_order_of_workers_changes_nothing(collective):
    network = star([2, 1, 2], 80.0, rate=1e7, jitter_ms=1.0, loss=0.01, local_ms=0.1)
    joins = [[0.1 * i] for i in range(6)]
    runs = [ends(network, collective, 300_000, joins, tcp=Tcp(), shuffle=seed) for seed in (None, 1, 2)]
    assert runs[0] == runs[1] == runs[2]


def test_windows_open_over_the_first_operations():
    joins = [[5.0 * i] for i in range(4)]
    finished = ends(star([1] * 4, 100.0), "direct", 4_000_000, joins, tcp=Tcp())
    took = [max(times) - join[0] for times, join in zip(finished, joins, strict=True)]
    assert took[0] > 3 * took[1]
    assert took[1:] == pytest.approx([0.1] * 3)
    assert slowest(star([1] * 4, 100.0), "direct", 4_000_000, tcp=NO_RAMP) == pytest.approx(0.1)


def test_a_thousand_workers_take_the_time_of_the_law():
    nbytes, sites = 100_000_000, 32
    network = star([32] * sites, 100.0, rate=1.5625e9)
    crossing = 2 * 32 * (1024 - 32) / 1024 * on_the_wire(nbytes) / 1.5625e9
    assert slowest(network, "direct", nbytes) == pytest.approx(0.1 + crossing, rel=0.03)
