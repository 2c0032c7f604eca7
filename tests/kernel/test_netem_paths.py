"""A profile in the kernel, measured on all of its directed paths."""

import dataclasses
import math

import pytest
from free_network import free
from lab import probed

from wanbench.harness.emulators.plan import build
from wanbench.harness.emulators.probe import TOLERANCES
from wanbench.netprofiles import load

pytestmark = [pytest.mark.netem, pytest.mark.timed]

LOSS = 0.02
SCALE = 0.005  # of rates: one slow processor forwards this easily


def lossy(network):
    """Return the profile with a loss that can be measured."""
    links = {pair: dataclasses.replace(link, loss=LOSS) for pair, link in network.links.items()}
    return dataclasses.replace(network, links=links)


def known(value):
    return math.nan if value is None else value


def printed(report):
    yield f"{'path':18} {'one-way ms':>10} {'error':>7} {'jitter ms':>13} {'Mbit/s':>15} {'lost':>9} {'overtaken':>9}"
    for row in report.rows:
        yield (
            f"{row.src + ' -> ' + row.dst:18} {row.one_way_ms:>10.2f} {known(row.error_ms):>+7.3f}"
            f" {row.jitter_ms:>6.2f} {known(row.measured_jitter_ms):>6.2f}"
            f" {row.rate_mbit:>7.2f} {known(row.measured_rate_mbit):>7.2f}"
            f" {row.lost:>4}/{row.sent:<4} {row.inversions:>9}"
        )
    shared = report.shared_up
    yield f"shared up of {shared.site}: {known(shared.measured_rate_mbit):.2f} of {shared.rate_mbit:.2f} Mbit/s"


@pytest.mark.parametrize("loss", [pytest.param("as measured", marks=pytest.mark.long), "2 %"])
def test_all_twelve_paths_of_world4_match_the_profile(netem_lab, capsys, loss):
    profile = load("world4").scaled(SCALE)
    network = build(profile, [site.name for site in profile.sites])
    if loss != "as measured":
        network = lossy(network)
    here = netem_lab(network)
    report = probed(network, here.workers, TOLERANCES["netem"])
    with capsys.disabled():
        print(f"\nworld4 on netem, rates x {SCALE:g}, loss {loss}: configured and measured", *printed(report), sep="\n")
    assert report.reasons == ()
    assert len(report.rows) == report.paths_total == 12
    assert report.shared_up is not None
    assert here.emulator.stats().drops.get("refused") == 0


def test_workers_of_one_site_are_the_local_delay_apart(netem_lab):
    profile = load("world4").scaled(SCALE)
    network = build(profile, ["tokyo", "tokyo", "ohio"])
    here = netem_lab(network)
    report = probed(network, here.workers, TOLERANCES["netem"])
    assert report.reasons == ()
    local = [row for row in report.rows if row.src == row.dst]
    assert [(row.src, row.one_way_ms, row.rate_mbit) for row in local] == [("tokyo", 0.05, None)]


def test_a_free_network_is_fast_and_drops_nothing(netem_lab):
    profile = load("world4")
    network = free(build(profile, [site.name for site in profile.sites]))
    here = netem_lab(network)
    report = probed(network, here.workers, TOLERANCES["netem"])
    assert report.reasons == ()
    assert {row.rate_mbit for row in report.rows} == {None}
    assert set(here.emulator.stats().drops.values()) == {0}


def test_networks_replace_each_other_in_place(netem_lab):
    profile = load("world4").scaled(SCALE)
    network = build(profile, [site.name for site in profile.sites])
    here = netem_lab(network)
    here.emulator.apply(free(network))
    slower = {pair: dataclasses.replace(link, delay_ns=2 * link.delay_ns) for pair, link in network.links.items()}
    for following in (dataclasses.replace(network, links=slower), network):
        here.emulator.apply(following)
        report = probed(following, here.workers, TOLERANCES["netem"])
        assert report.reasons == ()
