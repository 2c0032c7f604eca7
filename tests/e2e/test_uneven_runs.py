"""Machines that differ, emulated: each worker process computes for its own time, and the row says who waited."""

from __future__ import annotations

import pandas as pd
import pytest

SPEC = """
schema = 1
name = "uneven"

[workload]
params = 10_000
tensors = 2
step_time = { w2 = "120ms", default = "40ms" }
step_cv = 0.0

[network]
rtt = "20ms"
rate = "50Mbit"
tcp = { slow_start_after_idle = false }

[algorithms]
ssgd = {}
localsgd = { period = 5 }
sgp = {}

[sweep]
workers = [3]

[run]
repeats = 1
"""


def test_each_worker_computes_for_the_time_of_its_site_in_every_step(bench):
    bench.spec(SPEC)
    done = bench.run("run", "spec.toml", "--no-figures", "--out", "out")
    assert done.code == 0, done.err
    rows = {row["algorithm"]: row for row in bench.rows("uneven")}
    for label in ("ssgd", "localsgd-p5", "sgp"):
        (path,) = (bench.folder / "out/uneven").glob(f"cells/{label}-w3-*/rep-0/steps.parquet")
        steps = pd.read_parquet(path)
        for rank, seconds in enumerate((0.04, 0.04, 0.12)):
            assert steps[steps["rank"] == rank]["compute_s"].to_numpy() == pytest.approx(seconds, abs=1e-6)
        assert rows[label]["step_time_s"] >= 0.12
        assert rows[label]["compute_s"] == pytest.approx(0.12)
        assert rows[label]["fastest_step_time_s"] > 0.1  # it waits
    assert rows["one-worker"]["compute_s"] == pytest.approx(3 / (1 / 0.04 + 1 / 0.04 + 1 / 0.12))


def test_with_adpsgd_a_fast_worker_goes_on_and_waits_at_the_end(bench):
    bench.spec(SPEC.replace("ssgd = {}\nlocalsgd = { period = 5 }\nsgp = {}", "adpsgd = {}").replace("[3]", "[4]"))
    done = bench.run("run", "spec.toml", "--no-figures", "--out", "out")
    assert done.code == 0, done.err
    row = next(row for row in bench.rows("uneven") if row["workers"] == 4)
    assert row["step_time_s"] >= 0.12
    assert row["fastest_step_time_s"] < 0.08
