"""Machines that fail at random: how often, for how long, and the same for every algorithm."""

from __future__ import annotations

import itertools
import statistics

import pytest
from small_spec import GOOD, edited, refusal, swept

from wanbench.harness.plan.repetition import changes_of, deadline_s
from wanbench.harness.timeline.failures import failures

NS = 1e9
FOUR = {rank: [rank] for rank in range(4)}


def spans(kills):
    return [(kill.at_ns / NS, (kill.at_ns + kill.for_ns) / NS, kill.where) for kill in kills]


def test_mean_times_between_failures_and_to_repair_are_those_asked_for():
    """One machine over 200,000 s, about 1,800 cycles: the mean of n exponential times is within 3 / sqrt(n)."""
    machines = {rank: [rank] for rank in range(8)}  # so many that never all fail
    drawn = spans(failures(100, 10, machines, seed=1, until_s=200_000))
    mine = [(begin, end) for begin, end, where in drawn if where == 0]
    up = [begin - end for (_, end), (begin, _) in itertools.pairwise(mine)]
    down = [end - begin for begin, end in mine]
    assert statistics.fmean(up) == pytest.approx(100, rel=3 / len(up) ** 0.5 + 0.01)
    assert statistics.fmean(down) == pytest.approx(10, rel=3 / len(down) ** 0.5 + 0.01)


def test_some_worker_is_always_alive():
    drawn = spans(failures(10, 30, FOUR, seed=3, until_s=5_000))
    for begin, _, _ in drawn:
        assert len({where for since, until, where in drawn if since <= begin < until}) < 4


def test_the_last_worker_with_a_model_does_not_fail_while_the_others_get_theirs():
    drawn = spans(failures(10, 30, FOUR, seed=3, until_s=5_000, settled_s=5))
    for begin, _, _ in drawn:
        away = {where for since, until, where in drawn if since <= begin < until + 5}
        assert len(away) < 4


def test_all_workers_of_a_site_fail_together():
    kills = failures(50, 5, {"tokyo": [0, 1], "ohio": [2, 3]}, seed=1, until_s=1_000)
    assert {kill.where for kill in kills} == {"tokyo", "ohio"}


def test_a_new_seed_gives_other_failures_and_more_machines_do_not_change_those_of_the_first():
    once, twice = (spans(failures(50, 1, FOUR, seed=7, until_s=500)) for _ in range(2))
    assert once == twice != spans(failures(50, 1, FOUR, seed=8, until_s=500))
    more = spans(failures(50, 1, FOUR | {4: [4]}, seed=7, until_s=500))
    assert [each for each in more if each[2] != 4] == once


LOSSY = '\n[failures]\nmtbf = "5s"\nmttr = "1s"\n'
VIRTUAL = ("[sweep]", '[run]\ntestbed = "virtual"\n[sweep]')


def test_each_repetition_draws_its_own_failures_which_all_algorithms_share():
    first, second = swept(edited(VIRTUAL, ("ssgd = {}", "ssgd = {}\nsgp = {}"), ("[2]", "[4]")) + LOSSY)
    assert changes_of(first, 0) == changes_of(second, 0) != changes_of(first, 1)
    assert first.loses_workers
    assert first.changes == ()


def test_without_failures_a_cell_keeps_its_identity():
    (plain,) = swept(edited(VIRTUAL))
    (never,) = swept(edited(VIRTUAL) + '\n[failures]\nmttr = "9s"\nby = "site"\n')
    (lossy,) = swept(edited(VIRTUAL) + LOSSY)
    assert plain.key == never.key == lossy.undisturbed_key != lossy.key
    assert plain.undisturbed_key is None


@pytest.mark.parametrize("key", ["mtbf", "mttr"])
def test_times_between_failures_are_at_least_a_second(key):
    found = refusal(("[sweep]", f'[failures]\n{key} = "0s"\n[sweep]'))
    assert found == f"x.toml: failures.{key}: expected at least 1 s, got 0ms"


def test_a_killed_worker_needs_connections_that_can_be_made_again():
    kill = '\n[[timeline]]\nat = "1s"\nkill = true\nwhere = 0\n'
    for line in (kill, LOSSY):
        gloo = refusal(("[sweep]", f'[comm]\ncollective = "gloo"\n{line}\n[sweep]'))
        assert "collective = 'gloo': its group cannot be formed again; expected \"direct\"" in gloo
        datagrams = refusal(("ssgd = {}", "rps = {}"), ("[sweep]", f"{line}\n[sweep]"))
        assert "'rps' sends datagrams, whose group cannot be formed again" in datagrams


def test_without_losses_there_is_no_deadline():
    assert deadline_s(swept(GOOD)[0]) is None
