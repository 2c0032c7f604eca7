"""The built-in profiles are complete, sourced and physically possible, and agree with their sources."""

import itertools
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from longest import max_rtt

from wanbench.netprofiles import Delay, ProfileError, Rate, catalog_names, describe, load, render, uniform
from wanbench.netprofiles.path import SITE_VALUES

FILES = Path(__file__).resolve().parents[3] / "netprofiles" / "catalog"

# Degrees north and east of each region's city, to about 50 km (some regions name a country or a state only).
PLACES = {
    "af-south-1": (-33.9, 18.4),
    "ap-east-1": (22.3, 114.2),
    "ap-northeast-1": (35.7, 139.7),
    "ap-northeast-2": (37.6, 127.0),
    "ap-northeast-3": (34.7, 135.5),
    "ap-south-1": (19.1, 72.9),
    "ap-south-2": (17.4, 78.5),
    "ap-southeast-1": (1.35, 103.8),
    "ap-southeast-2": (-33.9, 151.2),
    "ap-southeast-3": (-6.2, 106.8),
    "ap-southeast-4": (-37.8, 145.0),
    "ap-southeast-5": (3.1, 101.7),
    "ap-southeast-7": (13.8, 100.5),
    "ca-central-1": (45.5, -73.6),
    "ca-west-1": (51.0, -114.1),
    "eu-central-1": (50.1, 8.7),
    "eu-central-2": (47.4, 8.5),
    "eu-north-1": (59.3, 18.1),
    "eu-south-1": (45.5, 9.2),
    "eu-south-2": (41.6, -0.9),
    "eu-west-1": (53.3, -6.3),
    "eu-west-2": (51.5, -0.1),
    "eu-west-3": (48.9, 2.4),
    "il-central-1": (32.1, 34.8),
    "me-central-1": (25.2, 55.3),
    "me-south-1": (26.2, 50.6),
    "mx-central-1": (20.6, -100.4),
    "sa-east-1": (-23.5, -46.6),
    "us-east-1": (39.0, -77.5),
    "us-east-2": (40.0, -83.0),
    "us-west-1": (37.4, -122.0),
    "us-west-2": (45.8, -119.7),
}

# The same for Azure and GCP.
OTHER_PLACES = {
    "canadacentral": (43.7, -79.4),
    "eastus": (37.4, -78.7),
    "japaneast": (35.7, 139.7),
    "koreacentral": (37.6, 127.0),
    "northeurope": (53.3, -6.3),
    "uksouth": (51.5, -0.1),
    "asia-east1": (24.1, 120.5),
    "asia-south1": (19.1, 72.9),
    "australia-southeast1": (-33.9, 151.2),
    "europe-west1": (50.4, 3.8),
    "europe-west4": (53.4, 6.8),
    "southamerica-east1": (-23.5, -46.6),
    "us-central1": (41.2, -95.9),
}


def light_rtt_ms(a, b):
    """The round trip of light in vacuum along the great circle between two regions."""
    places = PLACES | OTHER_PLACES
    (lat_a, lon_a), (lat_b, lon_b) = ([math.radians(x) for x in places[region]] for region in (a, b))
    cosine = math.sin(lat_a) * math.sin(lat_b) + math.cos(lat_a) * math.cos(lat_b) * math.cos(lon_a - lon_b)
    return 2 * 6371 * math.acos(min(1, cosine)) / 299_792.458 * 1e3


def test_the_catalog_matches_the_documentation():
    homes = ["home-5g", "home-fibre", "home-starlink", "mixed-cloud-home"]
    clouds = ["aws", "clouds", "gcp4", "world4", "world4-2025"]
    assert catalog_names() == sorted(["lan", "paper-dts", "sgp-poster", *clouds, *homes])


@pytest.mark.parametrize("name", catalog_names())
def test_every_value_of_the_catalog_has_a_provenance_and_a_source(name):
    profile = load(name)
    assert profile.name == name
    for site in profile.sites:
        assert set(site.provenance) == set(SITE_VALUES) - {"buffer"}
    for path in profile.paths.values():
        rate = {"rate"} if path.rate else set()
        assert set(path.provenance) == {"rtt", "jitter", "loss"} | rate
        assert "given" not in {origin.kind for origin in path.provenance.values()}


