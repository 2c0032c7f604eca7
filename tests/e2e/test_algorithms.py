"""Compression, outer steps and gossip on real sockets, with both collectives."""

from __future__ import annotations

import pytest

SPEC = """
schema = 1
name = "families"

[workload]
name = "digits-cnn"
step_time = "20ms"

[network]
rtt = "20ms"
rate = "100Mbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
dts = { delay = 2, period = 1, compression = { kind = "topk", ratio = 0.05 } }
olco3 = { staleness = 1, period = 2, compression = "signsgd", two_way = true }
diloco = { period = 5, compression = "fp16" }
osgp = { delay = 2 }
adpsgd = {}

[sweep]
workers = [2]
"comm.collective" = ["direct", "gloo"]

[[sweep.exclude]]
algorithm = "adpsgd"
"comm.collective" = "gloo"

[[sweep.exclude]]
algorithm = "olco3-s1-p2-signsgd-two_way"
"comm.collective" = "gloo"

[train]
lr = 0.1
until = "30 steps"

[run]
repeats = 1
"""
NUMEL = 38_282


@pytest.fixture(scope="module")
def families(shared_bench):
    shared_bench.measure(shared_bench.spec(SPEC), "--no-figures")
    rows = [row for row in shared_bench.rows("families") if row["workers"] == 2]
    return {(row["algorithm"], row["collective"]): row for row in rows}


@pytest.mark.parametrize("collective", ["direct", "gloo"])
def test_all_of_them_learn(families, collective):
    learned = {label: row["accuracy"] for (label, how), row in families.items() if how == collective}
    assert len(learned) == {"direct": 5, "gloo": 3}[collective]
    assert all(accuracy > 0.4 for accuracy in learned.values()), learned


def test_the_bytes_sent_are_values_and_indices(families):
    kept = 1915  # of 38 282, rounded up
    for collective in ("direct", "gloo"):
        row = families["dts-d2-p1-topk-r0.05", collective]
        assert row["payload_bytes"] == 2 * 30 * kept * 8
        assert row["messages_sent"] == 2 * 30
    # The wire also carries headers, acknowledgements and, at the end, two averages of whole replicas: to compare them,
    # and to evaluate it.
    direct = families["dts-d2-p1-topk-r0.05", "direct"]
    assert 1.0 < (direct["wire_bytes"] - 2 * 2 * 4 * NUMEL) / direct["payload_bytes"] < 1.2


def test_the_bits_do_not_depend_on_how_they_travel(families):
    """Check that both collectives round the mean of two workers equally: real training ends with the same loss."""
    losses = [families["diloco-p5-fp16", how]["final_loss"] for how in ("direct", "gloo")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert families["diloco-p5-fp16", "direct"]["replica_spread"] < 1e-6
