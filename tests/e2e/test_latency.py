"""The papers' claims on real sockets: the cost of a long path for each family, compared with the step-time law."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timed

SPEC = """
schema = 1
name = "latency"

[workload]
params = 50_000  # 10 kB in a message: TCP sends them at once, so the warm-up is short
tensors = 20
step_time = "75ms"
payload_scale = 0.05

[network]
rate = "5Gbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[comm]
collective = "direct"

[algorithms]
ssgd    = {}
delayed = { delay = 4 }
sparse  = { period = 4 }
dts     = { delay = 4, period = 4 }

[sweep]
workers = [2]
rtt = ["0ms", "300ms", "900ms"]

[[sweep.exclude]]
algorithm = "ssgd"
rtt = "900ms"

[[sweep.exclude]]
algorithm = "sparse-p4"
rtt = "900ms"

[run]
repeats = 1
"""


@pytest.fixture(scope="module")
def rows(shared_bench):
    shared_bench.measure(shared_bench.spec(SPEC), "--no-figures")
    return [row for row in shared_bench.rows("latency") if row["workers"] == 2]


@pytest.fixture(scope="module")
def scalability(rows):
    return {(row["algorithm"], row["rtt_ms"]): row["scalability"] for row in rows}


def test_every_cell_is_within_15_percent_of_the_law(rows):
    assert len(rows) == 10
    for row in rows:
        assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.15), row["cell"]


def test_synchronous_steps_pay_half_of_every_round_trip(scalability):
    assert scalability["ssgd", 0] > 0.9
    assert scalability["ssgd", 300] < 0.36


def test_a_period_divides_what_a_round_trip_costs(scalability):
    assert 0.61 < scalability["sparse-p4", 300] < 0.70
    assert scalability["sparse-p4", 300] > 1.8 * scalability["ssgd", 300]


def test_a_delay_hides_the_path_until_an_all_reduce_takes_longer_than_its_steps(scalability):
    for rtt_ms in (0, 300):
        assert scalability["delayed-d4", rtt_ms] > 0.95
    assert scalability["delayed-d4", 900] < 0.75  # half of 900 ms does not fit into 4 steps of 75 ms


def test_at_equal_delay_a_period_costs_nothing(scalability):
    for rtt_ms in (0, 300, 900):
        assert scalability["dts-d4-p4", rtt_ms] > 0.99 * scalability["delayed-d4", rtt_ms]