@pytest.mark.parametrize("name", catalog_names())
def test_every_source_of_the_catalog_is_used(name):
    text = (FILES / f"{name}.toml").read_text()
    for tag in tomllib.loads(text)["sources"]:
        assert f'_source = "{tag}"' in text


@pytest.mark.parametrize("name", catalog_names())
def test_no_path_of_the_catalog_is_faster_than_light(name):
    profile = load(name)
    for src, dst in profile.paths:
        a, b = profile.site(src).region, profile.site(dst).region
        if a and b:
            assert profile.rtt(src, dst).ms > light_rtt_ms(a, b)


def test_world4_has_the_round_trips_of_2020():
    world = load("world4")
    assert [site.name for site in world.sites] == ["oregon", "ohio", "london", "tokyo"]
    assert [site.region for site in world.sites] == ["us-west-2", "us-east-2", "eu-west-2", "ap-northeast-1"]
    assert world.path("oregon", "ohio").delay == Delay.parse("24.275ms")
    assert world.path("london", "tokyo").delay == Delay.parse("104.58ms")
    assert world.path("tokyo", "london").delay == Delay.parse("104.595ms")
    assert world.path("oregon", "ohio").provenance["rtt"].kind == "measured"
    assert world.path("oregon", "ohio").provenance["loss"].kind == "assumed"
    assert world.path("oregon", "ohio").rate == Rate.parse("5Gbit")


def test_jitter_of_world4_is_the_deviation_of_the_rtt_over_the_square_root_of_two():
    jitter = load("world4").path("london", "oregon").jitter
    assert jitter.ms == pytest.approx(0.79 / math.sqrt(2), abs=5e-5)


def test_world4_2025_differs_from_world4_only_in_its_routes():
    old, new = load("world4"), load("world4-2025")
    assert new.path("us-west-2", "eu-west-2").delay == Delay.parse("64.42ms")
    assert new.path("tokyo", "ohio").delay == Delay.parse("67.27ms")
    for pair, path in old.paths.items():
        assert (new.paths[pair].jitter, new.paths[pair].rate) == (path.jitter, path.rate)


def test_aws_has_every_ordered_pair_of_32_regions_under_both_names():
    aws = load("aws")
    assert (len(aws.sites), len(aws.paths)) == (32, 992)
    assert {site.region for site in aws.sites} == set(PLACES)
    assert aws.path("cape-town", "ap-east-1").delay == Delay.parse("175.085ms")
    assert max_rtt(aws) == aws.rtt("cape-town", "melbourne")


# From Skyplane's latency.csv, in ms: the mean of src's own pings, and the smaller range of both ends.
PINGED = [
    ("aws-virginia", "azure-london", 75.963, 76.421 - 76.017),
    ("aws-virginia", "gcp-iowa", 28.539, 28.628 - 28.387),  # those from Iowa are 28.258 to 96.344
    ("azure-virginia", "aws-virginia", 1.865, 2.011 - 1.73),
]


@pytest.mark.parametrize(("src", "dst", "rtt_ms", "range_ms"), PINGED)
def test_clouds_has_the_round_trips_of_skyplane(src, dst, rtt_ms, range_ms):
    path = load("clouds").path(src, dst)
    assert path.delay.ms == pytest.approx(rtt_ms / 2, abs=1e-6)
    assert path.jitter.ms == pytest.approx(range_ms / 3.078 / math.sqrt(2), abs=5e-5)


def test_a_round_trip_from_gcp_is_the_one_that_was_measured_at_the_other_end():
    clouds = load("clouds")
    for src, dst in clouds.paths:
        if src.startswith("gcp"):
            assert clouds.path(src, dst).delay == clouds.path(dst, src).delay


def test_clouds_has_the_rates_of_skyplane_in_both_directions():
    # From the lines of throughput.csv: 64 connections, bit/s received.
    clouds = load("clouds")
    assert clouds.path("aws-virginia", "azure-london").rate == Rate.parse("4261Mbit")
    assert clouds.path("azure-london", "aws-virginia").rate == Rate.parse("2181Mbit")
    assert clouds.path("gcp-taiwan", "gcp-iowa").rate == Rate.parse("4586Mbit")
    assert clouds.path("gcp-iowa", "gcp-taiwan").rate == Rate.parse("4903Mbit")


