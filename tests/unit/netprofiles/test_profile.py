"""A profile is complete and consistent, and scaling changes only the scaled values."""

import json
import pickle

import pytest

from wanbench.netprofiles import (
    Delay,
    Packets,
    Path,
    Profile,
    ProfileError,
    Provenance,
    Rate,
    Ratio,
    Site,
    Size,
    uniform,
)

MEASURED = Provenance("measured", "a ping")


def ms(value):
    return Delay.from_ms(value)


def two_sites(**values):
    """Oregon and London, 40 ms there and 60 ms back."""
    sites = (
        Site("oregon", region="us-west-2", up=Rate.from_mbit(100), local_rtt=ms(1), provenance={"up": MEASURED}),
        Site("london", region="eu-west-2"),
    )
    there = Path("oregon", "london", ms(40), **values)
    back = Path("london", "oregon", ms(60))
    return Profile("two", "", sites, {("oregon", "london"): there, ("london", "oregon"): back})


def refusal(make, *args, **kwargs):
    with pytest.raises(ProfileError) as refused:
        make(*args, **kwargs)
    return str(refused.value)


def test_a_round_trip_is_the_sum_of_both_one_way_delays():
    profile = two_sites()
    assert profile.rtt("oregon", "london") == profile.rtt("london", "oregon") == ms(100)
    assert profile.rtt("oregon", "oregon") == ms(1)
    assert profile.max_rtt() == ms(100)


def test_region_codes_name_sites():
    profile = two_sites()
    assert profile.site("us-west-2") is profile.site("oregon")
    assert profile.path("eu-west-2", "oregon").delay == ms(60)


def test_an_unknown_site_is_refused_with_the_nearest_name():
    assert refusal(two_sites().site, "lodnon") == (
        "profile 'two' has no site 'lodnon' (oregon, london); did you mean 'london'?"
    )


def test_there_is_no_path_inside_a_site():
    assert refusal(two_sites().path, "oregon", "us-west-2") == (
        "no path oregon -> us-west-2: both are the same site; expected two, or use its local_rtt"
    )
    assert refusal(Path, "oregon", "oregon", ms(1)) == (
        "oregon -> oregon: expected two different sites; inside a site, set its local_rtt"
    )


def test_a_missing_direction_is_refused_by_name():
    profile = two_sites()
    one_way = {("oregon", "london"): profile.path("oregon", "london")}
    assert refusal(Profile, "two", "", profile.sites, one_way) == (
        "no path london -> oregon; every ordered pair of sites needs one"
    )


def test_a_path_to_an_unknown_site_is_refused():
    profile = two_sites()
    paths = {**profile.paths, ("oregon", "londn"): Path("oregon", "londn", ms(1))}
    assert refusal(Profile, "two", "", profile.sites, paths) == (
        "path oregon -> londn: unknown site 'londn'; did you mean 'london'?"
    )


def test_a_path_stored_under_another_pair_is_refused():
    profile = two_sites()
    paths = {**profile.paths, ("oregon", "london"): profile.path("london", "oregon")}
    assert refusal(Profile, "two", "", profile.sites, paths) == (
        "path london -> oregon is stored as oregon -> london; expected its own pair"
    )


@pytest.mark.parametrize(
    "second",
    [Site("oregon"), Site("portland", region="us-west-2"), Site("us-west-2"), Site("x", region="oregon")],
)
def test_a_name_or_region_is_unique(second):
    first = Site("oregon", region="us-west-2")
    message = refusal(Profile, "two", "", (first, second), {})
    assert message.endswith(" names two sites; names and regions must be distinct")


def test_a_profile_without_sites_is_refused():
    assert refusal(Profile, "none", "", (), {}) == "profile 'none' has no site; expected at least one"


def test_jitter_above_a_third_of_the_delay_is_refused():
    two_sites(jitter=Delay(13_333_333))
    assert refusal(two_sites, jitter=Delay(13_333_334)) == (
        "oregon -> london: jitter 13.333334ms is above a third of the one-way delay 40ms; expected at most 13.333333ms"
    )


