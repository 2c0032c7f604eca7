"""The same spec, simulated and measured: trained models, and blocks in UDP datagrams on paths that lose packets."""

from __future__ import annotations

import pytest

SPEC = """
schema = 1
name = "lossy"

[workload]
name = "digits-cnn"
step_time = "20ms"

[network]
rtt = "20ms"
rate = "50Mbit"

[algorithms]
ssgd = {}
dts = { delay = 4, period = 2 }
# Patient, so that a busy processor loses no blocks. Patience costs no time on a path without loss.
rps = { deadline = "20s", silence = "10s" }
gradient-sharing = { deadline = "20s", silence = "10s" }
# Less patient, because a lost block at the end of a train ends with silence.
soon = { kind = "rps", deadline = "20s", silence = "100ms" }
soon-sharing = { kind = "gradient-sharing", deadline = "20s", silence = "100ms" }

[sweep]
workers = [2]
loss = ["0%", "10%"]
testbed = ["netns", "virtual"]

[[sweep.exclude]]
algorithm = ["ssgd", "dts-d4-p2", "rps-d20s-s10s", "gradient-sharing-d20s-s10s"]
loss = "10%"

[[sweep.exclude]]
algorithm = ["soon-d20s-s100ms", "soon-sharing-d20s-s100ms"]
loss = "0%"

[train]
lr = 0.1
until = "48 steps"

[run]
emulator = "relay"
repeats = 1
"""


@pytest.fixture(scope="module")
def measured(shared_bench):
    """Return the rows by (testbed, kind, loss in percent)."""
    shared_bench.measure(shared_bench.spec(SPEC), "--no-figures")
    rows = [row for row in shared_bench.rows("lossy") if row["workers"] == 2]
    found = {(row["testbed"], row["kind"], row["loss_pct"]): row for row in rows}
    assert len(found) == len(rows) == 12
    return found


@pytest.mark.parametrize("kind", ["ssgd", "dts", "rps", "gradient-sharing"])
def test_without_loss_the_trained_model_equals_the_simulated_one_to_the_last_bit(measured, kind):
    real, simulated = (measured[testbed, kind, 0] for testbed in ("netns", "virtual"))
    assert real["replica_spread"] < 1e-6
    assert (real["final_loss"], real["accuracy"]) == (simulated["final_loss"], simulated["accuracy"])
    if kind in ("rps", "gradient-sharing"):
        assert real["blocks_lost_pct"] == simulated["blocks_lost_pct"] == 0


@pytest.mark.parametrize("kind", ["rps", "gradient-sharing"])
def test_at_ten_percent_a_tenth_of_the_blocks_is_lost_on_both(measured, kind):
    # 2 workers, 48 steps, two exchanges of 53 blocks: 10176, so one standard error is 0.3.
    for testbed in ("netns", "virtual"):
        assert measured[testbed, kind, 10]["blocks_lost_pct"] == pytest.approx(10, abs=1.4)


@pytest.mark.parametrize("testbed", ["netns", "virtual"])
def test_averaged_models_stay_close_and_models_that_share_gradients_do_not(measured, testbed):
    rps, sharing = (measured[testbed, kind, 10]["replica_spread"] for kind in ("rps", "gradient-sharing"))
    assert 0 < rps < sharing
    assert measured[testbed, "rps", 10]["accuracy"] > 0.4


def test_datagrams_are_counted_on_the_wire(measured):
    row = measured["netns", "rps", 0]
    assert row["wire_bytes"] > row["payload_bytes"]
    assert row["predicted_step_time_s"] is None
