"""The fastest collective by the law, and the limit of a network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_relay import expand

from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.collective import all_reduce_s, alternatives
from wanbench.harness.spec.experiment import Spec


def cell(**changes: object) -> TrainingCell:
    """A cell of `world4`."""
    spec = Spec.load("world4").override({"sweep.workers": [8], "algorithms": {"ssgd": {}}, **changes})  # type: ignore[dict-item]
    found = expand(spec, "world4")[-1]
    assert isinstance(found, TrainingCell)
    return found


@pytest.mark.parametrize(("workers", "fastest"), [(4, "direct"), (8, "hierarchical")])
def test_auto_is_the_fastest_collective_by_the_law(workers, fastest):
    """Two workers of a site share its link, so one vector a site is faster."""
    chosen = cell(**{"comm.collective": "auto", "sweep.workers": [workers]})
    assert chosen.collective == fastest
    assert all_reduce_s(chosen) == min(all_reduce_s(other) for other in alternatives(chosen, "world4"))


def test_a_cell_of_auto_is_the_cell_that_names_the_collective():
    assert cell(**{"comm.collective": "auto"}).key == cell(**{"comm.collective": "hierarchical"}).key


def test_auto_is_a_collective_that_the_algorithm_can_use():
    compressed = {"dts": {"delay": 4, "period": 4, "compression": {"kind": "topk", "ratio": 0.01}}}
    chosen = cell(**{"comm.collective": "auto", "algorithms": compressed})
    assert chosen.collective == "direct"
    assert "hierarchical" not in {other.collective for other in alternatives(chosen, "world4")}


@pytest.mark.parametrize("testbed", ["netns", "virtual"])
def test_a_simulation_has_the_collectives_of_real_sockets(testbed):
    known = alternatives(cell(**{"run.testbed": testbed, "run.emulator": "auto"}), "world4")
    assert {other.collective for other in known} == {"direct", "gloo", "hierarchical", "ring"}


@given(
    workers=st.integers(2, 9),
    rtt_ms=st.integers(1, 1000),
    mbit=st.integers(10, 10_000),
    scale=st.sampled_from([0.01, 0.1, 1.0]),
)
def test_no_collective_is_faster_than_the_limit(workers, rtt_ms, mbit, scale):
    """Each worker sends 2 (N-1)/N of a vector, whose last byte travels one way."""
    changes = {"sweep.rtt": [f"{rtt_ms}ms"], "network.rate": f"{mbit}Mbit", "workload.payload_scale": scale}
    spec = Spec.load("latency-sweep").override(
        {**changes, "sweep.workers": [workers], "algorithms": {"ssgd": {}}, "run.testbed": "virtual"}
    )
    found = expand(spec, "latency-sweep")[-1]
    assert isinstance(found, TrainingCell)
    inputs = found.law_inputs
    sent_s = 2 * (workers - 1) / workers * inputs.message_bytes / inputs.rate_bytes_per_s
    for other in alternatives(found, "latency-sweep"):
        assert all_reduce_s(other) >= (rtt_ms / 2e3 + sent_s) * (1 - 1e-9), other.collective
