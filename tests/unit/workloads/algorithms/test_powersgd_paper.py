"""PowerSGD on ssgd follows the paper's Algorithms 1 and 2, simulated here in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wanbench.testing import simulate
from wanbench.workloads.algorithms.base import AlgorithmError, Setting
from wanbench.workloads.algorithms.sparse import Sparse
from wanbench.workloads.algorithms.ssgd import SSGD
from wanbench.workloads.compute.optim import SGDConfig

STEPS, WORKERS, RANK, LR, BETA = 30, 3, 2, 0.02, 0.9
SHAPES = ((6, 7), (5,))
NUMEL = 6 * 7 + 5
RANDOM = np.random.default_rng(8)
CURVATURE, TARGETS = RANDOM.uniform(0.2, 2.0, NUMEL), RANDOM.normal(size=(WORKERS, NUMEL))


def gradient(rank, step, w):
    """Of a quadratic with another minimum on every worker."""
    return torch.from_numpy(CURVATURE * (w.numpy() - TARGETS[rank]))


def paper(start, beta):
    """Vogels et al. 2019, Algorithm 2, in numpy: x of every step, shape (STEPS, NUMEL)."""
    x, b, errors, seen = start.copy(), np.zeros(NUMEL), np.zeros((WORKERS, NUMEL)), []
    # The first Q is a draw; its seed is the run's, 0 here.
    q = torch.randn((7, RANK), generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
    for _ in range(STEPS):
        deltas = CURVATURE * (x - TARGETS) + errors
        matrices = deltas[:, :42].reshape(WORKERS, 6, 7)
        p = np.linalg.qr((matrices @ q).mean(axis=0))[0]
        own = np.stack([matrix.T @ p for matrix in matrices])
        q = own.mean(axis=0)
        errors = np.zeros((WORKERS, NUMEL))
        errors[:, :42] = np.stack([(m - p @ each.T).ravel() for m, each in zip(matrices, own, strict=True)])
        mean = np.concatenate([(p @ q.T).ravel(), deltas[:, 42:].mean(axis=0)])
        b = beta * b + mean
        x = x - LR * (mean + b if beta else mean)
        seen.append(x)
    return np.stack(seen)


def trained(momentum, config):
    compression = {"kind": "powersgd", "rank": RANK, "least": 0, "momentum": momentum}
    start = torch.ones(NUMEL, dtype=torch.float64)
    return simulate(
        lambda: SSGD(compression=compression), gradient, config, start, steps=STEPS, world_size=WORKERS, shapes=SHAPES
    )  # fmt: skip


@pytest.mark.parametrize("beta", [0.0, BETA])
def test_its_trajectory_is_that_of_the_papers_algorithm(beta):
    trace = trained(beta, SGDConfig(lr=LR))
    for rank in range(WORKERS):
        np.testing.assert_allclose(trace.w_at[:, rank].numpy(), paper(np.ones(NUMEL), beta), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_papers_momentum_is_neither_heavy_ball_nor_nesterov(nesterov):
    trace = trained(0.0, SGDConfig(lr=LR, momentum=BETA, nesterov=nesterov))
    assert np.abs(trace.w_at[-1, 0].numpy() - paper(np.ones(NUMEL), BETA)[-1]).max() > 0.01


def test_it_excludes_a_second_momentum_and_local_steps():
    own = {"kind": "powersgd", "momentum": BETA}
    with pytest.raises(AlgorithmError, match=r"momentum = 0\.9 replaces the optimiser's"):
        SSGD(compression=own).check(Setting(workers=4, shapes=SHAPES, momentum=0.5))
    with pytest.raises(AlgorithmError, match="because local steps use the optimiser's momentum"):
        Sparse(period=4, compression=own).check(Setting(workers=4, shapes=SHAPES))
