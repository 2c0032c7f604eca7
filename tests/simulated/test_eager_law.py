"""Eager DiLoCo takes the time that the step-time law predicts, on a local network and between continents."""

from __future__ import annotations

import json

import pytest

# 8 MB take 4 ms on lan and some 120 ms on world4: rounds of 4 and 10 steps hide a part of it, or all.
SPEC = """
schema = 1
name = "eager"
workload = {{ params = 2_000_000, tensors = 20, step_time = "{step_time}", step_cv = 0 }}
network = {{ profile = "{profile}", tcp = {{ slow_start_after_idle = false }} }}
comm = {{ collective = "direct" }}
run = {{ repeats = 1, window = "100 steps", testbed = "virtual" }}
sweep = {{ workers = [4] }}

[algorithms]
diloco = {{ period = 4 }}
eager-diloco = {{ period = [4, 10], staleness = [0, 1, 2] }}
"""


@pytest.mark.parametrize(
    ("profile", "step_time"), [("lan", "1ms"), pytest.param("lan", "10ms", marks=pytest.mark.long), ("world4", "10ms")]
)
def test_the_law_is_within_ten_percent_of_the_simulation(bench, profile, step_time):
    spec = bench.spec(SPEC.format(profile=profile, step_time=step_time))
    planned = bench.run("plan", spec, "--json")
    assert planned.code == 0, planned.err
    by_law = {cell["algorithm"]: cell["predicted_step_time_s"] for cell in json.loads(planned.out)["cells"]}
    result = bench.run("run", spec, "--no-figures", "--out", "out")
    assert result.code == 0, result.err
    rows = {row["algorithm"]: row for row in bench.rows("eager") if row["workers"] > 1}
    assert len(rows) == 7
    for row in rows.values():
        assert row["predicted_step_time_s"] == by_law[row["algorithm"]]
        assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.1)
    times = {name: row["step_time_s"] for name, row in rows.items()}
    assert times["eager-diloco-p4-s0"] == times["diloco-p4"]  # without delay, both wait for everything
    assert times["eager-diloco-p4"] < times["diloco-p4"]
