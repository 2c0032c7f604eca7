"""The probe's schedule of packets for a network, and its verdict on the packets that arrived."""

import dataclasses

import pytest

from wanbench.harness.emulators.impairments import Jitter, loss_interval
from wanbench.harness.emulators.plan import UNLIMITED, EmulatedNetwork, Link, Queue
from wanbench.harness.emulators.probe import (
    TOLERANCES,
    Arrival,
    ProbeReport,
    burst_train,
    dispersion,
    flows_of,
    inversions,
    judge,
    judge_shared_up,
    rounds_of,
    rounds_to_measure,
    shared_up_flows,
    wire_ns,
)

RELAY = TOLERANCES["relay"]
MS = 1_000_000
LINK = Link(50 * MS, 0, 0.0, UNLIMITED)
SINGLE = {"start_ns": 0, "packets": 40, "segment": 1, "bytes": 64, "burst": 1, "spacing_ns": MS}
BURST = {"start_ns": 100 * MS, "packets": 40, "segment": 1, "bytes": 1000, "burst": 40, "spacing_ns": 0}


def singles(delay_ms, count=40, spread_ms=0.0):
    def arrived(number):
        late = spread_ms * (-1 if number % 2 else 1)
        return int((number + delay_ms + late) * MS)

    return [Arrival(0, number, number * MS, arrived(number), 1) for number in range(count)]


def burst(mbit, count=40):
    return [Arrival(1, number, 100 * MS, int(150 * MS + number * 1000 * 8e3 / mbit), 1) for number in range(count)]


def verdict(arrivals, *, link=LINK, rate=None, trains=(SINGLE,), tolerance=RELAY, wire=0.0, paths_judged=1):
    return judge(
        ("here", "there"),
        link,
        rate,
        wire,
        trains,
        arrivals,
        tolerance=tolerance,
        paths_judged=paths_judged,
    )


def test_one_late_packet_does_not_change_the_measured_delay():
    arrivals = singles(50.2)
    arrivals[7] = Arrival(0, 7, 7 * MS, 90 * MS, 1)
    row = verdict(arrivals)
    assert row.measured_one_way_ms == pytest.approx(50.2)
    assert row.error_ms == pytest.approx(0.2)


def test_a_delay_out_of_tolerance_is_refused_with_both_values():
    row = verdict(singles(51.2))
    assert row.reasons == ("here -> there: one-way delay 51.20 ms, configured 50.00 ms, allowed +-1.00 ms",)
    assert not row.ok


def test_the_relay_may_be_two_percent_off_and_netem_one():
    link = Link(200 * MS, 0, 0.0, UNLIMITED)
    assert verdict(singles(203.5), link=link, tolerance=RELAY).ok
    assert not verdict(singles(203.5), link=link, tolerance=TOLERANCES["netem"]).ok


def test_the_transmission_time_of_a_packet_is_not_part_of_its_delay():
    assert verdict(singles(53), wire=3.0 * MS).measured_one_way_ms == pytest.approx(50)


def test_missing_jitter_is_noticed():
    link = Link(50 * MS, 2 * MS, 0.0, UNLIMITED)
    assert verdict(singles(50, spread_ms=2), link=link).ok
    row = verdict(singles(50), link=link)
    assert row.reasons == ("here -> there: jitter 0.00 ms, configured 2.00 ms",)


def test_packets_of_a_train_of_segments_that_a_receiver_missed_are_not_losses_of_the_path():
    fast = BURST | {"segment": 10}
    assert verdict([*singles(50), *burst(100, count=20)], trains=(SINGLE, fast)).lost == 0
    assert verdict([*singles(50), *burst(100, count=20)], trains=(SINGLE, BURST)).lost == 20


def test_a_rate_between_90_and_101_percent_is_accepted():
    def reasons(mbit):
        return verdict(singles(50) + burst(mbit), rate=12.5e6, trains=(SINGLE, BURST)).reasons

    assert reasons(91) == reasons(100) == reasons(100.9) == ()
    assert reasons(80) == ("here -> there: rate 80 Mbit/s, configured 100 Mbit/s, allowed 90 to 101 %",)
    assert len(reasons(102)) == 1


def test_a_pause_of_the_receiver_does_not_change_the_measured_rate():
    arrivals = [(number, number * MS + (30 * MS if number >= 40 else 0)) for number in range(80)]
    assert dispersion(arrivals, 1000) == pytest.approx(1e6)


def test_a_rate_needs_four_packets():
    assert dispersion([(0, 0), (1, 1), (2, 2)], 1000) is None


def test_lost_packets_do_not_lower_the_rate_of_the_others():
    arrivals = [(number, number * MS) for number in range(80) if number % 5]
    assert dispersion(arrivals, 1000) == pytest.approx(1e6)


