"""The designs of `dts-recipe` train what the DTS paper's recipe says, and all methods equally long."""

from __future__ import annotations

import pytest
from data_sets import mnist

from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.expand import expand
from wanbench.harness.spec.experiment import Spec

DESIGNS = {"dts-recipe": 10, "dts-recipe-mnist1d": 10, "dts-recipe-servers": 5, "dts-recipe-ablation": 5}


@pytest.fixture(params=DESIGNS)
def cells(request, tmp_path, monkeypatch):
    mnist(tmp_path / "mnist")
    monkeypatch.setenv("WANBENCH_DATA", str(tmp_path))
    spec = Spec.load(request.param)
    assert spec.run.repeats == DESIGNS[request.param]
    return [cell for cell in expand(spec, request.param, FixedHost()) if cell.workers > 1]


def test_every_method_trains_exactly_the_steps_that_are_asked_for(cells):
    assert {cell.steps for cell in cells} == {cell.asked_steps for cell in cells} == {1500}


def test_only_the_ablation_leaves_the_recipe(cells):
    changed = [
        cell
        for cell in cells
        if (cell.train.lr, cell.train.momentum, cell.task.name) != (0.0125 * cell.workers, 0.9, cells[0].task.name)
    ]
    assert len(changed) == (10 if any(cell.task.name == "mnist-resnet8-plain" for cell in cells) else 0)
    assert {(cell.train.weight_decay, cell.train.schedule, cell.train.batch_size) for cell in cells} == {
        (1e-4, "cosine", 32)
    }
