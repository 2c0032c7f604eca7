"""The network built from a profile and a placement: buffers, addresses, identity."""

from dataclasses import replace

import pytest
from free_network import free
from virtual_world import star

from wanbench.harness.emulators.plan import (
    UNLIMITED,
    EmulatedNetwork,
    Link,
    Queue,
    build,
    worker_address,
)
from wanbench.netprofiles import Delay, ProfileError, Rate, Ratio, Size, load, uniform
from wanbench.workloads.process.namespace import BUFFER_BYTES


def test_a_uniform_profile_limits_its_sites_and_not_its_paths():
    profile = uniform(3, Delay.from_ms(100), Rate.from_mbit(80), loss=Ratio(0.01))
    network = build(profile, ["w0", "w1", "w2"])
    one_round_trip = Queue(10e6, 1_000_000)
    assert network.up == network.down == (one_round_trip,) * 3
    assert network.links[0, 1] == Link(50_000_000, 0, 0.01, UNLIMITED)
    assert set(network.links) == {(a, b) for a in range(3) for b in range(3) if a != b}


def test_a_buffer_is_never_below_fifty_milliseconds_of_line_rate():
    network = build(uniform(2, Delay.from_ms(0), Rate.from_mbit(80)), ["w0", "w1"])
    assert network.up[0].buffer_bytes == 500_000


def test_a_buffer_is_never_below_sixty_four_packets():
    network = build(uniform(2, Delay.from_ms(10), Rate.from_mbit(0.5)), ["w0", "w1"])
    assert network.up[0].buffer_bytes == 96_000


def test_a_stated_buffer_is_that_of_both_queues_of_each_site():
    profile = uniform(2, Delay.from_ms(100), Rate.from_mbit(80), Size(3000))
    network = build(profile, ["w0", "w1"])
    assert network.up == network.down == (Queue(10e6, 3000),) * 2
    assert build(profile.scaled(0.1), ["w0", "w1"]).up == (Queue(1e6, 300),) * 2


def test_a_site_buffer_holds_its_longest_round_trip_and_a_path_its_own():
    profile = load("world4")
    network = build(profile, ["oregon", "ohio", "london", "tokyo"])
    sites, oregon, ohio = network.sites, network.sites.index("oregon"), network.sites.index("ohio")
    longest = max(profile.rtt("oregon", other).seconds for other in sites if other != "oregon")
    up = profile.site("oregon").up
    path = profile.path("oregon", "ohio")
    assert up is not None
    assert path.rate is not None
    assert network.up[oregon].buffer_bytes == int(up.bytes_per_s * longest)
    expected = int(path.rate.bytes_per_s * max(0.050, profile.rtt("oregon", "ohio").seconds))
    assert network.links[oregon, ohio].queue.buffer_bytes == expected


def test_sites_without_workers_are_not_built():
    network = build(load("world4"), ["tokyo", "oregon", "tokyo"])
    assert sorted(network.sites) == ["oregon", "tokyo"]
    assert [network.sites[site] for site in network.site_of] == ["tokyo", "oregon", "tokyo"]
    assert len(network.links) == 2


def test_a_region_code_places_a_worker_at_its_site():
    assert build(load("world4"), ["us-west-2"]).sites == ("oregon",)


def test_workers_of_one_site_are_half_the_local_round_trip_apart():
    profile = load("world4")
    network = build(profile, ["tokyo", "tokyo"])
    assert network.local_delay_ns == (profile.site("tokyo").local_rtt.ns // 2,)


def test_an_unknown_site_is_refused():
    with pytest.raises(ProfileError, match="has no site 'atlantis'"):
        build(load("world4"), ["atlantis"])


def test_json_round_trips_and_equal_networks_have_equal_keys():
    network = build(load("world4").scaled(0.01), ["oregon", "london", "london"])
    again = EmulatedNetwork.from_json(network.to_json())
    assert again == network
    assert again.key() == network.key()


def test_any_change_changes_the_key():
    base = build(uniform(2, Delay.from_ms(20)), ["w0", "w1"])
    other = build(uniform(2, Delay.from_ms(21)), ["w0", "w1"])
    assert base.key() != other.key()


def test_groups_form_on_the_same_network_without_its_losses():
    profile = uniform(2, Delay.from_ms(20), Rate.from_mbit(8), loss=Ratio(0.3))
    network = build(profile, ["w0", "w1"])
    quiet = network.without_loss()
    assert {link.loss for link in quiet.links.values()} == {0.0}
    assert replace(quiet, links=network.links) == network
    assert [link.delay_ns for link in quiet.links.values()] == [10_000_000] * 2


def test_the_rate_of_a_path_is_that_of_its_slowest_queue():
    network = build(uniform(2, Delay.from_ms(20), Rate.from_mbit(8)), ["w0", "w1"])
    assert network.rate(0, 1) == 1e6
    assert free(network).rate(0, 1) is None


def test_addresses_skip_zero_and_broadcast():
    assert [worker_address(rank) for rank in (0, 249, 250, 63_999)] == [
        "10.99.0.1",
        "10.99.0.250",
        "10.99.1.1",
        "10.99.255.250",
    ]


@pytest.mark.parametrize(
    ("rate", "rtt_ms", "expected"),
    [(None, 8000, BUFFER_BYTES), (12.5e6, 200, BUFFER_BYTES), (1.25e9, 100, 500_000_000), (1.25e9, 8000, 2**31 - 1)],
)
def test_socket_buffers_hold_what_fills_a_path_four_times_or_what_linux_takes(rate, rtt_ms, expected):
    assert star([1, 1, 1], rtt_ms, rate).socket_buffer_bytes == expected


def test_only_an_unusual_mtu_is_part_of_the_key():
    usual = build(uniform(2, Delay.from_ms(20)), ["w0", "w1"])
    jumbo = build(uniform(2, Delay.from_ms(20)), ["w0", "w1"], 9001)
    assert "mtu" not in usual.to_json()
    assert EmulatedNetwork.from_json(jumbo.to_json()) == jumbo
    assert jumbo.key() != usual.key()
    assert not jumbo.same_places(usual)


def test_a_segment_is_sixty_four_kilobytes_in_packets_of_any_size():
    assert replace(star([1, 1]), mtu=1500).longest_segment(0, 1) == 46 * 1500
    assert replace(star([1, 1]), mtu=9001).longest_segment(0, 1) == 8 * 9001