def test_the_first_four_sites_of_clouds_are_on_four_continents_and_three_clouds():
    sites = load("clouds").sites
    assert [site.name for site in sites[:4]] == ["aws-virginia", "azure-london", "gcp-taiwan", "aws-sydney"]
    assert [sum(site.name.startswith(cloud) for site in sites) for cloud in ("aws-", "azure-", "gcp-")] == [8, 6, 6]
    assert len(load("clouds").paths) == 20 * 19


# The paper's Table "Throughput and latency between GC zones": ms from each zone to each, and Gbit/s of one connection.
GCP4 = {"iowa": 0, "belgium": 1, "taiwan": 2, "sydney": 3}
GCP4_MS = [
    [0.66, 103.11, 157.09, 176.19],
    [103.14, 0.65, 253.10, 271.98],
    [157.08, 253.09, 0.72, 131.45],
    [175.98, 272.08, 131.42, 0.64],
]


def test_gcp4_has_the_round_trips_of_the_paper():
    profile = load("gcp4")
    assert [site.local_rtt.ms for site in profile.sites] == [GCP4_MS[n][n] for n in range(4)]
    for (src, dst), path in profile.paths.items():
        assert 2 * path.delay.ms == pytest.approx(GCP4_MS[GCP4[src]][GCP4[dst]], abs=0.011)
        assert path.provenance["rtt"].kind == "measured"


def test_only_the_rate_that_many_connections_reached_between_its_machines_is_measured_in_gcp4():
    paths = load("gcp4").paths
    assert [pair for pair, path in paths.items() if path.provenance["rate"].kind == "measured"] == [("belgium", "iowa")]
    assert paths["belgium", "iowa"].rate == Rate.parse("6.2Gbit")
    assert all(path.rate > Rate.parse("3.5Gbit") for path in paths.values())  # one connection: 0.07 to 0.21


def test_one_connection_in_gcp4_had_one_window_on_all_paths():
    profile = load("gcp4")
    flows = re.findall(r"([\d.]+) (?:Gbit/s )?between (\w+) and (\w+)", profile.notes[0])
    assert len(flows) == 6
    for gbit, a, b in flows:
        window_mb = float(gbit) * profile.rtt(a.lower(), b.lower()).ms / 8
        assert 2.3 < window_mb < 2.8


def test_paper_dts_gives_the_paper_s_scalability_with_the_fitted_model():
    """T = Tc + k A + 2 (N-1)/N M / rate, N = 16 workers, k = 2 buffers, Tc = 0.3 s, M = ResNet-50."""
    profile = load("paper-dts")
    ring = ["oregon", "ohio", "london", "tokyo", "oregon"]
    around = sum(profile.rtt(a, b).seconds for a, b in itertools.pairwise(ring))
    assert around == pytest.approx(0.479)
    rate = profile.path("oregon", "ohio").rate.bytes_per_s
    step = 0.3 + 2 * around + 2 * 15 / 16 * 25_557_032 * 4 / rate
    assert 0.3 / step == pytest.approx(0.008, rel=1e-3)
    for path in profile.paths.values():
        assert path.provenance["rtt"].kind == path.provenance["rate"].kind == "fitted"


# Of one connection, in ms: its round trip, and the jitter of one direction.
ACCESS = {"fibre": (8, 0.5), "starlink": (25.7, 8.9), "5g": (44, 1.41)}
MIXED = {"ohio": "fibre", "tokyo": "5g"}


@pytest.mark.parametrize(
    ("name", "connections"),
    [
        *((f"home-{kind}", dict.fromkeys(["oregon", "ohio", "london", "tokyo"], kind)) for kind in ACCESS),
        ("mixed-cloud-home", MIXED),
    ],
)
def test_a_home_adds_its_connection_to_the_places_of_world4_2025(name, connections):
    homes, places = load(name), load("world4-2025")
    for pair, path in homes.paths.items():
        ends = [ACCESS[connections[site]] for site in pair if site in connections]
        assert homes.rtt(*pair).ms == pytest.approx(places.rtt(*pair).ms + sum(rtt for rtt, _ in ends), abs=0.06)
        if ends:
            assert path.jitter.ms == pytest.approx(math.hypot(*(jitter for _, jitter in ends)), abs=0.06)
            assert path.rate is None
        else:
            assert (path.loss, path.rate) == (places.paths[pair].loss, places.paths[pair].rate)


