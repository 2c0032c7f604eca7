"""A network that changes while containers train on it."""

from __future__ import annotations

import pytest
from cli_session import by_numbers

TIMELINE = """
[[timeline]]
at = "1s"
for = "1s"
where = 1
cut = true

[[timeline]]
at = "10 steps"
rtt = "160ms"
"""


@pytest.mark.long  # the test in namespaces runs each time
def test_a_waiting_worker_stalls_through_a_cut_and_every_change_happens(bench):
    import pandas as pd

    run = 'testbed = "docker"\nemulator = "relay"'
    spec = by_numbers("changes", "ssgd = {}", rtts='["40ms"]', run=run, window=24).replace("20ms", "150ms")
    bench.spec(spec + TIMELINE)
    bench.measure("spec.toml", "--no-figures")
    (row,) = [row for row in bench.rows("changes") if row["workers"] == 2]
    came = {event["what"]: event["actual_s"] - event["asked_s"] for event in row["events"]}
    assert set(came) == {"worker 1: cut off", "worker 1: healed", "everywhere: rtt 160ms"}
    assert all(late >= 0 for late in came.values())
    steps = pd.read_parquet(bench.out / "changes" / "cells" / row["cell"] / "rep-0" / "steps.parquet")
    assert steps["step_time_s"].max() > 1
    assert steps["step_time_s"].tail(4).median() > steps["step_time_s"].head(4).median() + 0.03
    assert bench.containers() == []


KILLED = """
[[timeline]]
at = "2s"
for = "2s"
where = 0
kill = true
"""


@pytest.mark.long  # the test in namespaces runs each time
def test_containers_go_on_without_a_worker_that_is_killed_until_it_returns(bench):
    import pandas as pd

    run = 'testbed = "docker"\nemulator = "relay"'
    spec = by_numbers("killed", "ssgd = {}", rtts='["40ms"]', run=run, window=60).replace("20ms", "100ms")
    bench.spec(spec.replace("workers = [2]", "workers = [3]") + KILLED)
    bench.measure("spec.toml", "--no-figures")
    (row,) = [row for row in bench.rows("killed") if row["workers"] == 3]
    assert [event["what"] for event in row["events"]] == ["worker 0: killed", "worker 0: started again"]
    assert all(event["actual_s"] >= event["asked_s"] for event in row["events"])
    assert row["replica_spread"] < 1e-6
    steps = pd.read_parquet(bench.out / "killed" / "cells" / row["cell"] / "rep-0" / "steps.parquet")
    made = steps.groupby("rank")["step"].nunique()
    assert made[0] < made[1]
    assert set(steps["step"]) == set(range(row["steps_total"]))
    assert bench.containers() == []
