"""Methods with a server beside a worker, on real sockets and on the simulated clock."""

from __future__ import annotations

import pytest

SPEC = """
schema = 1
name = "asynchronous"

[workload]
name = "digits-cnn"
step_time = "40ms"
step_cv = 0.0

[network]
profile = "world4"
place = { oregon = 2, tokyo = 2 }
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
diloco = { period = 5 }
async-local-sgd = { period = 5 }
grouped = { kind = "async-local-sgd", period = 5, max_wait = "20s", dynamic = false }
halos = { period = 2, merges = 4, local_every = 2, local_lr = 0.4, global_every = 2, global_lr = 0.5, mixing = 0.5 }

[sweep]
workers = [4]
testbed = ["netns", "virtual"]

[[sweep.exclude]]
algorithm = "diloco-p5"
testbed = "netns"

[train]
lr = 0.1
until = "60 steps"

[run]
repeats = 1
"""


@pytest.fixture(scope="module")
def trained(shared_bench):
    shared_bench.measure(shared_bench.spec(SPEC), "--no-figures")
    rows = [row for row in shared_bench.rows("asynchronous") if row["workers"] == 4]
    assert len(rows) == 2 * len(METHODS) + 1
    return {(_name(row), row["testbed"]): row for row in rows}


METHODS = ("async-local-sgd", "grouped", "halos")


def _name(row):
    """The kind, or how the spec calls it beside another one of the kind."""
    return "grouped" if "max_wait" in row["params"] else row["kind"]


@pytest.mark.parametrize("testbed", ["netns", "virtual"])
@pytest.mark.parametrize("method", METHODS)
def test_all_workers_learn_and_end_with_the_model_of_the_server(trained, method, testbed):
    row = trained[method, testbed]
    assert row["accuracy"] > 0.5
    assert row["replica_spread"] < 1e-6


def test_workers_of_equal_speed_that_are_waited_for_train_as_with_diloco(trained):
    """All arrive within `max_wait`, so each group has all workers, whose order changes rounding only."""
    expected = trained["diloco", "virtual"]
    for testbed in ("netns", "virtual"):
        found = trained["grouped", testbed]
        assert found["final_loss"] == pytest.approx(expected["final_loss"], rel=1e-3)
        assert found["accuracy"] == pytest.approx(expected["accuracy"], abs=0.01)


@pytest.mark.parametrize("method", ["async-local-sgd", "grouped"])
def test_both_clocks_count_about_the_same_bytes(trained, method):
    """With `halos`, they depend on how updates meet."""
    real, simulated = (trained[method, testbed] for testbed in ("netns", "virtual"))
    assert real["payload_bytes"] == pytest.approx(simulated["payload_bytes"], rel=0.1)
