"""AdamW on flat vectors equals torch.optim.AdamW."""

from __future__ import annotations

import pytest
import torch

from wanbench.workloads.comm.base import Phantom
from wanbench.workloads.compute.optim import SGD, AdamW, AdamWConfig, OptimizerError, SGDConfig, configured, make

CONFIGS = [
    AdamWConfig(),
    AdamWConfig(lr=0.02, beta1=0.8, beta2=0.95, eps=1e-4, weight_decay=0.3),
    AdamWConfig(lr=0.02, schedule="cosine", warmup_steps=5, total_steps=40),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_its_steps_equal_those_of_torch(config):
    w = torch.linspace(-1, 1, 7, dtype=torch.float64)
    m, ours, parameter = torch.zeros_like(w), AdamW(config), w.clone().requires_grad_()
    theirs = torch.optim.AdamW(
        [parameter], config.lr, (config.beta1, config.beta2), config.eps, weight_decay=config.weight_decay
    )
    random = torch.Generator().manual_seed(0)
    for step in range(40):
        g = torch.randn(7, generator=random, dtype=torch.float64)
        before = g.clone()
        ours.advance(step)
        ours.step(w, m, g)
        assert torch.equal(g, before)
        theirs.param_groups[0]["lr"] = config.lr_at(step)
        parameter.grad = g
        theirs.step()
        torch.testing.assert_close(w, parameter.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(m, theirs.state[parameter]["exp_avg"], rtol=1e-12, atol=1e-12)


def test_a_step_of_a_phantom_does_nothing():
    phantom = Phantom(1000)
    AdamW(AdamWConfig()).step(phantom, phantom, phantom)


def test_a_train_table_selects_the_optimiser():
    assert isinstance(make(configured({"lr": 0.1, "batch_size": 32}, 10)), SGD)
    adamw = make(configured({"optimizer": "adamw", "beta1": 0.95}, 10))
    assert isinstance(adamw, AdamW)
    assert (adamw.config.lr, adamw.config.beta1, adamw.config.total_steps, adamw.momentum) == (1e-3, 0.95, 10, 0.95)
    assert configured({}, 10) == SGDConfig(total_steps=10)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            {"optimizer": "adamw", "momentum": 0.9},
            "momentum = 0.9; 'adamw' does not take it; remove it, or set optimizer = 'sgd'",
        ),
        ({"beta2": 0.9}, "beta2 = 0.9; 'sgd' does not take it; remove it, or set optimizer = 'adamw'"),
        ({"optimizer": "adamw", "beta2": 1.0}, "beta2 = 1.0; expected a number from 0 to below 1"),
        ({"optimizer": "adamw", "eps": 0}, "eps = 0; expected a number above 0"),
        ({"optimizer": "adamw", "lr": 0}, "lr = 0; expected a number above 0"),
    ],
)
def test_a_mistake_is_reported_in_one_line(train, message):
    with pytest.raises(OptimizerError) as caught:
        configured(train, 10)
    assert str(caught.value) == message
