"""Machines that differ, on the simulated clock: who waits for whom, the row that says so, and the step-time law."""

from __future__ import annotations

import pytest
from on_relay import expand

from wanbench.harness.rep.measure import measure
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed

TIMES = ["300ms", "390ms", "780ms", "1710ms"]
HARMONIC_S = 4 / (1 / 0.3 + 1 / 0.39 + 1 / 0.78 + 1 / 1.71)


def cells_of(algorithm, step_time=TIMES, *, params=2_000_000, collective="direct", rtt="200ms", rate="100Mbit"):
    kind, *values = algorithm.split()
    spec = {
        "schema": 1,
        "name": "uneven",
        "workload": {"params": params, "tensors": 8, "step_time": step_time, "step_cv": 0.02},
        "network": {"rate": rate, "rtt": rtt, "tcp": {"slow_start_after_idle": False}},
        "comm": {"collective": collective},
        "algorithms": {kind: {name: int(value) for name, _, value in (each.partition("=") for each in values)}},
        "run": {"testbed": "virtual", "window": "40 steps"},
    }
    return expand(Spec.from_dict(spec), "uneven")


def cell_of(algorithm, *arguments, **more):
    return cells_of(algorithm, *arguments, **more)[-1]


def row_of(cell, folder):
    testbed = VirtualTestbed()
    try:
        return measure(cell.repetition(0), testbed.open_slot(None), folder, folder, None)
    finally:
        testbed.close()


def by_rank(cell):
    outcomes = simulate(cell.repetition(0).jobs, cell.emulated_network, Tcp()).outcomes
    return [outcomes[rank] for rank in range(cell.workers)]


def step_times(cell):
    """The seconds of a step of each worker in the window."""
    return [(each.window_end_ns - each.window_begin_ns) / 1e9 / cell.window for each in by_rank(cell)]


def test_each_worker_computes_for_its_own_time_in_every_step():
    cell = cell_of("ssgd")
    computed_s = [each.window.compute_ns / 1e9 / cell.window for each in by_rank(cell)]
    assert computed_s == pytest.approx([0.3, 0.39, 0.78, 1.71], rel=0.01)


@pytest.mark.parametrize("algorithm", ["ssgd", "localsgd period=4", "dts delay=4 period=4", "diloco period=8", "sgp"])
def test_where_a_step_needs_messages_of_others_all_step_at_the_pace_of_the_slowest(algorithm):
    times_s = step_times(cell_of(algorithm))
    assert min(times_s) > 0.9 * max(times_s)
    assert max(times_s) > 1.69


def test_with_adpsgd_each_worker_steps_at_its_own_pace():
    assert step_times(cell_of("adpsgd")) == pytest.approx([0.3, 0.39, 0.78, 1.71], rel=0.01)


def test_the_row_has_the_step_time_and_the_parts_of_the_slowest_machine_and_the_pace_of_the_fastest(tmp_path):
    rows = {kind: row_of(cell_of(kind), tmp_path) for kind in ("ssgd", "adpsgd", "dpsgd")}
    for row in rows.values():
        assert row["compute_s"] == pytest.approx(1.71, rel=0.01)
        assert row["compute_s"] + row["stall_s"] + row["overhead_s"] == pytest.approx(row["step_time_s"])
    assert rows["ssgd"]["fastest_step_time_s"] == pytest.approx(rows["ssgd"]["step_time_s"], rel=0.02)
    assert rows["adpsgd"]["fastest_step_time_s"] == pytest.approx(0.3, rel=0.01)
    assert row_of(cell_of("ssgd", "300ms"), tmp_path)["fastest_step_time_s"] is None


def test_the_one_worker_cell_is_measured_at_the_harmonic_mean(tmp_path):
    alone, _ = cells_of("ssgd")
    assert row_of(alone, tmp_path)["step_time_s"] == pytest.approx(HARMONIC_S, rel=0.01)


ALGORITHMS = ["ssgd", "delayed delay=4", "sparse period=4", "dts delay=4 period=2", "dts delay=20 period=4"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("times", [TIMES, ["200ms", "400ms", "400ms", "400ms"], ["300ms", "300ms", "300ms", "330ms"]])
@pytest.mark.parametrize(("rtt", "rate"), [("10ms", "20Mbit"), ("200ms", "100Mbit"), ("800ms", "1Gbit")])
def test_the_simulation_agrees_with_the_law(algorithm, times, rtt, rate):
    cell = cell_of(algorithm, times, rtt=rtt, rate=rate)
    assert max(step_times(cell)) == pytest.approx(cell.predicted_step_time_s, rel=0.1)


@pytest.mark.parametrize("algorithm", ["ssgd", "sparse period=4"])
def test_a_small_message_costs_the_slowest_machine_nothing(algorithm):
    """The others' vectors have arrived while it computed."""
    cell = cell_of(algorithm, params=2_000)
    assert max(step_times(cell)) == pytest.approx(1.71, rel=0.01)
    assert max(step_times(cell_of(algorithm, "1710ms", params=2_000))) > 1.72


@pytest.mark.parametrize("collective", ["ring", "gloo"])
def test_where_the_law_of_another_collective_would_be_off_it_says_nothing(collective):
    for rtt in ("10ms", "800ms"):
        cell = cell_of("ssgd", params=20_000, collective=collective, rtt=rtt)
        if cell.predicted_step_time_s is not None:
            assert max(step_times(cell)) == pytest.approx(cell.predicted_step_time_s, rel=0.1)
        else:
            assert cell.law_gap == "machines differ"


@pytest.mark.long  # the same bound is tested on small networks each time
def test_the_built_in_experiment_bounds_every_algorithm_by_its_slowest_machine():
    settings = {"run.testbed": "virtual", "train.until": "20 steps"}  # the window needs more, and learns enough
    found = expand(Spec.load("uneven").override(settings), "uneven")
    alone, cells = found[0], found[1:]
    assert alone.workload.step_time_s == pytest.approx(HARMONIC_S, abs=1e-9)
    for cell in cells:
        times_s = step_times(cell)
        assert alone.workload.step_time_s / max(times_s) < 0.304, cell.label
        assert (min(times_s) < 0.4) == (cell.kind in ("adpsgd", "async-local-sgd")), cell.label
