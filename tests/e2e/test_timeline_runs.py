"""A network that changes while workers train, on real sockets and simulated: who waits and who continues."""

from __future__ import annotations

import json

import pytest

SPEC = """
schema = 1
name = "cut"

[workload]
params = 20_000
tensors = 4
step_time = "100ms"

[network]
rtt = "20ms"
rate = "100Mbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
ssgd = {}
sgp = { wait = "100ms" }

[sweep]
workers = [2]
testbed = ["netns", "virtual"]

[run]
emulator = "relay"
window = "40 steps"
repeats = 1

[[timeline]]
at = "1s"
for = "1s"
where = 1
cut = true

[[timeline]]
at = "30 steps"
rtt = "60ms"
"""


@pytest.fixture(scope="module")
def measured(shared_bench):
    """Return (row, longest step of rank 0 in s, its steps that ended during the cut) by (testbed, kind)."""
    import pandas as pd

    result = shared_bench.measure(shared_bench.spec(SPEC))
    found = {}
    for row in shared_bench.rows("cut"):
        if row["workers"] == 2:
            steps = pd.read_parquet(shared_bench.out / "cut" / "cells" / row["cell"] / "rep-0" / "steps.parquet")
            first = steps[steps["rank"] == 0]
            at_ns = {event["what"]: event["at_ns"] for event in row["events"]}
            meanwhile = first["end_ns"].between(at_ns["worker 1: cut off"], at_ns["worker 1: healed"])
            found[row["testbed"], row["kind"]] = row, float(first["step_time_s"].max()), int(meanwhile.sum())
    assert len(found) == 4, result.err
    return found


@pytest.mark.parametrize("testbed", ["netns", "virtual"])
def test_every_change_happened_in_order_and_not_before_its_time(measured, testbed):
    for kind in ("ssgd", "sgp"):
        events = measured[testbed, kind][0]["events"]
        reported = {event["what"]: event for event in events}
        assert set(reported) == {"worker 1: cut off", "worker 1: healed", "everywhere: rtt 60ms"}
        assert [reported[f"worker 1: {what}"]["asked_s"] for what in ("cut off", "healed")] == [1.0, 2.0]
        assert all(event["actual_s"] >= event["asked_s"] for event in events)


@pytest.mark.parametrize("testbed", ["netns", "virtual"])
def test_waiting_workers_stall_through_the_cut_and_others_continue(measured, testbed):
    assert measured[testbed, "ssgd"][1] > 0.9
    assert measured[testbed, "sgp"][1] < measured[testbed, "ssgd"][1] / 2
    assert measured[testbed, "ssgd"][2] <= 1 < measured[testbed, "sgp"][2]


def test_the_emulation_costs_what_the_simulation_does(measured):
    """Check the lower bound: a busy host can only add to it."""
    for kind in ("ssgd", "sgp"):
        real, simulated = (measured[testbed, kind][0]["step_time_s"] for testbed in ("netns", "virtual"))
        assert real > 0.75 * simulated


def test_the_figure_of_step_time_against_time_is_drawn_and_events_are_stored(shared_bench, measured):
    assert (shared_bench.out / "cut" / "figures" / "pace.svg").stat().st_size > 1000
    (kept,) = (shared_bench.out / "cut" / "cells").glob("ssgd-w2*netns*/rep-0/events.json")
    assert json.loads(kept.read_text()) == measured["netns", "ssgd"][0]["events"]


LOST = """
schema = 1
name = "lost"

[workload]
params = 5_000
tensors = 2
step_time = "50ms"

[network]
rtt = "20ms"
rate = "50Mbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
sgp = { wait = "100ms" }
rps = { deadline = "100ms" }

[sweep]
workers = [3]

[run]
testbed = "netns"
emulator = "relay"
window = "20 steps"
repeats = 1

[[timeline]]
at = "10 steps"
where = 2
cut = true
"""


def test_workers_that_continue_without_a_peer_finish_even_if_it_never_returns(shared_bench):
    result = shared_bench.measure(shared_bench.spec(LOST), "--no-figures")
    rows = [row for row in shared_bench.rows("lost") if row["workers"] == 3]
    assert {row["kind"] for row in rows} == {"sgp", "rps"}, result.err
    for row in rows:
        (cut,) = row["events"]
        assert cut["what"] == "worker 2: cut off"
        assert cut["actual_s"] is not None
        assert row["step_time_s"] > 0.07
