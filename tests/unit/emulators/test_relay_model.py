"""The relay's model of queues and paths, tested with an injected clock."""

import dataclasses
import socket

import pytest
from free_network import free
from hypothesis import given
from hypothesis import strategies as st

from wanbench.harness.emulators.plan import UNLIMITED, EmulatedNetwork, Link, Queue, worker_address
from wanbench.harness.emulators.relay.segment import NO_OFFLOAD, Segment
from wanbench.harness.emulators.relay.switch import Switch, TailDrop

MS = 1_000_000
SIZE = 1000
FOREVER = float("inf")


def network(
    sites=2,
    *,
    delay_ms=10,
    jitter_ms=0.0,
    loss=0.0,
    path=UNLIMITED,
    up=UNLIMITED,
    down=UNLIMITED,
    site_of=None,
):
    site_of = tuple(range(sites)) if site_of is None else site_of
    link = Link(int(delay_ms * MS), int(jitter_ms * MS), loss, path)
    return EmulatedNetwork(
        sites=tuple(f"s{site}" for site in range(sites)),
        site_of=site_of,
        up=(up,) * sites,
        down=(down,) * sites,
        local_delay_ns=(MS // 2,) * sites,
        links={(a, b): link for a in range(sites) for b in range(sites) if a != b},
    )


def other_path(net, pair, link):
    return dataclasses.replace(net, links={**net.links, pair: link})


def switch_of(net, seed=0):
    switch = Switch()
    for rank in range(net.workers):
        switch.attach(rank, address(rank), fd=100 + rank)
    switch.apply(net, seed)
    return switch


def address(rank):
    return socket.inet_aton(worker_address(rank))


def packet(to, number=0, size=SIZE):
    head = b"\x45" + bytes(15) + address(to) + number.to_bytes(4, "big")
    return NO_OFFLOAD + head + bytes(size - len(head))


def number_of(segment):
    return int.from_bytes(segment.data[30:34], "big")


def left(queue, now, size):
    """When the last byte of a packet has left the queue, or None if it was dropped."""
    (sent,) = list(queue.through(Segment(packet(1, 0, size), None, now))) or [None]
    return sent and sent.last


def send(switch, source, to, now, number=0, size=SIZE):
    switch.accept(packet(to, number, size), switch.ports[source], now)


def arrivals(switch, until=FOREVER):
    """The (ms, rank, number) of every packet that is due by then."""
    released = switch.release(until, 1_000_000)
    return [(segment.last / MS, segment.port.rank, number_of(segment)) for segment in released]


def test_a_packet_reaches_its_receiver_after_one_delay():
    switch = switch_of(network(3))
    send(switch, 0, 2, now=5 * MS)
    assert arrivals(switch, until=15 * MS - 1) == []
    assert arrivals(switch, until=15 * MS) == [(15.0, 2, 0)]


def test_packets_within_a_site_have_only_its_local_delay():
    slow = Queue(1000.0, 10**9)
    switch = switch_of(network(2, site_of=(0, 0, 1), up=slow, down=slow, path=slow))
    send(switch, 0, 1, now=0)
    assert arrivals(switch) == [(0.5, 1, 0)]


def test_a_queue_serves_back_to_back_packets_at_its_rate():
    switch = switch_of(network(path=Queue(1e6, 10**6)))  # 1000 bytes take 1 ms
    for number in range(3):
        send(switch, 0, 1, now=0, number=number)
    assert arrivals(switch) == [(11.0, 1, 0), (12.0, 1, 1), (13.0, 1, 2)]


def test_an_idle_queue_does_not_save_up_its_rate():
    switch = switch_of(network(path=Queue(1e6, 10**6)))
    send(switch, 0, 1, now=0)
    send(switch, 0, 1, now=500 * MS)
    send(switch, 0, 1, now=500 * MS)
    assert [due for due, *_ in arrivals(switch)] == [11.0, 511.0, 512.0]


def test_a_packet_passes_up_path_and_down_one_after_another():
    switch = switch_of(network(up=Queue(1e6, 10**6), path=Queue(0.5e6, 10**6), down=Queue(0.25e6, 10**6)))
    send(switch, 0, 1, now=0)
    assert arrivals(switch) == [(1 + 2 + 10 + 4, 1, 0)]


def test_the_workers_of_a_site_share_its_up_rate():
    switch = switch_of(network(3, site_of=(0, 0, 1, 2), up=Queue(1e6, 10**6)))
    for number in range(10):
        send(switch, 0, 2, now=0, number=number)
        send(switch, 1, 3, now=0, number=number)
    assert max(due for due, *_ in arrivals(switch)) == 10 + 20


def test_all_sources_share_the_down_rate_of_a_site():
    switch = switch_of(network(3, down=Queue(1e6, 10**6)))
    for number in range(10):
        send(switch, 0, 2, now=0, number=number)
        send(switch, 1, 2, now=0, number=number)
    assert max(due for due, *_ in arrivals(switch)) == 10 + 20


def test_a_down_queue_serves_packets_in_the_order_of_arrival_and_not_of_sending():
    net = network(3, down=Queue(1e6, 10**6))
    far = Link(50 * MS, 0, 0.0, UNLIMITED)
    net = EmulatedNetwork(net.sites, net.site_of, net.up, net.down, net.local_delay_ns, {**net.links, (0, 2): far})
    switch = switch_of(net)
    send(switch, 0, 2, now=0, number=1)
    send(switch, 1, 2, now=20 * MS, number=2)
    assert arrivals(switch) == [(31.0, 2, 2), (51.0, 2, 1)]


def test_a_late_call_does_not_delay_later_packets():
    switch = switch_of(network(down=Queue(1e6, 10**6)))
    send(switch, 0, 1, now=0)
    send(switch, 0, 1, now=1 * MS)
    assert [due for due, *_ in arrivals(switch, until=900 * MS)] == [11.0, 12.0]


def test_a_full_buffer_drops_the_tail_by_bytes():
    switch = switch_of(network(path=Queue(1e6, 3500)))
    for number in range(5):
        send(switch, 0, 1, now=0, number=number)
    send(switch, 0, 1, now=0, number=9, size=500)
    assert [number for _, _, number in arrivals(switch)] == [0, 1, 2, 9]
    assert switch.drops() == {"up": 0, "path": 2, "down": 0, "loss": 0, "unknown": 0, "idle": 0}


@pytest.mark.parametrize(("mbit", "lost"), [(50, 0), (5, 23)])
def test_a_backlog_keeps_its_bytes_when_the_rate_changes(mbit, lost):
    """41 packets fill 62.5 kB. At 50 Mbit/s later packets find room; at 5 Mbit/s only 625 bytes leave per ms."""
    slow, other = (Queue(rate * 1e6 / 8, 62_500) for rate in (10, mbit))
    queue = TailDrop(slow)
    for _ in range(41):
        left(queue, 0.0, 1500)
    queue.configure(other)
    for ms in range(1, 41):
        left(queue, ms * MS, 1500)
    assert queue.drops == pytest.approx(lost, abs=1)


@pytest.mark.parametrize("cause", ["up", "down"])
def test_drops_are_counted_by_cause(cause):
    switch = switch_of(network(**{cause: Queue(1e6, 1000)}))
    for _ in range(3):
        send(switch, 0, 1, now=0)
    assert len(arrivals(switch)) == 1
    assert switch.drops() == {"up": 0, "path": 0, "down": 0, "loss": 0, "unknown": 0, "idle": 0} | {cause: 2}


def test_a_buffer_drains_while_nothing_arrives():
    queue = TailDrop(Queue(1e6, 2000))
    assert [left(queue, 0, 1000) for _ in range(3)] == [1 * MS, 2 * MS, None]
    assert left(queue, 1 * MS, 1000) == 3 * MS


def test_loss_has_the_configured_probability_and_is_repeated_by_its_seed():
    def survivors(seed):
        switch = switch_of(network(loss=0.1), seed)
        for number in range(5000):
            send(switch, 0, 1, now=0, number=number)
        return [number for _, _, number in arrivals(switch)]

    first = survivors(1)
    assert 4400 < len(first) < 4600
    assert survivors(1) == first
    assert survivors(2) != first


def test_both_directions_lose_packets_independently():
    switch = switch_of(network(loss=0.5))
    for number in range(100):
        send(switch, 0, 1, now=0, number=number)
        send(switch, 1, 0, now=0, number=number)
    arrived = arrivals(switch)
    assert [n for _, rank, n in arrived if rank == 0] != [n for _, rank, n in arrived if rank == 1]


def test_jitter_has_the_configured_mean_and_deviation_if_packets_are_far_apart():
    switch = switch_of(network(jitter_ms=1.0))
    for number in range(2000):
        send(switch, 0, 1, now=number * 100 * MS, number=number)
    delays = [due - 100 * number for due, _, number in arrivals(switch)]
    mean = sum(delays) / len(delays)
    deviation = (sum((d - mean) ** 2 for d in delays) / len(delays)) ** 0.5
    assert mean == pytest.approx(10, abs=0.1)
    assert deviation == pytest.approx(1.0, abs=0.1)


def test_jitter_never_makes_a_packet_overtake_another():
    switch = switch_of(network(jitter_ms=3.0))
    for number in range(500):
        send(switch, 0, 1, now=number * MS / 10, number=number)
    arrived = arrivals(switch)
    assert [number for _, _, number in arrived] == list(range(500))
    assert [due for due, *_ in arrived] == sorted(due for due, *_ in arrived)


def test_after_a_change_to_a_shorter_delay_no_packet_overtakes():
    switch = switch_of(network(delay_ms=100))
    send(switch, 0, 1, now=0, number=1)
    switch.update(other_path(switch.network, (0, 1), Link(5 * MS, 0, 0.0, UNLIMITED)))
    send(switch, 0, 1, now=10 * MS, number=2)
    send(switch, 0, 1, now=200 * MS, number=3)
    assert arrivals(switch) == [(100.0, 1, 1), (100.0, 1, 2), (205.0, 1, 3)]


def test_a_change_of_one_path_leaves_the_other_direction_alone():
    switch = switch_of(network(delay_ms=10))
    switch.update(other_path(switch.network, (0, 1), Link(30 * MS, 0, 0.0, UNLIMITED)))
    send(switch, 0, 1, now=0)
    send(switch, 1, 0, now=0)
    assert arrivals(switch) == [(10.0, 0, 0), (30.0, 1, 0)]


@pytest.mark.parametrize("after", [(0, 1), (0, 0)], ids=["same places", "other places"])
def test_a_new_network_neither_loses_nor_overtakes_packets_in_flight(after):
    switch = switch_of(network(delay_ms=100, down=Queue(1e6, 10**6)))
    for number in range(3):
        send(switch, 0, 1, now=0, number=number)
    assert arrivals(switch, until=100 * MS) == []  # the first ones are in the down queue by now
    switch.apply(network(delay_ms=0, site_of=after), seed=0)
    send(switch, 0, 1, now=100 * MS, number=3)
    arrived = arrivals(switch)
    assert [number for _, _, number in arrived] == [0, 1, 2, 3]
    assert [due for due, *_ in arrived][:3] == [101.0, 102.0, 103.0]


def test_packets_without_a_receiver_count_as_unknown_and_ipv6_separately():
    switch = switch_of(network())
    send(switch, 0, 7, now=0)
    switch.accept(NO_OFFLOAD + b"\x60" + bytes(39), switch.ports[0], 0)
    assert arrivals(switch) == []
    assert switch.drops()["unknown"] == 1
    assert switch.not_ipv4 == 1


def test_packets_of_a_worker_that_only_an_earlier_network_used_are_dropped_as_idle():
    """TCP connections of the cell before can still be closing. These packets disturb nothing."""
    switch = switch_of(network(3))
    switch.apply(network(2), seed=0)
    send(switch, 0, 2, now=0)
    send(switch, 2, 0, now=0)
    assert arrivals(switch) == []
    assert switch.drops() == {"up": 0, "path": 0, "down": 0, "loss": 0, "unknown": 0, "idle": 2}


def test_a_replacement_gets_no_packet_sent_to_the_worker_before():
    switch = switch_of(network())
    send(switch, 0, 1, now=0)
    old = switch.ports[1]
    new = switch.attach(1, address(1), fd=999)
    send(switch, 0, 1, now=0)
    assert [segment.port for segment in switch.release(FOREVER, 10)] == [old, new]


def test_release_returns_at_most_the_limit_and_keeps_the_rest():
    switch = switch_of(network())
    for number in range(5):
        send(switch, 0, 1, now=0, number=number)
    assert len(switch.release(FOREVER, 2)) == 2
    assert switch.next_due() == 10 * MS
    assert [number for _, _, number in arrivals(switch)] == [2, 3, 4]
    assert switch.next_due() is None


def test_counters_are_per_path_and_can_be_reset():
    switch = switch_of(network(3, path=Queue(1e6, 1500)))
    for _ in range(2):
        send(switch, 0, 1, now=0)
    send(switch, 2, 1, now=0)
    carried = {"packets": 1, "bytes": SIZE, "lost": 0}
    assert switch.path_counters() == [
        {"src": "s0", "dst": "s1", **carried, "dropped": 1},
        {"src": "s2", "dst": "s1", **carried, "dropped": 0},
    ]
    switch.reset_counters()
    assert switch.path_counters() == []
    assert set(switch.drops().values()) == {0}


sends = st.lists(
    st.tuples(st.integers(0, 50 * MS), st.integers(0, 3), st.integers(0, 3), st.integers(24, 1500), st.booleans()),
    max_size=60,
)


@given(sends, st.integers(0, 5))
def test_every_packet_is_delivered_once_in_order_or_counted(events, seed):
    limited = Queue(2e6, 4000)
    net = network(3, site_of=(0, 1, 2, 2), delay_ms=6, jitter_ms=2, loss=0.1, path=limited, up=limited, down=limited)
    switch = switch_of(net, seed)
    delivered, sent = [], 0
    for number, (now, source, to, size, change) in enumerate(sorted(events)):
        delivered += switch.release(now, 1000)
        if change:
            switch.apply(free(net) if number % 2 else net, seed)
        if source != to:
            send(switch, source, to, now, number, size)
            sent += 1
    delivered += switch.release(FOREVER, 1000)
    assert len(delivered) + sum(switch.drops().values()) == sent
    order = sorted(events)
    for source_site in range(3):
        for rank in range(4):
            path = [
                number_of(segment)
                for segment in delivered
                if segment.port.rank == rank and net.site_of[order[number_of(segment)][1]] == source_site
            ]
            assert path == sorted(path)


def test_an_update_continues_the_random_numbers_of_a_path():
    """Only `apply` restarts them. Otherwise a loss that is switched on again would hit the same packets again."""

    def fates(change):
        switch = switch_of(network(loss=0.5), seed=3)
        lost = []
        for number in range(200):
            if number == 100:
                change(switch)
            before = switch.drops()["loss"]
            switch.accept(packet(1, number), switch.ports[0], number * MS)
            lost.append(switch.drops()["loss"] > before)
        return lost

    undisturbed = fates(lambda switch: None)
    assert fates(lambda switch: switch.update(network(loss=0.5))) == undisturbed
    again = fates(lambda switch: switch.apply(network(loss=0.5), 3))
    assert again[100:] == undisturbed[:100] != undisturbed[100:]


def test_an_update_keeps_the_order_and_the_packets_in_flight():
    switch = switch_of(network(delay_ms=100))
    switch.accept(packet(1, 0), switch.ports[0], 0)
    switch.update(network(delay_ms=1))
    switch.accept(packet(1, 1), switch.ports[0], 10 * MS)
    switch.update(network(delay_ms=1, loss=1.0))
    switch.accept(packet(1, 2), switch.ports[0], 20 * MS)
    out = switch.release(FOREVER, 10)
    assert [(number_of(segment), segment.last) for segment in out] == [(0, 100 * MS), (1, 100 * MS)]
    assert switch.drops()["loss"] == 1


def test_after_a_change_to_a_faster_rate_no_packet_is_due_before_the_backlog():
    """Lateness is measured against due times, and a packet that waits behind others is not late."""
    slow, fast = (Queue(mbit * 1e6 / 8, 1_000_000) for mbit in (1, 50))
    switch = switch_of(network(delay_ms=1, down=slow))
    for number in range(10):
        switch.accept(packet(1, number), switch.ports[0], number * 1000.0)
    assert switch.release(5 * MS, 100) == [], "they wait in the down queue"
    switch.update(network(delay_ms=1, down=fast))
    for number in range(10, 20):
        switch.accept(packet(1, number), switch.ports[0], 10 * MS + number * 1000.0)
    released = switch.release(1000 * MS, 100)
    dues = [segment.last for segment in released]
    assert [number_of(segment) for segment in released] == list(range(20))
    assert dues == sorted(dues)


def test_an_update_with_other_sites_is_refused():
    with pytest.raises(ValueError, match="the sites or workers differ from the applied network"):
        switch_of(network(2)).update(network(3))