def test_a_path_that_delivers_no_packet_is_refused():
    assert refusal(two_sites, loss=Ratio(1.0)) == (
        "oregon -> london: loss 100% drops every packet; expected less than 100%"
    )
    assert refusal(two_sites, buffer=Size(0)) == (
        "oregon -> london: buffer 0B holds no packet; "
        "expected more, or no buffer for the default: one round trip at the rate"
    )


def test_a_loss_that_does_not_fit_into_its_bursts_is_refused():
    """One packet passes between two bursts, so bursts of 4 lose at most four packets of five."""
    two_sites(loss=Ratio(0.8), loss_burst=Packets(4))
    assert refusal(two_sites, loss=Ratio(0.81), loss_burst=Packets(4)) == (
        "oregon -> london: loss 81% in bursts of 4; expected at most 80%"
    )


def test_bursts_that_are_rarer_than_netem_can_draw_are_refused():
    """A burst begins with the probability loss / burst, which is 1 / 2^32 with bursts of 429.5."""
    two_sites(loss=Ratio(1e-7), loss_burst=Packets(429))
    assert refusal(two_sites, loss=Ratio(1e-7), loss_burst=Packets(430)) == (
        "oregon -> london: loss 0.00001% in bursts of 430 has less than one burst per 2^32 packets; "
        "expected more loss or shorter bursts"
    )


def test_bursts_on_a_path_without_loss_are_accepted():
    assert two_sites(loss_burst=Packets(4)).path("oregon", "london").loss_burst == Packets(4)


def test_payload_scaling_keeps_the_time_and_the_provenance_of_every_transfer():
    rate, buffer = Rate.from_mbit(80), Size(1_000_000)
    profile = two_sites(rate=rate, buffer=buffer, provenance={"rate": MEASURED})
    small = profile.scaled(0.01)
    path = small.path("oregon", "london")
    assert path.buffer.bytes / path.rate.bytes_per_s == buffer.bytes / rate.bytes_per_s
    assert small.site("oregon").up == Rate.from_mbit(1)
    assert small.site("oregon").down is None
    assert small.path("london", "oregon").rate is None
    assert path.provenance == {"rate": MEASURED}
    assert small.rtt("oregon", "london") == profile.rtt("oregon", "london")
    assert small.notes == ("rates and buffers x 0.01, as the payload",)
    assert profile.scaled(1) is profile


def test_a_scaled_rate_is_no_longer_called_measured():
    provenance = {"rate": MEASURED, "rtt": MEASURED}
    profile = two_sites(rate=Rate.from_mbit(80), buffer=Size(1000), provenance=provenance)
    path = profile.scaled(0.5, "rate_scale").path("oregon", "london")
    assert (path.rate, path.buffer) == (Rate.from_mbit(40), Size(1000))
    assert path.provenance["rate"] == Provenance("given", "0.5 x measured value of: a ping")
    assert path.provenance["rtt"] == MEASURED


def test_a_scaled_rtt_scales_jitter_and_local_links_too():
    profile = two_sites(jitter=ms(10), provenance={"rtt": MEASURED})
    slow = profile.scaled(3, "rtt_scale")
    path = slow.path("oregon", "london")
    assert (path.delay, path.jitter) == (ms(120), ms(30))
    assert slow.rtt("oregon", "oregon") == ms(3)
    assert path.provenance["rtt"] == Provenance("given", "3 x measured value of: a ping")
    assert slow.site("oregon").up == profile.site("oregon").up
    assert profile.scaled(0, "rtt_scale").max_rtt() == Delay(0)


