"""A network that changes while containers train on it."""

from __future__ import annotations

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
