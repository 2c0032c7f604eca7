"""Namespaces and containers use the same network: the same cells take the same time, which is that of the law."""

from __future__ import annotations

import json

import pytest

# In User-Mode Linux, containers are compared with the law each time.
pytestmark = [pytest.mark.timed, pytest.mark.long]

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
rtt = ["100ms"]
testbed = ["netns", "docker"]

[run]
repeats = 1
window = "30 steps"
"""


@pytest.fixture(scope="module")
def rows(shared_bench):
    shared_bench.measure(shared_bench.spec(SPEC), "--no-figures", "--jobs", "1")
    return shared_bench.rows("both")


def test_step_times_on_netns_and_docker_agree_within_5_percent(rows):
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        cells.setdefault((row["algorithm"], row["axes"].get("rtt", "-")), {})[row["testbed"]] = row["step_time_s"]
    print(f"\n{'cell':24} {'netns':>8} {'docker':>8} {'ratio':>6}")
    for (algorithm, rtt), times in cells.items():
        ratio = times["docker"] / times["netns"]
        print(f"{algorithm + ' ' + rtt:24} {times['netns']:8.4f} {times['docker']:8.4f} {ratio:6.3f}")
    assert len(cells) == 3
    for cell, times in cells.items():
        assert times["docker"] == pytest.approx(times["netns"], rel=0.05), cell


def test_every_row_is_valid_and_names_testbed_and_image(rows, api, image):
    digest = api.inspect_image(image)["Id"]
    assert {(row["status"], row["testbed"], row["image"]) for row in rows} == {
        ("ok", "netns", None), ("ok", "docker", digest),
    }  # fmt: skip


def test_step_times_are_within_15_percent_of_the_law(rows):
    for row in rows:
        assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.15), row["cell"]


def test_tcp_is_configured_as_in_the_spec(rows, shared_bench):
    found = list((shared_bench.folder / "out/both").glob("cells/*-w2-*testbeddocker*/rep-0/network.json"))
    assert len(found) == 2
    for path in found:
        tcp = json.loads(path.read_text())["tcp"]
        assert (tcp["tcp_congestion_control"], tcp["tcp_slow_start_after_idle"]) == ("reno", "0")


def test_no_container_is_left(rows, shared_bench):
    assert shared_bench.containers() == []
