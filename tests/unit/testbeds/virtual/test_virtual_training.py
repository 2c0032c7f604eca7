"""Whole repetitions on the simulated clock: the real trainer with gradients or phantoms, exact and repeatable."""

from __future__ import annotations

import random
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch
from on_relay import expand
from small_spec import GOOD, edited

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.rep.measure import measure
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.base import WorkerDied
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed

VIRTUAL = ("[algorithms]", '[run]\ntestbed = "virtual"\n\n[algorithms]')
DIGITS = ("params = 1000\ntensors = 2\n", 'name = "digits-cnn"\n')


def cell_of(*changes):
    return expand(Spec.from_toml(edited(VIRTUAL, *changes), "x.toml"), "x.toml")[-1]


def simulated(cell, *, shuffle=None, rep=0):
    return simulate(cell.repetition(rep).jobs, cell.emulated_network, Tcp(), shuffle=shuffle)


def rows_of(run):
    return run.steps.first_rank


def make_dropout(rank, world_size, seed, batch_size):
    """A model that draws from every global random state during training."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))

    def batches():
        while True:
            shift = random.random() + float(np.random.rand())
            yield torch.randn(batch_size, 4) + shift, torch.randint(2, (batch_size,))

    return module, batches(), torch.nn.functional.cross_entropy


@pytest.mark.parametrize(
    "algorithm",
    [
        "ssgd = {}",
        pytest.param("delayed = { delay = 3 }", marks=pytest.mark.long),
        pytest.param("sparse = { period = 2 }", marks=pytest.mark.long),
        "dts = { delay = 4, period = 2 }",
    ],
)
def test_the_order_of_workers_changes_no_loss_and_no_row(algorithm):
    cell = cell_of(DIGITS, ("ssgd = {}", algorithm), ("workers = [2]", "workers = [4]"))
    plain, shuffled = simulated(cell), simulated(cell, shuffle=5)
    assert [row.loss for row in rows_of(plain)] == [row.loss for row in rows_of(shuffled)]
    assert rows_of(plain) == rows_of(shuffled)
    assert plain.outcomes == shuffled.outcomes


def test_a_users_model_draws_as_if_its_worker_were_alone():
    model = ("params = 1000\ntensors = 2\n", 'model = "test_virtual_training:make_dropout"\n')
    cell = cell_of(model, ("workers = [2]", "workers = [3]"))
    plain, shuffled = simulated(cell), simulated(cell, shuffle=9)
    assert plain.outcomes == shuffled.outcomes
    losses = [outcome.final_loss for outcome in plain.outcomes.values()]
    assert len(set(losses)) == 3  # the replicas draw differently


def test_real_gradients_learn():
    cell = cell_of(DIGITS, ("[algorithms]", '[train]\nuntil = "150 steps"\nlr = 0.1\n[algorithms]'))
    outcome = simulated(cell).outcomes[0]
    assert outcome.evaluations[-1].accuracy > 0.8
    assert outcome.replica_spread < 1e-6


def test_synchronous_methods_learn_alike():
    ssgd, dts = (
        simulated(cell_of(DIGITS, ("ssgd = {}", text))) for text in ("ssgd = {}", "dts = { delay = 0, period = 1 }")
    )
    losses = [[row.loss for row in rows_of(run)] for run in (ssgd, dts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_phantoms_take_as_long_as_real_vectors():
    tables = ('name = "digits-cnn"\n', "params = 38_282\n")
    real, phantom = (simulated(cell_of((DIGITS[0], table), ("10ms", "20ms"))) for table in tables)
    for a, b in zip(rows_of(real), rows_of(phantom), strict=True):
        assert b.loss is None
        assert b.end_ns == pytest.approx(a.end_ns, rel=0.02)
    assert phantom.outcomes[0].replica_spread is None


def test_a_step_without_communication_takes_exactly_its_compute_time():
    run = simulated(cell_of(("ssgd = {}", "local = {}")))
    for row in rows_of(run):
        assert row.overhead_s == row.stall_s == 0.0


def test_the_files_and_columns_of_a_repetition(tmp_path):
    cell = cell_of()
    row = measure(cell.repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
    assert {path.name for path in tmp_path.iterdir()} == {"steps.parquet", "messages.parquet", "network.json"}
    steps = pd.read_parquet(tmp_path / "steps.parquet")
    assert list(steps.columns) == [
        "rank", "step", "end_ns", "step_time_s", "compute_s", "stall_s", "overhead_s", "payload_bytes",
        "messages_sent", "loss",
    ]  # fmt: skip
    assert steps["end_ns"].dtype == steps["rank"].dtype == "int64"
    assert list(zip(steps["rank"], steps["step"], strict=True)) == [(r, s) for r in range(2) for s in range(cell.steps)]
    absent = ("emulator", "wire_bytes", "one_way_error_ms", "lateness_p99_ms", "host_cpu_pct", "image", "final_loss")
    assert {name: row[name] for name in absent} == dict.fromkeys(absent)
    assert (row["testbed"], row["status"], row["reason"]) == ("virtual", "ok", None)
    assert row["compute_s"] + row["stall_s"] + row["overhead_s"] == pytest.approx(row["step_time_s"])
    assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.02)


def test_repetitions_differ_by_their_seed_and_repeat_exactly():
    cell = cell_of()
    first, again, other = simulated(cell), simulated(cell), simulated(cell, rep=1)
    assert [asdict(o) for o in first.outcomes.values()] == [asdict(o) for o in again.outcomes.values()]
    assert rows_of(first) == rows_of(again) != rows_of(other)


def test_the_error_of_a_users_model_names_its_worker():
    cell = cell_of(("params = 1000\ntensors = 2\n", 'model = "test_virtual_training:make_dropout"\n'))
    first, second = cell.repetition(0).jobs
    broken = [first, replace(second, kind="ssgd", params={"delay": 1})]
    with pytest.raises(WorkerDied) as caught:
        simulate(broken, cell.emulated_network, Tcp())
    assert str(caught.value).startswith("worker 1: algorithm 'ssgd' has no parameter 'delay'")


def test_a_single_worker_needs_no_network():
    cells = expand(Spec.from_toml(edited(VIRTUAL), "x.toml"), "x.toml")
    (alone,) = [cell for cell in cells if cell.is_baseline]
    network = alone.emulated_network
    assert isinstance(network, EmulatedNetwork)
    outcome = simulate(alone.repetition(0).jobs, network, Tcp()).outcomes[0]
    assert outcome.window.stall_ns == 0
    assert "virtual" not in GOOD
