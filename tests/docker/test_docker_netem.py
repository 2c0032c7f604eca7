"""Containers on the kernel's netem: the harness joins them from outside, so they need no privilege."""

from __future__ import annotations

import json

import pytest
from cli_session import by_numbers

pytestmark = [pytest.mark.netem, pytest.mark.timed]

# One slow processor can keep up with these steps.
SPEC = by_numbers(
    "kernel",
    "ssgd = {}",
    rtts='["40ms"]',
    run='testbed = "docker"\nemulator = "netem"',
).replace("20ms", "150ms")


@pytest.fixture(scope="module")
def rows(shared_bench):
    shared_bench.spec(SPEC)
    shared_bench.measure("spec.toml", "--no-figures", "--jobs", "1")
    return [row for row in shared_bench.rows("kernel") if row["workers"] > 1]


def test_cells_in_containers_with_netem_are_valid_and_near_the_law(rows):
    assert len(rows) == 1
    for row in rows:
        summary = f"{row['algorithm']}: {row['step_time_s']:.4f} s, law {row['predicted_step_time_s']:.4f} s"
        print(f"{summary}, one-way error {row['one_way_error_ms']:.2f} ms")
        assert (row["status"], row["testbed"], row["emulator"]) == ("ok", "docker", "netem")
        assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.15), summary
        assert row["one_way_error_ms"] <= 0.5


def test_the_network_was_measured_on_every_path(rows, shared_bench):
    for path in (shared_bench.folder / "out/kernel").glob("cells/*-w2-*/rep-0/network.json"):
        network = json.loads(path.read_text())
        assert network["emulator"]["emulator"] == "netem"
        assert len(network["probe"]["rows"]) == 2


def test_no_container_is_left(rows, shared_bench):
    assert shared_bench.containers() == []