def test_each_home_of_the_mixed_profile_adds_half_of_the_loss_between_two_such_homes():
    for pair, path in load("mixed-cloud-home").paths.items():
        ends = [load(f"home-{MIXED[site]}").path("oregon", "ohio").loss.value for site in pair if site in MIXED]
        if ends:
            assert path.loss.value == pytest.approx(sum(ends) / 2, rel=0.03)


@pytest.mark.parametrize("name", ["home-5g", "home-starlink"])
def test_the_loss_of_a_radio_connection_is_the_mean_in_its_source(name):
    path = load(name).path("oregon", "ohio")
    source = path.provenance["loss"].source
    assert source.startswith("Mean loss")
    assert re.findall(r"([\d.]+) %", source)[0] == f"{path.loss.percent:g}"


def test_the_jitter_of_starlink_is_assumed_from_averages():
    assert load("home-starlink").path("oregon", "ohio").provenance["jitter"].kind == "assumed"


def test_a_home_in_the_mixed_profile_has_the_rates_of_its_own_profile():
    mixed = load("mixed-cloud-home")
    for site, kind in MIXED.items():
        home = load(f"home-{kind}").site(site)
        assert (mixed.site(site).up, mixed.site(site).down) == (home.up, home.down)
        assert home.up < home.down
    assert mixed.site("us-west-2").up == load("world4-2025").site("oregon").up


def test_lan_is_far_below_any_wan():
    assert max_rtt(load("lan")) == Delay.parse("0.1ms")


def test_profiles_load_with_the_standard_library_only():
    # -S hides site-packages: a worker image loads profiles without them.
    code = "import wanbench.netprofiles; print(wanbench.netprofiles.load('aws').rtt('cape-town', 'melbourne'))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=FILES.parents[1], capture_output=True, text=True, check=True
    )
    assert done.stdout == "420.9655ms\n"


def test_an_unknown_profile_is_refused_with_the_nearest_name():
    with pytest.raises(ProfileError) as refused:
        load("wrold4")
    assert str(refused.value) == (
        "no profile 'wrold4'; expected one of aws, clouds, gcp4, home-5g, home-fibre, home-starlink, lan, "
        "mixed-cloud-home, paper-dts, sgp-poster, world4, world4-2025, or a .toml or .csv file; did you mean 'world4'?"
    )


def test_describe_gives_one_row_per_site_and_path_with_the_same_keys():
    rows = describe(load("world4"))
    assert [row["kind"] for row in rows] == ["site"] * 4 + ["path"] * 12
    assert len({tuple(row) for row in rows}) == 1
    site, path = rows[0], rows[4]
    assert (site["src"], site["up_mbps"], site["rtt_ms"], site["one_way_ms"]) == (
        "oregon",
        12_500.0,
        0.1,
        None,
    )
    assert (path["src"], path["dst"]) == ("oregon", "ohio")
    assert (path["rtt_ms"], path["one_way_ms"], path["loss_pct"]) == (48.55, 24.275, 1e-5)
    assert path["standing"] == {
        "rtt": "measured",
        "jitter": "inferred",
        "loss": "assumed",
        "rate": "inferred",
    }
    assert set(path["source"]) == set(path["standing"])


def test_render_shows_round_trips_provenance_and_numbered_sources():
    page = render(load("world4"))
    lines = page.splitlines()
    assert "RTT in ms  oregon    ohio  london   tokyo" in lines
    assert "oregon        0.1   48.55  145.18  100.86" in lines
    assert "RTT              48.55ms .. 209.175ms  measured    [3]" in lines
    assert "loss per packet  0.00001%              assumed     [5]" in lines
    assert any(line.startswith("  [3] fantoch project") for line in lines)


def test_render_of_many_sites_shows_quantiles_and_fits_a_page():
    page = render(load("aws"))
    assert "RTT over 496 pairs of 32 sites" in page
    assert max(len(line) for line in page.splitlines()) <= 100


@pytest.mark.parametrize("sites", [1, 2, 9])
def test_render_shows_uniform_networks_of_any_size(sites):
    page = render(uniform(sites, Delay.parse("100ms")))
    assert ("100ms" in page.split("value", 1)[1]) == (sites > 1)
