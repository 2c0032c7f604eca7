"""Messages on the virtual network: delay, shared pipes, jitter and loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from virtual_world import MS, NO_RAMP, delivered, on_the_wire, star

from wanbench.harness.emulators.plan import UNLIMITED, Queue
from wanbench.harness.testbeds.virtual import streams
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import Connections, Tcp

MEGABYTE = 1_000_000


def arrivals(network, messages, ready=None, *, tcp=NO_RAMP, seed=0):
    """The arrival times in ms of messages (src rank, dst site, bytes), all ready at 0."""
    virtual = VirtualNetwork(network, tcp=tcp, seed=seed)
    src, site, nbytes = (np.array(values, np.int64) for values in zip(*messages, strict=True))
    route = Route(virtual, src, site, nbytes)
    ready = np.zeros(len(src), np.int64) if ready is None else np.array(ready, np.int64)
    return delivered(route, ready, Connections(tcp, len(src))) / MS


def test_a_message_takes_its_delay_and_the_time_of_its_bytes():
    (arrival,) = arrivals(star([1, 1], 100, rate=MEGABYTE * 10), [(0, 1, MEGABYTE)])
    assert arrival == pytest.approx(50 + on_the_wire(MEGABYTE) / 1e4, abs=1e-3)


def test_three_queues_take_the_time_of_the_slowest_and_not_the_sum():
    network = star([1, 1], 100, rate=MEGABYTE * 10)
    link = replace(network.links[0, 1], queue=Queue(MEGABYTE * 5.0, 1 << 40))
    network = replace(network, links={**network.links, (0, 1): link})
    (arrival,) = arrivals(network, [(0, 1, MEGABYTE)])
    assert arrival == pytest.approx(50 + on_the_wire(MEGABYTE) / 5e3, abs=1e-3)


def test_workers_of_a_site_share_its_uplink():
    together = arrivals(star([2, 1], 100, rate=MEGABYTE * 10), [(0, 1, MEGABYTE), (1, 1, MEGABYTE)])
    assert together == pytest.approx([50 + 2 * on_the_wire(MEGABYTE) / 1e4] * 2, abs=1e-3)


def test_senders_of_different_sites_share_the_downlink_of_a_third():
    together = arrivals(star([1, 1, 1], 100, rate=MEGABYTE * 10), [(0, 2, MEGABYTE), (1, 2, MEGABYTE)])
    assert max(together) == pytest.approx(50 + 2 * on_the_wire(MEGABYTE) / 1e4, abs=1e-3)


def test_within_a_site_there_is_only_its_local_delay():
    found = arrivals(star([2, 1], 100, rate=1.0, local_ms=0.1), [(0, 0, MEGABYTE)])
    assert found.tolist() == [0.1]


def test_unlimited_queues_hold_nothing():
    assert arrivals(star([2, 1], 100), [(0, 1, MEGABYTE), (1, 1, MEGABYTE)]).tolist() == [50.0, 50.0]


def test_a_limit_on_one_site_does_not_affect_the_others():
    network = star([1, 1, 1], 100)
    network = replace(network, up=(Queue(MEGABYTE * 10.0, 1 << 40), UNLIMITED, UNLIMITED))
    slow, fast = arrivals(network, [(0, 2, MEGABYTE), (1, 2, MEGABYTE)])
    assert slow == pytest.approx(50 + on_the_wire(MEGABYTE) / 1e4, abs=1e-3)
    assert fast == 50.0


def many(network, count=4000, gap_ms=5.0, nbytes=1000, seed=0):
    """The one-way times in ms of `count` packets, each alone on its path."""
    virtual = VirtualNetwork(network, tcp=NO_RAMP, seed=seed)
    route = Route(virtual, np.array([0]), np.array([1]), np.array([nbytes]))
    sockets = Connections(NO_RAMP, 1)
    sent = [round(i * gap_ms * MS) for i in range(count)]
    return np.array([(delivered(route, np.array([at]), sockets)[0] - at) / MS for at in sent])


def test_jitter_has_the_configured_mean_and_deviation():
    found = many(star([1, 1], 40, jitter_ms=2.0), gap_ms=50.0)
    assert found.mean() == pytest.approx(20.0, abs=0.1)
    assert found.std() == pytest.approx(2.0, rel=0.05)


def test_jitter_keeps_the_order_of_a_path():
    sent = np.arange(4000) * 0.1
    arrival = sent + many(star([1, 1], 40, jitter_ms=2.0), gap_ms=0.1)
    assert (np.diff(arrival) > -1e-9).all()


def test_a_dense_message_waits_for_the_slowest_of_its_last_packets():
    alone, dense = (many(star([1, 1], 40, jitter_ms=2.0), nbytes=size, gap_ms=50.0).mean() for size in (1000, 100_000))
    assert 2 * 2.0 < dense - alone < 3 * 2.0


def test_a_message_within_a_site_takes_its_local_delay_also_if_other_paths_lose_packets_in_bursts():
    net = star([2, 1], 100, loss=0.01, local_ms=0.2)
    bursts = {pair: replace(link, loss_burst=3.0) for pair, link in net.links.items()}
    assert arrivals(replace(net, links=bursts), [(0, 0, 1000)]) == pytest.approx([0.2])


def test_loss_has_the_configured_probability_and_costs_round_trips():
    found = many(star([1, 1], 40, loss=0.02), nbytes=14_480, gap_ms=1000.0)
    late = found > 20.0
    assert late.mean() == pytest.approx(1 - 0.98**10, abs=0.02)
    # Later packets reveal most losses after one round trip. A lost last packet needs a probe after two.
    assert set(found[late].round().tolist()) == {60.0, 100.0}


def test_each_path_has_its_own_random_stream():
    network = star([1, 1, 1], 40, jitter_ms=2.0)
    both = arrivals(network, [(0, 1, 100), (2, 1, 100)])
    alone = arrivals(network, [(2, 1, 100)])
    assert both[1] == alone[0]
    assert both[0] != both[1]


def test_equal_seeds_give_equal_draws_and_others_do_not():
    network = star([1, 1], 40, jitter_ms=2.0, loss=0.01)
    assert (many(network, 100, seed=3) == many(network, 100, seed=3)).all()
    assert (many(network, 100, seed=3) != many(network, 100, seed=4)).any()


def test_counter_streams_are_uniform():
    keys = np.full(100_000, streams.key(1, "a"), np.uint64)
    uniform = streams.uniform(keys, np.arange(100_000, dtype=np.uint64))
    assert 0 < uniform.min() < uniform.max() < 1
    assert np.histogram(uniform, 10, (0, 1))[0] == pytest.approx([10_000] * 10, rel=0.05)


def test_a_stream_draws_its_numbers_one_by_one():
    stream, key = streams.Stream(7), np.full(5, 7, np.uint64)
    assert [stream.next() for _ in range(5)] == streams.uniform(key, np.arange(5, dtype=np.uint64)).tolist()


@pytest.mark.parametrize("count", [0, 1, 3, 10])
def test_some_numbers_are_different_and_any_is_as_likely(count):
    stream, found = streams.Stream(7), np.zeros(10)
    for _ in range(2000):
        some = stream.sample(count, 10)
        assert some == sorted(set(some))
        found[some] += 1
    assert found.sum() == 2000 * count
    assert found == pytest.approx([200 * count] * 10, abs=4 * np.sqrt(200 * count))


def test_without_tcp_a_message_takes_only_its_delay_and_bytes():
    slow, fast = (
        arrivals(star([1, 1], 100, rate=MEGABYTE * 10), [(0, 1, MEGABYTE)], tcp=Tcp(ramp))[0] for ramp in (True, False)
    )
    assert fast == pytest.approx(50 + on_the_wire(MEGABYTE) / 1e4, abs=1e-3)
    assert slow > fast + 400


@pytest.mark.parametrize("congestion", ["reno", "cubic", "bbr"])
@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_tcp_counts_packets_whatever_their_size(congestion, loss):
    """As many packets of another size take as long, if rate, buffer and largest window are in proportion."""

    def arrival(mtu, packets):
        payload = mtu - 52
        queue = Queue(1000.0 * mtu, 40 * mtu)
        network = replace(star([1, 1], 100, loss=loss), up=(queue,) * 2, down=(queue,) * 2, mtu=mtu)
        tcp = Tcp(congestion=congestion, largest_window=500.0 * payload)
        virtual = VirtualNetwork(network, tcp=tcp)
        route = Route(virtual, np.array([0]), np.array([1]), np.array([packets * payload]))
        connections = virtual.connections("any", 0, 1, paced=False)
        return [int(delivered(route, np.array([at * MS]), connections)[0]) for at in (0, 4_000, 4_100)]

    assert arrival(9001, 700) == pytest.approx(arrival(1500, 700), abs=1000)


def test_jumbo_frames_save_headers():
    jumbo = replace(star([1, 1], 100, rate=MEGABYTE * 10), mtu=9001)
    (arrival,) = arrivals(jumbo, [(0, 1, 8949 * 100)])
    assert arrival == pytest.approx(50 + 9001 * 100 / 1e4, abs=1e-3)