def test_losses_before_the_line_do_not_raise_the_rate():
    ahead_of_line = [(number, (number - (number > 50)) * MS) for number in range(100) if number != 50]
    assert dispersion(ahead_of_line, 1000) == pytest.approx(1e6)


def test_overtaken_packets_are_counted():
    assert inversions([(0, 0, 0, 0), (0, 2, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0), (0, 3, 0, 0)]) == 2
    arrivals = singles(50)
    arrivals[3], arrivals[4] = arrivals[4], arrivals[3]
    assert verdict(arrivals).reasons == ("here -> there: 1 packets were overtaken",)


def test_a_lost_packet_on_a_path_without_loss_is_refused():
    assert verdict(singles(50)[:-1]).reasons == (
        "here -> there: 1 of 40 packets lost, expected 0 to 0 with a loss of 0 %",
    )


def test_without_received_packets_nothing_is_measured():
    row = verdict([])
    assert row.measured_one_way_ms is None
    assert row.reasons[0] == "here -> there: only 0 of the single packets arrived, too few to measure the delay"


def test_the_binomial_interval_is_exact():
    # scipy.stats.binom.interval(0.99, 1000, 0.01) and (0.99, 20, 0.5)
    assert loss_interval(1000, 0.01, 0, 0.99) == (3, 19)
    assert loss_interval(20, 0.5, 0, 0.99) == (4, 16)
    assert loss_interval(100, 0.0, 0, 0.99) == (0, 0)
    assert loss_interval(100, 1.0, 0, 0.99) == (100, 100)


def test_the_loss_interval_is_wider_if_more_paths_are_judged_together():
    low, high = loss_interval(1000, 0.01, 0, 0.99)
    wide_low, wide_high = loss_interval(1000, 0.01, 0, 1 - 0.01 / 12)
    assert wide_low < low
    assert wide_high > high


def test_streams_that_share_an_uplink_are_judged_by_its_rate():
    departures = [number * MS for number in range(80)]
    assert judge_shared_up("here", ("a", "b"), 1e6, departures, 1000, sent=80).reasons == ()
    twice = judge_shared_up("here", ("a", "b"), 0.5e6, departures, 1000, sent=80)
    assert twice.reasons == ("shared up of here: rate 8 Mbit/s, configured 4 Mbit/s, allowed 90 to 101 %",)


def test_packets_that_a_path_loses_behind_a_shared_uplink_have_left_it():
    left = [number * MS for number in range(400)]
    departures = [at for number, at in enumerate(left) if number % 10 not in (2, 5, 8)]
    found = judge_shared_up("here", ("a", "b"), 1e6, departures, 1000, sent=400)
    assert (found.reasons, found.measured_rate_mbit) == ((), pytest.approx(8, rel=0.01))


def test_one_bad_path_fails_the_report():
    good, bad = verdict(singles(50)), verdict(singles(55))
    report = ProbeReport("key", 1.0, 2, 0, (good, bad), None)
    assert report.reasons == bad.reasons
    assert report.one_way_error_ms == pytest.approx(5)
    assert report.to_json()["ok"] is False
    assert ProbeReport("key", 1.0, 1, 0, (good,), None).ok


# ---------------------------------------------------------------- the schedule


def network(sites, *, site_of=None, up=None, path=None):
    def queue(rate):
        return UNLIMITED if rate is None else Queue(rate, int(rate / 10))

    link = Link(50 * MS, 0, 0.0, queue(path))
    return EmulatedNetwork(
        sites=tuple(f"s{site}" for site in range(sites)),
        site_of=tuple(range(sites)) if site_of is None else site_of,
        up=(queue(up),) * sites,
        down=(UNLIMITED,) * sites,
        local_delay_ns=(0,) * sites,
        links={(a, b): link for a in range(sites) for b in range(sites) if a != b},
    )


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 7, 16])
def test_rounds_cover_every_directed_path_once_and_use_no_site_twice_at_a_time(sites):
    rounds = list(rounds_of(sites))
    pairs = [pair for each in rounds for pair in each]
    assert sorted(pairs) == [(a, b) for a in range(sites) for b in range(sites) if a != b]
    for each in rounds:
        used = [site for pair in each for site in pair]
        assert len(used) == len(set(used))


@pytest.mark.parametrize(("sites", "rounds_measured"), [(2, 2), (3, 4), (4, 2), (15, 4), (16, 2)])
def test_of_equal_paths_so_many_are_measured_that_every_site_sends_and_receives(sites, rounds_measured):
    rounds, total = rounds_to_measure(network(sites, up=1e6))
    pairs = [pair for pairs in rounds for pair in pairs]
    assert (len(rounds), total) == (rounds_measured, sites * (sites - 1))  # of an odd number, one rests in a round
    assert {src for src, _ in pairs} == {dst for _, dst in pairs} == set(range(sites))


