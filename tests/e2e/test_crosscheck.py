"""The same spec, simulated and measured."""

from __future__ import annotations

import json

import pytest

from wanbench.harness.spec.library import find


@pytest.mark.timed
def test_the_simulation_agrees_with_the_emulation(bench):
    """Check `testbed` as an axis, and `compare --by testbed`, on a small scale; the large crosscheck is a benchmark."""
    text = find("smoke").read_text().replace('["10ms", "40ms"]', '["40ms", "100ms"]')
    spec = bench.spec(text.replace("workers = [2]", 'workers = [2]\ntestbed = ["netns", "virtual"]'))
    bench.measure(spec)
    result = bench.run("compare", "smoke", "--out", "out", "--json")
    assert result.code == 0, result.err
    pairs = json.loads(result.out)["pairs"]
    assert [(pair["base"], pair["head"]) for pair in pairs] == [("netns", "virtual")] * 4
    for pair in pairs:
        assert pair["ratio"] == pytest.approx(1.0, abs=0.15), pair
    assert (bench.folder / "out/smoke/figures/parity-by-testbed.png").read_bytes().startswith(b"\x89PNG")


def test_trained_models_are_equal_to_the_last_bit_on_both(bench):
    spec = bench.spec(
        """
schema = 1
name = "learned"
workload = { name = "digits-cnn", step_time = "60ms" }
network = { rtt = "20ms", rate = "100Mbit" }
algorithms = { ssgd = {}, dts = { delay = 4, period = 2 } }
sweep = { workers = [2], testbed = ["netns", "virtual"] }
run = { repeats = 1 }
train = { until = "40 steps", lr = 0.1, momentum = 0.9 }
"""
    )
    bench.measure(spec, "--no-figures")
    losses = {(row["testbed"], row["algorithm"]): (row["final_loss"], row["accuracy"]) for row in bench.rows("learned")}
    assert len(losses) == 6
    for algorithm in ("one-worker", "ssgd", "dts-d4-p2"):
        assert losses["netns", algorithm] == losses["virtual", algorithm]