def test_rounding_never_turns_a_valid_profile_into_an_invalid_one():
    profile = two_sites(jitter=Delay(13_333_333))
    for factor in (1e-7, 1.1e-7, 0.333, 0.7777777):
        path = profile.scaled(factor, "rtt_scale").path("oregon", "london")
        assert 3 * path.jitter.ns <= path.delay.ns


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_impossible_factors_are_refused(factor):
    assert refusal(two_sites().scaled, factor) == (f"payload scale {factor} is invalid; expected a number above zero")
    assert refusal(two_sites().scaled, factor, "rate_scale") == (
        f"rate_scale {factor} is invalid; expected a number above zero"
    )


def test_an_rtt_scale_can_be_zero_but_not_negative():
    assert refusal(two_sites().scaled, -1, "rtt_scale") == (
        "rtt_scale -1 is invalid; expected a number of zero or more"
    )


def test_a_rate_scaled_below_one_bit_per_second_is_refused():
    assert refusal(two_sites(rate=Rate(10)).scaled, 0.01) == (
        "a rate of 10bit x 0.01 is below 1 bit/s; expected a larger factor"
    )


def test_a_uniform_profile_has_equal_paths_and_limits_sites_only():
    profile = uniform(3, ms(100), Rate.from_mbit(1000), jitter=ms(2), loss=Ratio(0.001))
    assert [site.name for site in profile.sites] == ["w0", "w1", "w2"]
    assert all(site.up == site.down == Rate.from_mbit(1000) for site in profile.sites)
    assert len(profile.paths) == 6
    for (src, dst), path in profile.paths.items():
        assert (path.src, path.dst) == (src, dst)
        assert (path.delay, path.jitter, path.loss, path.rate) == (ms(50), ms(2), Ratio(0.001), None)
    assert profile.max_rtt() == profile.rtt("w0", "w2") == ms(100)


def test_a_uniform_profile_behaves_like_one_with_its_paths_written_out():
    lazy = uniform(4, ms(100), jitter=ms(3))
    written = Profile(lazy.name, lazy.description, lazy.sites, dict(lazy.paths))
    assert lazy == written
    for change in (lambda p: p.scaled(0.5), lambda p: p.scaled(2, "rtt_scale"), lambda p: p.scaled(2, "rate_scale")):
        assert change(lazy) == change(written)
        assert change(lazy).to_json() == change(written).to_json()
    assert ("w0", "w9") not in lazy.paths
    assert ("w0", "w0") not in lazy.paths


def test_uniform_paths_of_other_sites_are_refused():
    lazy = uniform(3, ms(100))
    sites = (Site("a"), Site("b"), Site("c"))
    assert refusal(Profile, "mixed", "", sites, lazy.paths) == "path w0 -> w1: unknown site 'w0'"


def test_one_uniform_site_is_a_network_without_paths():
    profile = uniform(1, ms(100))
    assert len(profile.paths) == 0
    assert profile.max_rtt() == Delay(0)


def test_a_uniform_profile_needs_a_site_and_room_for_its_jitter():
    assert refusal(uniform, 0, ms(1)) == "a uniform profile has 0 sites; expected at least one"
    assert refusal(uniform, 2, ms(6), jitter=ms(2)).startswith("w0 -> w1: jitter 2ms is above a third")


def test_json_does_not_depend_on_the_order_of_paths_and_lists_each_source_once():
    profile = two_sites(provenance={"rtt": MEASURED})
    other = Profile("two", "", profile.sites, dict(reversed(profile.paths.items())))
    data = profile.to_json()
    assert json.dumps(data) == json.dumps(other.to_json())
    assert data["sources"] == ["a ping"]
    assert data["sites"][0]["provenance"] == {"up": ["measured", 0]}
    assert [path["one_way_ns"] for path in data["paths"]] == [60_000_000, 40_000_000]


def test_a_profile_travels_between_processes():
    for profile in (two_sites(), uniform(3, ms(10))):
        copy = pickle.loads(pickle.dumps(profile))
        assert copy == profile
        assert copy.max_rtt() == profile.max_rtt()