def test_a_path_unlike_the_others_is_measured_and_so_is_its_reverse():
    net = network(16)
    for pair in [(3, 4), (9, 1), (0, 15)]:
        links = {**net.links, pair: Link(51 * MS, 0, 0.0, UNLIMITED)}
        rounds, _ = rounds_to_measure(dataclasses.replace(net, links=links))
        pairs = [pair for pairs in rounds for pair in pairs]
        assert {pair, pair[::-1]} <= set(pairs)
        assert len(rounds) <= 4


@pytest.mark.parametrize("rate", [50e3, 1.25e6, 12.5e6, 125e6])
def test_a_burst_takes_at_most_fifty_milliseconds_and_fits_the_buffer(rate):
    train = burst_train(rate, 10**9, 0, 1500)
    assert train["packets"] >= 16
    assert 64 <= train["bytes"] <= 1500
    assert train["packets"] * train["bytes"] / rate <= 0.0501
    assert burst_train(rate, 10**9, 0, 576)["bytes"] <= 576
    small = burst_train(rate, 2000, 0, 1500)
    assert small["packets"] * small["bytes"] <= 2000


def test_rates_are_measured_after_all_delays():
    net = network(4, path=12.5e6)
    flows = flows_of(net, [(0, 1), (2, 3)], start_ns=0)
    last_single = max(flow.trains[0]["packets"] * flow.trains[0]["spacing_ns"] for flow in flows)
    assert all(flow.trains[1]["start_ns"] > last_single for flow in flows)


def test_rates_with_too_large_a_sum_are_measured_one_after_another():
    fast = flows_of(network(4, path=40e6), [(0, 1), (2, 3)], start_ns=0)
    slow = flows_of(network(4, path=10e6), [(0, 1), (2, 3)], start_ns=0)
    assert fast[0].trains[1]["start_ns"] < fast[1].trains[1]["start_ns"]
    assert slow[0].trains[1]["start_ns"] == slow[1].trains[1]["start_ns"]


def test_single_packets_are_spaced_wider_than_transmission_time_and_jitter():
    net = network(2, up=12.8e3)  # 64 bytes take 5 ms
    assert wire_ns(net, (0, 1)) == 5 * MS
    assert flows_of(net, [(0, 1)], 0)[0].trains[0]["spacing_ns"] == 10 * MS
    link = Link(50 * MS, 8 * MS, 0.0, UNLIMITED)
    net = EmulatedNetwork(net.sites, net.site_of, (UNLIMITED,) * 2, net.down, net.local_delay_ns, {(0, 1): link})
    assert flows_of(net, [(0, 1)], 0)[0].trains[0]["spacing_ns"] == 32 * MS


def test_loss_is_probed_only_if_enough_packets_can_be_lost():
    def loss_packets(loss, burst=0.0):
        net = network(2)
        net = EmulatedNetwork(
            net.sites, net.site_of, net.up, net.down, net.local_delay_ns, {(0, 1): Link(0, 0, loss, UNLIMITED, burst)}
        )
        return sum(train["packets"] for train in flows_of(net, [(0, 1)], 0)[0].trains[1:])

    assert loss_packets(0.01) == 500
    assert loss_packets(0.001) == 5000
    assert loss_packets(0.01, burst=5) == 2500
    assert loss_packets(0.0001) == 0


def test_an_event_too_rare_to_see_does_not_hide_another(monkeypatch):
    monkeypatch.setattr(Jitter, "share", lambda self, link: 0.0001)
    link = Link(50 * MS, MS, 0.01, UNLIMITED)
    net = dataclasses.replace(network(2), links={(0, 1): link})
    assert sum(train["packets"] for train in flows_of(net, [(0, 1)], 0)[0].trains[1:]) == 500


def test_two_workers_of_a_site_saturate_its_uplink_together():
    site, up, flows = shared_up_flows(network(3, site_of=(0, 1, 1, 2), up=1e6), 0)
    assert (site, up) == (1, 1e6)
    assert sorted(flow.sender for flow in flows) == [1, 2]
    assert sorted(flow.receivers for flow in flows) == [(0,), (3,)]


def test_one_worker_alone_alternates_between_destinations():
    _, _, flows = shared_up_flows(network(3, up=1e6), 0)
    assert [(flow.sender, flow.receivers) for flow in flows] == [(0, (1, 2))]


def test_an_uplink_that_limits_nothing_is_not_tested():
    assert shared_up_flows(network(3, up=10e6, path=1e6), 0) is None
    assert shared_up_flows(network(3), 0) is None
    assert shared_up_flows(network(2, up=1e6), 0) is None
