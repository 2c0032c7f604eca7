"""Training over an emulated network: accuracy, and time to reach it."""

from __future__ import annotations

import json

import pandas as pd
import pytest

SPEC = """
schema = 1
name = "digits"

[workload]
name = "digits-cnn"
step_time = "40ms"  # much longer than the real work, so that a busy processor does not matter

[network]
rtt = "40ms"
rate = "100Mbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
ssgd = {}
dts = { delay = 2, period = 2 }

[sweep]
workers = [2]
"train.shards" = ["iid", "dirichlet:0.5"]

[[sweep.exclude]]
algorithm = "ssgd"
"train.shards" = "dirichlet:0.5"

[train]
lr = 0.02
momentum = 0.9
batch_size = 32
until = "80 steps"
eval_every = 20
target = 0.9

[run]
repeats = 1
"""

MODEL = '''
import torch
from torch import nn


def make(rank, world_size, seed, batch_size):
    """Return a linear model, and examples of a plane that differ between ranks."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    true = torch.linspace(-1.0, 1.0, 8)

    def batches():
        while True:
            x = torch.randn(batch_size, 8, generator=generator)
            yield x, (x @ true > 0).long()

    module = nn.Linear(8, 2)

    def evaluate():
        x = torch.randn(500, 8, generator=torch.Generator().manual_seed(7))
        return float((module(x).argmax(1) == (x @ true > 0).long()).float().mean())

    return module, batches(), nn.functional.cross_entropy, evaluate
'''
MODEL_SPEC = """
schema = 1
name = "plane"

[workload]
model = "mymod:make"

[network]
rtt = "20ms"
tcp = { congestion = "reno" }

[algorithms]
dts = { delay = 2, period = 2 }

[sweep]
workers = [2]

[train]
lr = 0.1
until = "100 steps"

[run]
repeats = 1
"""


@pytest.fixture(scope="module")
def digits(shared_bench):
    shared_bench.measure(shared_bench.spec(SPEC), "--no-figures")
    rows = [row for row in shared_bench.rows("digits") if row["workers"] == 2]
    return shared_bench, {(row["algorithm"], row["axes"]["train.shards"]): row for row in rows}


@pytest.mark.parametrize("cell", [("ssgd", "iid"), ("dts-d2-p2", "iid"), ("dts-d2-p2", "dirichlet:0.5")], ids=str)
def test_it_learns_and_the_replicas_agree(digits, cell):
    row = digits[1][cell]
    assert row["accuracy"] > 0.9
    assert row["final_loss"] < 1.0
    assert row["replica_spread"] < 1e-4


@pytest.mark.parametrize("algorithm", ["ssgd", "dts-d2-p2"])
def test_the_target_is_reached_between_two_evaluations(digits, algorithm):
    bench, rows = digits
    row = rows[algorithm, "iid"]
    (folder,) = (bench.folder / "out/digits/cells").glob(f"{row['cell']}/rep-0")
    evaluations, steps = (pd.read_parquet(folder / f"{name}.parquet") for name in ("evaluations", "steps"))
    assert list(evaluations["step"]) == [0, 20, 40, 60, 80]
    assert evaluations["accuracy"].iloc[-1] == row["accuracy"]
    place = int((evaluations["accuracy"] >= 0.9).idxmax())
    assert evaluations["step"][place - 1] < row["steps_to_target"] <= evaluations["step"][place]
    begin_ns = evaluations["end_ns"][0]
    seconds = [(evaluations["end_ns"][at] - begin_ns) / 1e9 for at in (place - 1, place)]
    assert seconds[0] < row["time_to_target_s"] <= seconds[1]
    assert len(steps) == 2 * 80
    assert steps["loss"].notna().all()


def test_weights_are_those_of_the_simulated_run_to_the_bit(digits):
    bench, emulated = digits
    bench.measure(
        bench.spec(SPEC.replace('"digits"', '"simulated"'), "simulated"), "--no-figures", "--testbed", "virtual"
    )
    simulated = [row for row in bench.rows("simulated") if row["workers"] == 2]
    assert len(simulated) == len(emulated) == 3
    for row in simulated:
        same = emulated[row["algorithm"], row["axes"]["train.shards"]]
        assert (row["weights"], row["accuracy"]) == (same["weights"], same["accuracy"])
    assert len({row["weights"] for row in simulated}) == 3, "each is another training"


@pytest.mark.timed
def test_a_delay_costs_no_step_time_although_a_synchronous_step_waits(bench):
    bench.spec(SPEC.replace('until = "80 steps"\neval_every = 20', 'until = "40 steps"'))
    bench.measure("spec.toml", "--no-figures", "--only", "train.shards=iid")
    scalability = {row["algorithm"]: row["scalability"] for row in bench.rows("digits") if row["workers"] == 2}
    assert scalability["dts-d2-p2"] > 0.9
    assert scalability["ssgd"] < 0.6


def test_a_users_model_is_found_in_the_working_folder(bench):
    (bench.folder / "mymod.py").write_text(MODEL)
    bench.measure(bench.spec(MODEL_SPEC), "--no-figures")
    (row,) = [row for row in bench.rows("plane") if row["workers"] == 2]
    assert row["workload"] == "mymod:make"
    assert row["accuracy"] > 0.9
    assert row["replica_spread"] < 1e-4
    assert row["predicted_step_time_s"] is None  # real compute: no prediction is possible
    (path,) = (bench.folder / "out/plane/cells").glob(f"{row['cell']}/cell.json")
    assert json.loads(path.read_text())["identity"]["workload"] == {"model": "mymod:make"}
