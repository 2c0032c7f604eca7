"""A run on a Ray cluster loses no repetition, and publishes none twice, when a node dies while it measures."""

from __future__ import annotations

import secrets
import tempfile
from collections import Counter

import pytest
from cli_session import by_numbers
from journals import journals, measures, published_once

pytestmark = pytest.mark.cluster

ALGORITHMS = "ssgd = {}\ndts = { delay = 4, period = 2 }"
SPEC = by_numbers("spread", ALGORITHMS, '["10ms", "40ms"]', 3000, run='testbed = "virtual"')
REPS = 10  # two for each of four cells and for the one-worker cell
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # pytest's are too long for names of sockets
        monkeypatch.setenv("RAY_TMPDIR", folder)  # also of the file that names this cluster to others
        from ray.cluster_utils import Cluster

        made = Cluster()
        try:
            made.add_node(**NODE, include_dashboard=False)
            yield made
        finally:
            made.shutdown()


def test_a_node_that_dies_costs_nothing_but_time(bench, cluster):
    dying = cluster.add_node(**NODE)
    bench.spec(SPEC.replace("repeats = 1", "repeats = 2"))
    ray = ("--engine", "ray", "--address", cluster.address)
    command = bench.start("run", "spec.toml", "--out", "out", *ray, "--no-figures")
    run = bench.out / "spread"
    command.until(lambda: list(map(measures, journals(run).values())) == [True, True], 120)
    cluster.remove_node(dying, allow_graceful=False)
    result = command.wait()
    assert result.code == 0, result.err
    assert " died; others measure what it had" in result.err
    assert published_once(run, REPS, killed=1)
    assert Counter(row["status"] for row in bench.rows("spread")) == {"ok": REPS}


def test_an_address_where_nobody_answers_is_refused_in_one_line(bench):
    bench.spec(SPEC)
    refused = bench.run("run", "spec.toml", "--out", "out", "--engine", "ray", "--address", "127.0.0.1:1")
    assert refused.code == 3
    expected = "wanbench: --engine ray: 127.0.0.1:1: Connection refused; expected the address of a running head node"
    assert refused.last_line == expected
