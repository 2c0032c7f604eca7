"""Synchronous SGD waits for the average of each step's own gradients, bucket by bucket."""

from __future__ import annotations

import pytest
import torch

from wanbench.testing import simulate, synchronous
from wanbench.workloads.algorithms.base import Replica
from wanbench.workloads.algorithms.ssgd import SSGD
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.compute.optim import SGD, SGDConfig

MOMENTUM = SGDConfig(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


def replica(comm, numel=4):
    return Replica(w=torch.ones(numel), m=torch.zeros(numel), optimizer=SGD(SGDConfig()), comm=comm)


def test_every_step_equals_one_worker_with_the_averaged_gradient():
    random = torch.Generator().manual_seed(3)
    gradients = torch.randn(30, 4, 5, generator=random, dtype=torch.float64)
    start = torch.ones(5, dtype=torch.float64)
    trace = simulate(SSGD, lambda rank, step, w: gradients[step, rank], MOMENTUM, start, steps=30, world_size=4)
    expected, _ = synchronous(gradients, MOMENTUM, start)
    for rank in range(4):
        torch.testing.assert_close(trace.w_at[:, rank], expected, rtol=1e-12, atol=1e-12)


def test_replicas_stay_equal_to_the_bit():
    def gradient(rank, step, w):
        return (rank + 1.3) * w.sin() + step

    trace = simulate(SSGD, gradient, MOMENTUM, torch.linspace(-1, 1, 7), steps=50, world_size=3)
    assert torch.equal(trace.w_at[:, 0], trace.w_at[:, 1])
    assert torch.equal(trace.w_at[:, 0], trace.w_at[:, 2])


@pytest.mark.parametrize("bucketed", [True, False])
def test_gradients_are_averaged_with_and_without_buckets(bucketed):
    def body(comm):
        algorithm = SSGD()
        algorithm.start(replica(comm))
        results = []
        for step in range(3):
            g = torch.full((4,), float(comm.rank + step))
            if bucketed:
                algorithm.bucket(g[2:])
                algorithm.bucket(g[:2])
            results.append(algorithm.gradient(g).clone())
        return results, comm.outstanding

    for results, outstanding in run_replicas(3, body):
        assert outstanding == 0
        assert [result.tolist() for result in results] == [[1.0] * 4, [2.0] * 4, [3.0] * 4]


def test_a_bucket_is_sent_before_the_gradient_is_complete():
    def body(comm):
        algorithm = SSGD()
        algorithm.start(replica(comm))
        algorithm.bucket(torch.ones(2))
        return comm.outstanding

    assert run_replicas(2, body) == [1, 1]


def test_it_has_no_delay_and_compresses_only_if_configured():
    assert (SSGD().delay_steps, SSGD().period_steps, SSGD().in_flight) == (0, 1, 1)
    assert SSGD().params() == {"compression": "none"}
    assert SSGD().label == "ssgd"
