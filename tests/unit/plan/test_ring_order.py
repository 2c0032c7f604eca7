"""The order of workers in a ring is the fastest by the law."""

from __future__ import annotations

import itertools
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_relay import expand

from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.law import PredictInputs, all_reduce_time
from wanbench.harness.plan.ring_order import ring_order
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles import Delay, Profile, Rate, load, place, uniform
from wanbench.netprofiles.path import Path
from wanbench.netprofiles.profile import Site

MIB = 1 << 20


def network(ms, mbit=None, local_ms=0.0, up=None):
    """A network of directed paths: one-way `ms[a][b]`, and rates `mbit[a][b]`."""
    names = "abcdefghijklmnopqrst"[: len(ms)]
    sites = tuple(
        Site(name, up=None if up is None else Rate.from_mbit(up), local_rtt=Delay.from_ms(local_ms)) for name in names
    )
    paths = {
        (names[i], names[j]): Path(
            names[i],
            names[j],
            Delay.from_ms(ms[i][j]),
            rate=None if mbit is None else Rate.from_mbit(mbit[i][j]),
        )
        for i, j in itertools.permutations(range(len(ms)), 2)
    }
    return Profile("test", "", sites, paths)


def seconds(profile, sites, nbytes, alone=True):
    """The law's all-reduce over a ring of workers at these sites: by the definitions, not by the code under test."""
    hops = list(zip(sites, [*sites[1:], sites[0]], strict=True))
    hops_s = [profile.path(a, b).delay.seconds if a != b else profile.site(a).local_rtt.seconds / 2 for a, b in hops]
    count = len(sites)
    rates = [math.inf]
    for a, b in hops:
        if a != b:
            path, up = profile.path(a, b).rate, profile.site(a).up
            rates += [] if path is None else [path.bytes_per_s / hops.count((a, b))]
            rates += [] if up is None else [up.bytes_per_s / sum(x == a != y for x, y in hops)]
    inputs = PredictInputs(
        workers=count,
        step_time_s=0.0,
        rtt_s=2 * sum(hops_s) / count,
        rate_bytes_per_s=None if math.isinf(min(rates)) else min(rates),
        message_bytes=nbytes,
        delay=0 if alone else 1,
        collective="ring",
        chunked=True,
    )
    return sum(all_reduce_time(inputs, nbytes))


def sites_of(profile, placement, nbytes, alone=True):
    return [placement[rank] for rank in ring_order(profile, placement, nbytes, alone=alone)]


@st.composite
def networks(draw, sites):
    count = draw(sites)
    ms = [[draw(st.integers(1, 300)) for _ in range(count)] for _ in range(count)]
    mbit = [[draw(st.sampled_from([10, 50, 200, 1000])) for _ in range(count)] for _ in range(count)]
    return network(ms, mbit, local_ms=0.2, up=500)


@settings(max_examples=15, deadline=None)
@given(profile=networks(st.integers(2, 6)), nbytes=st.sampled_from([1000, MIB, 40 * MIB]), alone=st.booleans())
def test_no_order_of_up_to_six_sites_is_faster(profile, nbytes, alone):
    names = [site.name for site in profile.sites]
    best = min(seconds(profile, [names[0], *rest], nbytes, alone) for rest in itertools.permutations(names[1:]))
    assert seconds(profile, sites_of(profile, names, nbytes, alone), nbytes, alone) == pytest.approx(best, abs=2e-9)


@settings(max_examples=20, deadline=None)
@given(profile=networks(st.integers(10, 14)), nbytes=st.sampled_from([1000, 40 * MIB]))
def test_the_order_of_many_sites_is_never_slower_than_that_of_ranks(profile, nbytes):
    names = [site.name for site in profile.sites]
    ordered = sites_of(profile, names, nbytes)
    assert sorted(ordered) == names
    assert seconds(profile, ordered, nbytes) <= seconds(profile, names, nbytes) + 2e-9


@settings(max_examples=20, deadline=None)
@given(profile=networks(st.integers(2, 5)), picks=st.lists(st.integers(0, 4), min_size=2, max_size=9))
def test_workers_placed_in_any_way_are_never_slower_than_in_the_order_of_ranks(profile, picks):
    placement = [profile.sites[pick % len(profile.sites)].name for pick in picks]
    ring = ring_order(profile, placement, MIB, alone=True)
    assert sorted(ring) == list(range(len(placement)))
    ordered = [placement[rank] for rank in ring]
    assert seconds(profile, ordered, MIB) <= seconds(profile, placement, MIB) + 2e-9


