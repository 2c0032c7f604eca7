"""The optimiser follows PyTorch's conventions, and computes its exact response to a perturbation."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbench.testing import synchronous
from wanbench.workloads.compute.optim import SGD, OptimizerError, SGDConfig


@st.composite
def configs(draw):
    momentum = draw(st.sampled_from([0.0, 0.5, 0.9]))
    return SGDConfig(
        lr=draw(st.floats(0.001, 0.5)),
        momentum=momentum,
        nesterov=momentum > 0 and draw(st.booleans()),
        weight_decay=draw(st.sampled_from([0.0, 1e-4, 0.1])),
        schedule=draw(st.sampled_from(["constant", "cosine"])),
        warmup_steps=draw(st.integers(0, 6)),
        total_steps=20,
    )


def run(config, gradients, start):
    optimizer, w, m = SGD(config), start.clone(), torch.zeros_like(start)
    for step, g in enumerate(gradients):
        optimizer.advance(step)
        optimizer.step(w, m, g)
    return w, m


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=dtype)


@settings(deadline=None, max_examples=60)
@given(configs())
def test_its_steps_equal_those_of_torch_optim(config):
    gradients, start = random(20, 5), torch.linspace(-1, 1, 5, dtype=torch.float64)
    w, m = run(config, gradients, start)
    expected_w, expected_m = synchronous(gradients[:, None], config, start)
    torch.testing.assert_close(w, expected_w[-1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(m, expected_m, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_weight_decay_and_nesterov_its_float32_bits_are_those_of_torch_optim(momentum):
    config = SGDConfig(lr=0.07, momentum=momentum)
    gradients, start = random(30, 100, dtype=torch.float32), torch.ones(100)
    w, m = run(config, gradients, start)
    expected_w, expected_m = synchronous(gradients[:, None], config, start)
    assert torch.equal(w, expected_w[-1])
    assert torch.equal(m, expected_m)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_gradient_is_not_changed(nesterov):
    g = random(8, dtype=torch.float32)
    before = g.clone()
    optimizer = SGD(SGDConfig(lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.1))
    optimizer.step(torch.ones(8), torch.ones(8), g)
    assert torch.equal(g, before)


def test_without_momentum_the_buffer_is_not_changed():
    m = torch.full((3,), torch.nan)
    w = torch.ones(3)
    SGD(SGDConfig(lr=0.1, weight_decay=0.1)).step(w, m, torch.ones(3))
    assert m.isnan().all()
    assert w.isfinite().all()


@settings(deadline=None, max_examples=60)
@given(configs(), st.floats(-2, 2), st.floats(-2, 2), st.floats(-2, 2), st.integers(0, 19))
def test_its_response_is_the_difference_between_a_perturbed_and_an_unperturbed_step(config, dw, dm, dg, step):
    if not config.momentum:
        dm = 0.0
    optimizer = SGD(config)
    optimizer.advance(step)
    one = torch.ones(1, dtype=torch.float64)
    w, m, perturbed_w, perturbed_m = 0.3 * one, 0.2 * one, (0.3 + dw) * one, (0.2 + dm) * one
    if not config.momentum:
        m, perturbed_m = 0 * one, 0 * one
    optimizer.step(w, m, -0.7 * one)
    optimizer.step(perturbed_w, perturbed_m, (-0.7 + dg) * one)
    expected = (float(perturbed_w - w), float(perturbed_m - m))
    assert optimizer.respond(dw, dm, dg) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("delay", [0, 1, 4, 20])
def test_at_a_constant_rate_the_response_equals_its_closed_form(delay, nesterov):
    lr, beta = 0.1, 0.9
    optimizer = SGD(SGDConfig(lr=lr, momentum=beta, nesterov=nesterov))
    w, m = optimizer.respond(0.0, 0.0, 1.0)
    for _ in range(delay):
        w, m = optimizer.respond(w, m)
    assert m == pytest.approx(beta**delay)
    assert w == pytest.approx(-lr * (1 - beta ** (delay + 1 + nesterov)) / (1 - beta))


def test_the_rate_warms_up_linearly_and_then_falls_to_zero_along_half_a_cosine():
    config = SGDConfig(lr=0.4, schedule="cosine", warmup_steps=4, total_steps=12)
    assert [config.lr_at(step) for step in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])
    assert config.lr_at(8) == pytest.approx(0.2)
    assert config.lr_at(12) == pytest.approx(0.0, abs=1e-15)
    assert config.lr_at(500) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("total", [2, 4])
def test_a_run_that_ends_within_its_warm_up_has_the_rates_of_the_warm_up(total):
    config = SGDConfig(lr=0.4, schedule="cosine", warmup_steps=4, total_steps=total)
    assert [config.lr_at(step) for step in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_constant_rate_does_not_change_after_the_warm_up():
    config = SGDConfig(lr=0.4, warmup_steps=2)
    assert [config.lr_at(step) for step in (0, 1, 2, 1000)] == [0.2, 0.4, 0.4, 0.4]


def test_the_rate_of_a_step_is_used_until_the_next_step():
    optimizer = SGD(SGDConfig(lr=0.4, warmup_steps=4))
    assert optimizer.lr == pytest.approx(0.1)
    optimizer.advance(2)
    assert optimizer.lr == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0}, "lr = 0; expected a number above 0"),
        ({"lr": float("nan")}, "lr = nan; expected a number above 0"),
        ({"momentum": 1.0}, "momentum = 1.0; expected a number from 0 to below 1"),
        ({"nesterov": True}, "nesterov = True; expected momentum above 0 with it"),
        ({"weight_decay": -0.1}, "weight_decay = -0.1; expected a number of 0 or more"),
    ],
)
def test_a_setting_out_of_range_is_refused(settings, message):
    with pytest.raises(OptimizerError) as error:
        SGDConfig(**settings)
    assert str(error.value) == message


def test_algorithms_and_optimiser_are_imported_without_torch():
    code = "import sys, wanbench.workloads.compute.optim, wanbench.workloads.algorithms.registry; "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
