"""A host that is too slow for a network: what came late is invalid, and `verify` and the figures refuse it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")
IN_UML = "User Mode Linux" in Path("/proc/cpuinfo").read_text()
TOO_MUCH = """
schema = 1
name = "flood"

[workload]
params = {params}
tensors = 2
step_time = "50ms"

[network]
{rate}
tcp = {{ congestion = "reno", slow_start_after_idle = false }}

[algorithms]
ssgd = {{}}

[sweep]
workers = [2]
rtt = ["10ms"]

[run]
emulator = "relay"
repeats = 1
window = "20 steps"
"""
OVERLOADED = {
    # Nothing is promised, so the idle probe finds no fault; what the workers send in a burst is more than it carries.
    "the workers": ({"params": 200_000, "rate": ""}, r"packets (were late by|waited) \d+\.\d ms"),
    # The probe itself finds that one slow processor makes no gigabit a second.
    "the probe": (
        {"params": 1000, "rate": 'rate = "1Gbit"'},
        r"rate \S+ Mbit/s, configured 1000 Mbit/s|too few packets",
    ),
}


@pytest.mark.netem  # the lane that runs in User-Mode Linux
@pytest.mark.skipif(not IN_UML, reason="overloads its host, so it runs on one of its own: make test-kernel")
@pytest.mark.parametrize("found_by", OVERLOADED)
def test_a_host_that_is_too_slow_for_the_network_publishes_nothing(bench, found_by):
    values, reason = OVERLOADED[found_by]
    bench.spec(TOO_MUCH.format(**values))
    result = bench.run(*RUN)
    assert result.code == 4, result.err
    (row,) = [row for row in bench.rows("flood") if row["workers"] == 2]
    assert row["status"] == "invalid", row["reason"]
    assert re.search(reason, row["reason"]), row["reason"]
    verified = bench.run("verify", "out/flood")
    assert verified.code == 4
    assert f"{row['cell']}: invalid: " in verified.out
    assert bench.run("figures", "out/flood").code == 2
    assert list(bench.out.glob("flood/figures/*")) == []