def test_a_ring_avoids_the_slow_path():
    slow = {("a", "b"), ("b", "a")}
    ms = [[200 if (a, b) in slow else 10 for b in "abcd"] for a in "abcd"]
    assert sites_of(network(ms), list("abcd"), 1000) in (list("acbd"), list("adbc"))


def test_a_large_message_avoids_the_narrow_path_and_a_small_one_the_long_path():
    """Three sites have two rings, one in each direction."""
    ms = [[0, 10, 90], [90, 0, 10], [10, 90, 0]]  # a-b-c is near
    mbit = [[0, 10, 100], [100, 0, 100], [100, 100, 0]]  # a-b is narrow
    assert sites_of(network(ms, mbit), list("abc"), 1000) == list("abc")
    assert sites_of(network(ms, mbit), list("abc"), 100 * MIB) == list("acb")


def test_the_workers_of_a_site_are_neighbours():
    profile = load("world4")
    ordered = sites_of(profile, place(profile, 8, "round-robin"), MIB)
    assert [site for site, _ in itertools.groupby(ordered)] == list(dict.fromkeys(ordered))


def test_where_no_order_is_faster_it_is_that_of_ranks():
    equal = uniform(9, Delay.from_ms(80), Rate.from_mbit(100))
    assert ring_order(equal, [f"w{i}" for i in range(9)], MIB, alone=True) == tuple(range(9))
    same = network([[10] * 6] * 6)
    assert ring_order(same, list("abcdef"), MIB, alone=True) == tuple(range(6))
    paper = load("paper-dts")
    assert ring_order(paper, place(paper, 16, "blocked"), MIB, alone=True) == tuple(range(16))


@pytest.mark.parametrize("workers", [1, 2])
def test_one_or_two_workers_have_one_order(workers):
    assert cell(**{"sweep.workers": [workers]}).ring == tuple(range(workers))


def test_planning_stays_fast():
    many = uniform(1024, Delay.from_ms(80))
    distances = network([[abs(a - b) * 7 % 13 + 1 for b in range(20)] for a in range(20)])
    nine = network([[(a * 31 + b * 17) % 97 + 1 for b in range(9)] for a in range(9)])
    began = time.process_time()
    ring_order(many, [f"w{i}" for i in range(1024)], MIB, alone=True)
    ring_order(distances, [site.name for site in distances.sites], MIB, alone=True)
    ring_order(nine, [site.name for site in nine.sites], MIB, alone=True)
    assert time.process_time() - began < 5


# ---------------------------------------------------------------- in a cell


def cell(**changes: object) -> TrainingCell:
    """A cell of `world4` with two workers a site, placed in turn."""
    given = {
        "comm.collective": "ring",
        "network.place": "round-robin",
        "sweep.workers": [8],
        "algorithms": {"ssgd": {}},
    }
    found = expand(Spec.load("world4").override({**given, **changes}), "world4")[-1]  # type: ignore[arg-type]
    assert isinstance(found, TrainingCell)
    return found


def test_all_workers_and_the_law_have_the_same_order():
    best, ranks = cell(), cell(**{"comm.ring_order": "ranks"})
    assert [job.ring for job in best.repetition(0).jobs] == [best.ring] * 8
    assert ranks.ring == tuple(range(8))
    assert best.predicted_step_time_s < ranks.predicted_step_time_s
    assert best.key != ranks.key
    assert cell(**{"comm.ring_order": "best"}).key == best.key


def test_the_order_is_an_axis():
    spec = Spec.load("world4").override({"comm.collective": "ring", "sweep.comm.ring_order": ["best", "ranks"]})
    found = expand(spec, "world4")
    assert {each.comm.ring_order for each in found if isinstance(each, TrainingCell)} == {"best", "ranks"}


def test_other_collectives_keep_the_order_of_ranks():
    direct = cell(**{"comm.collective": "gloo"})
    assert direct.ring == tuple(range(8))
    assert direct.repetition(0).jobs[0].ring == ()
