"""The same spec, simulated and measured: its models. Its step times are compared where `smoke` is measured."""

from __future__ import annotations


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
