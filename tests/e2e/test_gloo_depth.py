"""A delay of D steps helps only if D all-reduces are really in flight at the same time."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.timed, pytest.mark.long]  # delays of wanbench's own collectives are measured each time

SPEC = """
schema = 1
name = "gloo-depth"

[workload]
params = 10_000
tensors = 4
step_time = "25ms"

[network]
rtt = "250ms"
rate = "100Mbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[comm]
collective = "gloo"

[algorithms]
delayed = { delay = 20 }

[sweep]
workers = [2]  # with four, an all-reduce and thus everything takes three times as long
channels = ["auto", 3]

[run]
repeats = 1
"""


@pytest.fixture(scope="module")
def rows(shared_bench):
    # One at a time: beside each other they are late, and are measured again.
    shared_bench.measure(shared_bench.spec(SPEC), "--no-figures", "--jobs", "1")
    return {row["channels"]: row for row in shared_bench.rows("gloo-depth") if row["workers"] == 2}


def test_twenty_all_reduces_in_flight_hide_a_path_of_a_quarter_of_a_second(rows):
    row = rows[11]
    assert (row["collective"], row["tcp"], row["rtt_ms"], row["algorithm"]) == ("gloo", "reno", 250, "delayed-d20")
    assert row["steps"] >= 63
    assert row["scalability"] >= 0.9


def test_with_too_few_channels_the_same_algorithm_waits(rows):
    row = rows[3]
    assert row["steps"] >= 63
    assert row["scalability"] <= 0.45
    assert row["stall_s"] > 0.050  # two steps
