"""How far replicas drift apart while averages are in flight, compared with theory.

In units of lr^2 sigma^2 (1 - 1/J), with independent gradient noise of variance sigma^2 on J workers, the
variance of w_j about the mean is D without momentum, and with momentum beta the sum over a < D of
((1 - beta^(a+1)) / (1 - beta))^2.
"""

from __future__ import annotations

import pytest
import torch
from pass_through import PassThrough

from wanbench.testing import simulate
from wanbench.workloads.algorithms.delayed import Delayed
from wanbench.workloads.algorithms.dts import DTS
from wanbench.workloads.compute.optim import SGDConfig

WORKERS, SAMPLES, LR, SIGMA = 4, 6000, 0.5, 2.0
MONTE_CARLO_ERROR = 0.04
"""More than four standard deviations of a variance estimated from (WORKERS - 1) x SAMPLES values."""


def drift(make, momentum, steps):
    """The variance of the replicas around their mean after each step, in these units. Every element is a sample."""
    random = torch.Generator().manual_seed(11)
    noise = SIGMA * torch.randn(steps, WORKERS, SAMPLES, generator=random)
    trace = simulate(
        make,
        lambda rank, step, w: noise[step, rank],
        SGDConfig(lr=LR, momentum=momentum),
        torch.zeros(SAMPLES),
        steps=steps,
        world_size=WORKERS,
    )
    deviation = trace.w_at - trace.w_at.mean(dim=1, keepdim=True)
    return deviation.square().mean(dim=(1, 2)) / (LR**2 * SIGMA**2 * (1 - 1 / WORKERS))


@pytest.mark.parametrize("delay", [1, 4, 8, 20])
def test_without_momentum_replicas_differ_by_their_last_delay_gradients(delay):
    measured = drift(lambda: Delayed(delay=delay), 0.0, delay + 3)
    assert float(measured[-1]) == pytest.approx(delay, rel=MONTE_CARLO_ERROR)


@pytest.mark.parametrize(("delay", "expected"), [(1, 1), (4, 23.8), (8, 122), (12, 301), (16, 545), (20, 839)])
def test_with_momentum_only_the_uncompensated_steps_cause_drift(delay, expected):
    theory = sum(((1 - 0.9 ** (a + 1)) / 0.1) ** 2 for a in range(delay))
    assert theory == pytest.approx(expected, rel=0.01)
    measured = drift(lambda: Delayed(delay=delay), 0.9, delay + 5)
    assert float(measured[-1]) == pytest.approx(theory, rel=MONTE_CARLO_ERROR)


@pytest.mark.parametrize(("delay", "expected"), [(1, 5.3), (4, 74.2)])
def test_pass_through_drifts_further(delay, expected):
    measured = drift(lambda: PassThrough(delay=delay), 0.9, 120)
    assert float(measured[-1]) == pytest.approx(expected, rel=MONTE_CARLO_ERROR)


def test_a_period_adds_at_most_its_length_minus_one_steps():
    delay, period = 5, 4
    measured = drift(lambda: DTS(delay=delay, period=period), 0.0, 24)[-period:]
    terms = sorted(float(value) for value in measured)
    assert terms == pytest.approx([5, 6, 7, 8], rel=MONTE_CARLO_ERROR)
