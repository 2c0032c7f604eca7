"""Ranks are placed on sites as requested, or the error names the mistake."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbench.netprofiles import Delay, PlacementError, catalog_names, load, place, uniform

WORLD = load("world4")


def refusal(*args):
    with pytest.raises(PlacementError) as refused:
        place(*args)
    return str(refused.value)


def test_blocked_orders_ranks_by_site_and_gives_the_first_sites_the_remainder():
    assert place(WORLD, 6) == ("oregon", "oregon", "ohio", "ohio", "london", "tokyo")


def test_round_robin_gives_one_rank_to_each_site_in_turn():
    assert place(WORLD, 6, "round-robin") == ("oregon", "ohio", "london", "tokyo", "oregon", "ohio")


@pytest.mark.parametrize("how", ["blocked", "round-robin"])
def test_fewer_workers_than_sites_take_the_first_sites(how):
    assert place(WORLD, 2, how) == ("oregon", "ohio")


def test_counts_follow_the_order_of_the_profile_and_accept_region_codes():
    assert place(WORLD, 4, {"tokyo": 2, "london": 2}) == ("london", "london", "tokyo", "tokyo")
    assert place(WORLD, 3, {"ap-northeast-1": 1, "us-west-2": 2}) == ("oregon", "oregon", "tokyo")


def test_counts_with_a_wrong_sum_are_refused():
    assert refusal(WORLD, 5, {"tokyo": 2, "london": 2}) == (
        "placement has 4 workers (2 + 2); expected 5, as in the experiment"
    )
    assert refusal(WORLD, 1, {}) == "placement has 0 workers (nothing); expected 1, as in the experiment"


def test_an_unknown_site_is_refused_with_the_nearest_name():
    assert refusal(WORLD, 2, {"tokio": 2}) == (
        "placement: profile 'world4' has no site 'tokio' (oregon, ohio, london, tokyo); did you mean 'tokyo'?"
    )


def test_one_site_under_two_names_is_refused():
    assert refusal(WORLD, 2, {"tokyo": 1, "ap-northeast-1": 1}) == (
        "placement counts 'tokyo' twice, once as 'ap-northeast-1'; expected one count per site"
    )


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_a_count_is_a_whole_number_of_at_least_one(count):
    assert refusal(WORLD, 2, {"tokyo": count}) == (
        f"placement gives 'tokyo' {count!r} workers; expected a whole number, 1 or more"
    )


@pytest.mark.parametrize("workers", [0, -1])
def test_less_than_one_worker_is_refused(workers):
    assert refusal(WORLD, workers) == f"cannot place {workers} workers; expected at least 1"


def test_an_unknown_policy_is_refused_with_the_nearest_one():
    assert refusal(WORLD, 2, "roundrobin") == (
        "unknown placement 'roundrobin'; expected 'blocked', 'round-robin' or workers per site; "
        "did you mean 'round-robin'?"
    )


@given(st.integers(1, 40), st.integers(1, 9), st.sampled_from(["blocked", "round-robin"]))
def test_sites_differ_by_at_most_one_worker(workers, sites, how):
    placement = place(uniform(sites, Delay(0)), workers, how)
    counts = [placement.count(f"w{index}") for index in range(sites)]
    assert sum(counts) == workers
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("name", catalog_names())
def test_every_built_in_profile_takes_any_number_of_workers(name):
    profile = load(name)
    for workers in (1, 3, 4, 7, 33):
        assert len(place(profile, workers)) == workers
