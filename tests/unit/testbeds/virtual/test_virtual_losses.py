"""Workers that are killed and return on the simulated clock: who takes part, how long it takes, and what comes out."""

from __future__ import annotations

import pytest
from algorithm_examples import KINDS, represented, written
from small_spec import edited, swept

from wanbench.harness.rep.measure import measure
from wanbench.harness.testbeds.virtual.simulate import ChangingNetwork, simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed
from wanbench.workloads.algorithms import registry

RTT_S = 0.08
STEP_S = 0.1


def cell_of(algorithm: str, *kills: str, learns: bool = False):
    """Four workers, 80 ms apart, that make 60 steps of 100 ms."""
    workload = 'name = "digits-cnn"' if learns else "params = 1000\ntensors = 2"
    changes = [("[2]", "[4]"), ('step_time = "10ms"', 'step_time = "100ms"'), ("ssgd = {}", algorithm)]
    changes += [
        ("params = 1000\ntensors = 2", workload),
        ('rtt = ["10ms"]', 'rtt = ["80ms"]'),
        ('rate = "1Gbit"\n', ""),
    ]
    changes += [
        ("[sweep]", '[run]\ntestbed = "virtual"\n[train]\nuntil = "60 steps"\nlr = 0.05\nbatch_size = 8\n[sweep]')
    ]
    lines = "".join(f"\n[[timeline]]\nkill = true\n{kill}\n" for kill in kills)
    (cell,) = swept(edited(*changes) + lines)
    return cell


def trained(cell, rep=0, shuffle=None):
    changing = ChangingNetwork(cell.repetition(rep).schedule)
    return simulate(cell.repetition(rep).jobs, cell.emulated_network, Tcp(), changing=changing, shuffle=shuffle)


def members(done, seen_by=None):
    """The members of each later epoch, as one worker saw them: by default the lowest at the end."""
    rank = min(done.outcomes) if seen_by is None else seen_by
    return [list(epoch.members) for epoch in done.outcomes[rank].epochs]


def test_the_others_go_on_without_a_dead_worker_and_take_it_back():
    done = trained(cell_of("ssgd = {}", 'at = "2s"\nwhere = 2\nfor = "3s"'))
    assert members(done) == [[0, 1, 3], [0, 1, 2, 3]]
    assert sorted(done.outcomes) == [0, 1, 2, 3]
    (_, back) = done.outcomes[0].epochs
    assert back.steps[2] is None  # it comes back without a model
    assert done.outcomes[2].epochs[0].step == back.step


def test_the_lowest_rank_can_die_and_the_next_one_decides():
    done = trained(cell_of("ssgd = {}", 'at = "2s"\nwhere = 0'))
    assert members(done) == [[1, 2, 3]]
    assert sorted(done.outcomes) == [1, 2, 3]


def test_two_can_die_at_once_and_a_third_while_the_others_regroup():
    done = trained(cell_of("ssgd = {}", 'at = "2s"\nwhere = 1', 'at = "2s"\nwhere = 3'))
    assert members(done) == [[0, 2]]
    done = trained(cell_of("ssgd = {}", 'at = "2s"\nwhere = 1', 'at = "2.1s"\nwhere = 0'))
    assert members(done) == [[2, 3]]


def test_a_single_worker_goes_on_and_those_that_return_get_its_model():
    kills = [f'at = "{2 + rank}s"\nwhere = {rank}\nfor = "4.5s"' for rank in range(3)]
    done = trained(cell_of("ssgd = {}", *kills, learns=True))
    assert [3] in members(done, seen_by=3)
    assert members(done, seen_by=3)[-1] == [0, 1, 2, 3]
    assert max(outcome.replica_spread for outcome in done.outcomes.values()) < 1e-6


def test_a_worker_that_returns_after_the_end_takes_no_part():
    done = trained(cell_of("ssgd = {}", 'at = "5s"\nwhere = 2\nfor = "60s"'))
    assert sorted(done.outcomes) == [0, 1, 3]


def test_a_kill_after_the_end_changes_nothing():
    cell = cell_of("ssgd = {}", 'at = "600s"\nwhere = 2')
    assert members(trained(cell)) == []
    assert trained(cell).outcomes[0].window_end_ns < 600e9


def test_recovery_takes_the_round_trips_of_the_protocol():
    """R = 80 ms. The lowest rank probes in R; the others connect and join in 1.5 R. It answers in R/2, and they connect
    to each other in R/2 each way and R/2 for the first bytes. Then the mean takes R/2, or R in two phases.
    """
    done = trained(cell_of("ssgd = {}", 'at = "2.05s"\nwhere = 3'))
    (epoch,) = done.outcomes[0].epochs
    seconds = (epoch.ended_ns - epoch.begun_ns) / 1e9
    late = STEP_S + RTT_S  # until the last one notices, at the end of what it does
    assert 1.5 * RTT_S + 3 * RTT_S / 2 + RTT_S / 2 <= seconds <= 1.5 * RTT_S + 3 * RTT_S / 2 + RTT_S + late


SURVIVE = [kind for kind in KINDS if not registry.find(kind).datagrams]
DIVERGES = "ecdpsgd"  # on this model, with or without losses: it extrapolates what was rounded


@pytest.mark.parametrize("kind", represented(SURVIVE))
def test_every_algorithm_survives_losses_and_keeps_its_promise(kind):
    """A worker is lost and returns; another is lost for good."""
    cell = cell_of(written(kind), 'at = "1.5s"\nwhere = 1\nfor = "2s"', 'at = "5s"\nwhere = 3', learns=True)
    done = trained(cell)
    assert sorted(done.outcomes) == [0, 1, 2]
    for outcome in done.outcomes.values():
        assert len(outcome.epochs) >= 1
        if kind != DIVERGES:
            assert outcome.final_loss < 2.3  # it has learned: ln 10 is the loss of a guess
            if cell.algorithm().promises.agrees:
                assert outcome.replica_spread < 1e-5


@pytest.mark.parametrize("kind", SURVIVE)
def test_every_algorithm_goes_on_with_one_worker(kind):
    kills = [f'at = "{1 + rank}s"\nwhere = {rank}' for rank in range(3)]
    done = trained(cell_of(written(kind), *kills))
    assert sorted(done.outcomes) == [3]
    assert members(done)[-1] == [3]


@pytest.mark.parametrize("kind", ["ssgd", "dts", "diloco", "sgp", "adpsgd"])
def test_losses_do_not_depend_on_the_order_of_workers_at_equal_times(kind):
    cell = cell_of(written(kind), 'at = "2s"\nwhere = 1\nfor = "1s"', 'at = "2s"\nwhere = 3\nfor = "2s"')
    plain, shuffled = trained(cell), trained(cell, shuffle=5)
    assert plain.outcomes == shuffled.outcomes


def test_a_row_says_what_was_lost(tmp_path):
    cell = cell_of("ssgd = {}", 'at = "2s"\nwhere = 2\nfor = "3s"')
    row = measure(cell.repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
    assert row["membership_changes"] == 2
    assert row["steps"] == 60
    away = 240 - row["counted_steps"]
    assert 10 <= away <= 3.0 / STEP_S  # worker 2 was away for 3 s
    assert row["recovery_s"] > 0
    assert row["recovery_bytes"] > 0
    assert [event["what"] for event in row["events"]] == ["worker 2: killed", "worker 2: started again"]
