"""Namespaces and containers use the same network: the same cells take the same time."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timed

SPEC = """
schema = 1
name = "both"

[workload]
params = 1_000_000
tensors = 10
step_time = "100ms"
payload_scale = 0.1

[network]
rate = "1Gbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
ssgd = {}
dts = { delay = 4, period = 4 }

[sweep]
workers = [2]
rtt = ["20ms", "100ms"]
testbed = ["netns", "docker"]

[run]
repeats = 1
window = "30 steps"
"""


def test_step_times_on_netns_and_docker_agree_within_5_percent(bench):
    bench.spec(SPEC)
    bench.measure("spec.toml", "--no-figures", "--jobs", "1")
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for row in bench.rows("both"):
        cells.setdefault((row["algorithm"], row["axes"].get("rtt", "-")), {})[row["testbed"]] = row["step_time_s"]
    print(f"\n{'cell':24} {'netns':>8} {'docker':>8} {'ratio':>6}")
    for (algorithm, rtt), times in cells.items():
        ratio = times["docker"] / times["netns"]
        print(f"{algorithm + ' ' + rtt:24} {times['netns']:8.4f} {times['docker']:8.4f} {ratio:6.3f}")
    assert len(cells) == 5
    for cell, times in cells.items():
        assert times["docker"] == pytest.approx(times["netns"], rel=0.05), cell
