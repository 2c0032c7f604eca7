"""Every connection gets its fair share of the narrowest queue on its way."""

from dataclasses import replace

import pytest

from wanbench.harness.emulators.plan import UNLIMITED, EmulatedNetwork, Link, Queue
from wanbench.harness.plan.pacing import paces

PAYLOAD = 1448 / 1500 * 0.98  # without headers, and with room for acknowledgements


def network(site_of, *, up=None, path=None, down=None):
    def queue(rate):
        return UNLIMITED if rate is None else Queue(rate, 1 << 20)

    sites = max(site_of) + 1
    pairs = [(a, b) for a in range(sites) for b in range(sites) if a != b]
    return EmulatedNetwork(
        sites=tuple(f"s{site}" for site in range(sites)),
        site_of=site_of,
        up=(queue(up),) * sites,
        down=(queue(down),) * sites,
        local_delay_ns=(0,) * sites,
        links={pair: Link(10_000_000, 0, 0.0, queue(path)) for pair in pairs},
    )


def test_a_worker_shares_its_link_between_its_peers_and_gives_a_message_all_of_it():
    none, *others = paces(network((0, 1, 2, 3), up=3e6, down=3e6), 0)
    assert none == [None, None]
    assert others == [[pytest.approx(1e6 * PAYLOAD), pytest.approx(3e6 * PAYLOAD)]] * 3


def test_workers_of_one_site_share_its_link_and_not_the_network_between_them():
    here, near, *far = paces(network((0, 0, 1, 1), up=4e6, down=8e6), 0)
    assert here == near == [None, None]
    assert far == [[pytest.approx(1e6 * PAYLOAD), pytest.approx(2e6 * PAYLOAD)]] * 2


@pytest.mark.parametrize("narrow", ["up", "path", "down"])
def test_the_narrowest_queue_decides(narrow):
    rates = {"up": 9e6, "path": 9e6, "down": 9e6, narrow: 1e6}
    shares = {"up": 1e6 / 2, "path": 1e6, "down": 1e6 / 2}
    together, alone = paces(network((0, 1, 2), **rates), 0)[2]
    assert together == pytest.approx(shares[narrow] * PAYLOAD)
    assert alone == pytest.approx(1e6 * PAYLOAD)


def test_all_shares_of_a_queue_together_are_its_rate():
    here = network((0, 0, 0, 1, 2), up=7e6, path=5e6, down=6e6)
    of_rank = [paces(here, rank) for rank in range(5)]
    for site in range(3):
        ranks = [rank for rank in range(5) if here.site_of[rank] == site]
        others = [rank for rank in range(5) if here.site_of[rank] != site]
        assert sum(of_rank[rank][peer][0] for rank in ranks for peer in others) <= 7e6 * PAYLOAD * 1.0001
        assert sum(of_rank[peer][rank][0] for rank in ranks for peer in others) <= 6e6 * PAYLOAD * 1.0001


def test_in_a_ring_a_queue_is_shared_only_by_the_neighbours_between_whom_it_lies():
    here = network((0, 0, 1, 1), up=4e6, path=8e6, down=8e6)
    by_site = paces(here, 1, ring=(0, 1, 2, 3))
    assert by_site[2] == [pytest.approx(4e6 * PAYLOAD), pytest.approx(2e6 * PAYLOAD)]
    in_turn = paces(here, 1, ring=(0, 2, 1, 3))  # both workers of a site send to the other one
    assert in_turn[3] == [pytest.approx(2e6 * PAYLOAD), pytest.approx(2e6 * PAYLOAD)]
    assert by_site[0] == in_turn[0] == [None, None]


def test_without_rates_nothing_is_limited():
    assert paces(network((0, 1, 1)), 0) == [[None, None]] * 3
    assert paces(network((0, 1, 1)), 0, ring=(0, 1, 2)) == [[None, None]] * 3


def test_larger_packets_carry_more_payload_and_need_fewer_acknowledgements():
    jumbo = replace(network((0, 1), up=1e6, down=1e6), mtu=9001)
    assert paces(jumbo, 0)[1] == [pytest.approx(1e6 * 8949 / 9001 * (1 - 30 / 9001))] * 2
