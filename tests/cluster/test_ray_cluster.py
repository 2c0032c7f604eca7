"""A run on a Ray cluster loses no repetition, and publishes none twice, when a node dies while it measures."""

from __future__ import annotations

import json
import tempfile
from collections import Counter

import pytest
from cli_session import by_numbers

pytestmark = pytest.mark.cluster

ALGORITHMS = "ssgd = {}\ndts = { delay = 4, period = 2 }"
SPEC = by_numbers("spread", ALGORITHMS, '["10ms", "40ms"]', 1000, run='testbed = "virtual"')
REPS = 10  # two for each of four cells and for the one-worker cell
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # pytest's are too long for names of sockets
        made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "temp_dir": folder})
        yield made
        made.shutdown()


def journals(run):
    """Return the events of each process that measured, in order."""
    found = [path.read_text().splitlines() for path in run.glob("workers/*/events.jsonl")]
    return [[json.loads(line) for line in lines] for lines in found]


def count(events, kind):
    return sum(event["event"] == kind for event in events)


def test_a_node_that_dies_costs_nothing_but_time(bench, cluster):
    dying = cluster.add_node(**NODE)
    bench.spec(SPEC.replace("repeats = 1", "repeats = 2"))
    ray = ("--engine", "ray", "--address", cluster.address)
    command = bench.start("run", "spec.toml", "--out", "out", *ray, "--no-figures")
    run = bench.out / "spread"

    def both_measure():
        found = journals(run)
        return len(found) == 2 and all(count(events, "started") > count(events, "finished") > 0 for events in found)

    command.until(both_measure, 120)
    cluster.remove_node(dying, allow_graceful=False)
    result = command.wait()
    assert result.code == 0, result.err
    assert " died; others measure what it had" in result.err
    finished = Counter(
        (event["cell"], event["rep"]) for events in journals(run) for event in events if event["event"] == "finished"
    )
    assert len(finished) == REPS
    assert {*finished.values()} == {1}
    assert Counter(row["status"] for row in bench.rows("spread")) == {"ok": REPS}
    assert not (run / "claims").exists()
    assert list(run.rglob("*.part")) == []
