"""A small problem that differs between ranks, for tests that compare algorithms."""

from __future__ import annotations

import torch

from wanbench.testing import simulate
from wanbench.workloads.compute.optim import SGD, AdamW, AdamWConfig, SGDConfig

WORKERS, NUMEL = 4, 6
START = torch.linspace(-1, 1, NUMEL, dtype=torch.float64)
PLAIN = SGDConfig(lr=0.05)
OPTIMIZERS = {
    "sgd": PLAIN,
    "sgd, momentum": SGDConfig(lr=0.03, momentum=0.9, weight_decay=0.1),
    "adamw": AdamWConfig(lr=0.02),
}


def gradient(rank, step, w):
    """Return noisy gradients of a quadratic whose optimum and curvature differ between ranks."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    return (0.5 + 0.1 * rank) * (w - rank) + torch.randn(NUMEL, generator=random, dtype=w.dtype)


def trained(make, config=PLAIN, steps=30, workers=WORKERS, **more):
    return simulate(make, gradient, config, START, steps=steps, world_size=workers, shapes=((2, 3),), **more)


class Replicas:
    """The textbook version: all replicas in one object, stepped one after the other."""

    def __init__(self, config=PLAIN, workers=WORKERS):
        kind = AdamW if isinstance(config, AdamWConfig) else SGD
        self.w = START.repeat(workers, 1)
        self.m = torch.zeros_like(self.w)
        self.optimizers = [kind(config) for _ in range(workers)]

    def step(self, step, at=None):
        """Take one local step on every replica, with gradients `at` other parameters if given."""
        at = self.w if at is None else at
        gradients = [gradient(rank, step, at[rank]) for rank in range(len(self.w))]
        for rank, optimizer in enumerate(self.optimizers):
            optimizer.advance(step)
            optimizer.step(self.w[rank], self.m[rank], gradients[rank])


def assert_equal(actual, expected):
    torch.testing.assert_close(actual, expected.expand_as(actual), rtol=1e-11, atol=1e-11)
