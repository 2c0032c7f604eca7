"""Workers that are killed, return or are cut off while others train, on real sockets: who goes on, and with what."""

from __future__ import annotations

import os
import signal

import pandas as pd
import pytest
from leftovers import alive

SPEC = """
schema = 1
name = "lost-workers"

[workload]
params = 20_000
tensors = 4
step_time = "50ms"

[network]
profile = "world4"
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
%s

[sweep]
workers = [4]

[run]
testbed = "netns"
emulator = "relay"
window = "%d steps"
repeats = 1

[[timeline]]
at = "2s"
for = "3s"
where = 2
kill = true
"""
CUT = """
[[timeline]]
at = "1s"
where = 0
kill = true

[[timeline]]
at = "3s"
where = 3
cut = true
"""


def steps_of(bench, kind):
    (row,) = [row for row in bench.rows("lost-workers") if row["kind"] == kind]
    path = bench.out / "lost-workers" / "cells" / row["cell"] / "rep-0" / "steps.parquet"
    rows = pd.read_parquet(path)
    return row, {rank: list(of_rank["step"]) for rank, of_rank in rows.groupby("rank")}


@pytest.fixture(scope="module")
def returned(shared_bench):
    shared_bench.measure(shared_bench.spec(SPEC % ("ssgd = {}", 60)), "--no-figures")
    return shared_bench


def test_the_others_go_on_until_a_killed_worker_is_back_and_all_end_with_the_same_model(returned):
    ends_with_one_model(returned, "ssgd")


@pytest.mark.long  # with SSGD, they go on each time
def test_so_they_do_with_an_algorithm_that_exchanges_every_few_steps(bench):
    bench.measure(bench.spec(SPEC % ("sparse = { period = 4 }", 60)), "--no-figures")
    ends_with_one_model(bench, "sparse")


def ends_with_one_model(bench, kind):
    """Check that all but the killed worker make almost every step, and that it has the model of the others."""
    row, steps = steps_of(bench, kind)
    assert row["replica_spread"] < 1e-6
    assert row["membership_changes"] >= 2
    assert row["recovery_bytes"] > 0
    everything = set(range(row["steps_total"]))
    assert set(steps[0]) | set(steps[1]) | set(steps[3]) == everything
    for made in steps.values():  # one that is behind takes the model of the others, and skips what they have made
        assert made == sorted(set(made))
        assert made[0] == 0
        assert made[-1] >= max(everything) - 4
    assert max(len(everything) - len(steps[rank]) for rank in (0, 1, 3)) <= 8
    assert len(steps[2]) < len(everything) - 8


def test_it_was_killed_and_started_when_the_timeline_says(returned):
    row, _ = steps_of(returned, "ssgd")
    events = {event["what"]: event for event in row["events"]}
    assert set(events) == {"worker 2: killed", "worker 2: started again"}
    assert all(event["actual_s"] >= event["asked_s"] for event in events.values())


def test_no_process_and_no_network_is_left(returned):
    assert all(command.left_nothing() for command in returned.commands)


@pytest.mark.long  # other killed runs are tested each time
def test_nothing_is_left_of_a_run_that_is_killed_while_a_worker_is_dead(bench):
    command = bench.start("run", bench.spec(SPEC % ("ssgd = {}", 60)), "--out", "out", "--no-figures", "--jobs", "1")
    first = command.until(lambda: command.training("ssgd", 2))
    command.until(lambda: not alive(first))
    assert command.training("ssgd", 1)
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    assert command.left_nothing()


@pytest.mark.long  # who goes on is tested without a network each time
def test_the_larger_side_finishes_without_one_that_is_dead_and_one_that_is_cut_off(bench):
    spec = SPEC[: SPEC.index("[[timeline]]")] % ("ssgd = {}", 40) + CUT
    bench.measure(bench.spec(spec), "--no-figures")
    row, steps = steps_of(bench, "ssgd")
    assert set(steps[1]) | set(steps[2]) == set(range(row["steps_total"]))
    assert 0 < len(steps[0]) < len(steps[3]) < row["steps_total"]
    assert row["replica_spread"] < 1e-6
