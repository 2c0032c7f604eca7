"""Where delayed updates stop converging: a limit that momentum lowers by two orders of magnitude.

The figures below are computed in tests/unit/analysis/test_stability_limit.py.
"""

from __future__ import annotations

import pytest
import torch
from pass_through import PassThrough

from wanbench.testing import simulate
from wanbench.workloads.algorithms.delayed import Delayed
from wanbench.workloads.algorithms.dts import DTS
from wanbench.workloads.algorithms.ssgd import SSGD
from wanbench.workloads.compute.optim import SGDConfig

LIMITS = {1: 1.00, 2: 0.526, 3: 0.303, 4: 0.197, 8: 0.068, 12: 0.037, 16: 0.025, 20: 0.0187}
"""Largest stable a of Delayed with momentum 0.9, by delay."""


def converges(make, momentum, step_sizes, steps):
    """Return whether two replicas converge for each a = lr * lambda: every element is a separate problem."""
    curvature = torch.tensor(step_sizes, dtype=torch.float64)

    def gradient(rank, step, w):
        return curvature * w + (2.0 * rank - 1.5 if step == 0 else 0.0)

    config, start = SGDConfig(lr=1.0, momentum=momentum), torch.zeros_like(curvature)
    trace = simulate(make, gradient, config, start, steps=steps, world_size=2)
    size = trace.w_at.abs().amax(dim=1)
    half = steps // 2
    early, late = size[half - steps // 8 : half].amax(dim=0), size[-steps // 8 :].amax(dim=0)
    return (late < early).tolist()


@pytest.mark.parametrize("delay", [1, 4, 8, 20])
def test_without_momentum_training_converges_below_one_and_diverges_above(delay):
    assert converges(lambda: Delayed(delay=delay), 0.0, [0.93, 1.07], 1500) == [True, False]


@pytest.mark.parametrize("delay", [1, 2, 4, 8])
def test_with_momentum_training_converges_below_the_limit_and_diverges_above(delay):
    limit = LIMITS[delay]
    step_sizes = [0.93 * limit, 1.07 * limit]
    assert converges(lambda: Delayed(delay=delay), 0.9, step_sizes, 1500) == [True, False]


def test_at_a_delay_of_20_with_momentum_0_017_converges_and_0_021_diverges():
    assert converges(lambda: Delayed(delay=20), 0.9, [0.017, 0.021], 1500) == [True, False]


def test_exact_compensation_is_less_stable_than_pass_through():
    assert converges(lambda: PassThrough(delay=20), 0.9, [0.021, 0.023, 0.027], 1500) == [True, True, False]


@pytest.mark.parametrize(("delay", "limit"), [(4, 0.092), (8, 0.029), (20, 0.0084)])
def test_blocks_as_long_as_the_delay_halve_the_limit(delay, limit):
    step_sizes = [0.93 * limit, 1.07 * limit]
    assert converges(lambda: DTS(delay=delay, period=delay), 0.9, step_sizes, 2000) == [True, False]


@pytest.mark.parametrize(("momentum", "limit"), [(0.0, 2.0), (0.9, 3.8)])
def test_synchronous_sgd_has_limits_of_2_and_3_8(momentum, limit):
    assert converges(SSGD, momentum, [0.97 * limit, 1.03 * limit], 400) == [True, False]
