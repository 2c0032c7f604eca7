"""Eager DiLoCo against its rule, written out for all workers at once in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from trained import NUMEL, OPTIMIZERS, PLAIN, START, WORKERS, Replicas, assert_equal, trained

from wanbench.workloads.algorithms.base import AlgorithmError, Setting
from wanbench.workloads.algorithms.diloco import DiLoCo
from wanbench.workloads.algorithms.eager import EagerDiLoCo

PERIOD, STEPS = 5, 30
ROUNDS = STEPS // PERIOD


class Outers:
    """Nesterov steps, theta of shape (WORKERS, NUMEL): b <- mu b + Delta ; theta <- theta - lr (Delta + mu b)."""

    def __init__(self, lr=0.7, momentum=0.9):
        self.theta = np.repeat(START.numpy()[None], WORKERS, axis=0)
        self.b = np.zeros_like(self.theta)
        self.lr, self.momentum = lr, momentum

    def step(self, delta):
        self.b = self.momentum * self.b + delta
        self.theta = self.theta - self.lr * (delta + self.momentum * self.b)


def mixture(given, t, staleness, eager):
    """Delta of round t on each worker, shape (WORKERS, NUMEL); `given[t]` holds the workers' outer gradients."""
    nothing = np.zeros((WORKERS, NUMEL))
    stale = given[t - staleness] if 0 <= t - staleness < len(given) else nothing
    if not eager:
        return np.repeat(stale.mean(axis=0)[None], WORKERS, axis=0)
    own = given[t] if t < len(given) else nothing
    others = stale.sum(axis=0) - stale
    return (own + others) / WORKERS


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_each_round_mixes_fresh_own_and_stale_other_gradients(config, staleness, eager, momentum):
    make = lambda: EagerDiLoCo(period=PERIOD, staleness=staleness, eager=eager, momentum=momentum)  # noqa: E731
    trace, replicas, outers, given = trained(make, config), Replicas(config), Outers(momentum=momentum), []
    for step in range(STEPS):
        replicas.step(step)
        if (step + 1) % PERIOD == 0:
            given.append(outers.theta - replicas.w.numpy())
            outers.step(mixture(given, len(given) - 1, staleness, eager))
            replicas.w[:] = torch.from_numpy(outers.theta)
        assert_equal(trace.w_at[step], replicas.w)
    for t in range(ROUNDS, ROUNDS + staleness):  # the averages in flight at the end
        outers.step(mixture(given, t, staleness, eager))
    assert_equal(trace.w, torch.from_numpy(outers.theta))


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_without_delay_it_is_diloco(config, eager):
    plain = trained(lambda: DiLoCo(period=4), config)
    late = trained(lambda: EagerDiLoCo(period=4, staleness=0, eager=eager), config)
    assert_equal(late.w_at, plain.w_at)
    assert_equal(late.w, plain.w)


@pytest.mark.parametrize(
    "compression", ["none", {"kind": "topk", "ratio": 0.3}, {"kind": "powersgd", "least": 0}, "fp16"]
)
@pytest.mark.parametrize("staleness", [1, 2])
def test_without_outer_momentum_the_replicas_end_equal_and_with_it_they_do_not(staleness, compression):
    make = lambda mu: EagerDiLoCo(period=4, staleness=staleness, momentum=mu, compression=compression)  # noqa: E731
    plain = trained(lambda: make(0.0))
    assert_equal(plain.w, plain.w[0])
    assert float((plain.w_at[-1] - plain.w_at[-1][0]).abs().max()) > 1e-3  # they differ while averages are in flight
    pushed = trained(lambda: make(0.9))
    assert float((pushed.w - pushed.w[0]).abs().max()) > 1e-3
    assert make(0.0).promises.agrees
    assert not make(0.9).promises.agrees


def test_not_eager_all_workers_share_theta_and_wait_for_their_own_steps():
    trace = trained(lambda: EagerDiLoCo(period=PERIOD, eager=False))
    ends = trace.w_at[PERIOD - 1 :: PERIOD]
    assert_equal(ends, ends[:, :1])
    assert_equal(ends[0], START)  # nothing has arrived after the first round
    assert EagerDiLoCo(period=PERIOD, eager=False).promises.agrees


def test_a_drain_in_a_round_applies_everything_once():
    drained = trained(lambda: EagerDiLoCo(period=7, momentum=0.0, outer_lr=1), steps=10)
    assert_equal(drained.w, drained.w[0])
    again = trained(lambda: EagerDiLoCo(period=7, momentum=0.0, outer_lr=1), steps=10, drain_after={9})
    assert_equal(again.w, drained.w)


def test_one_worker_applies_its_own_gradient_once():
    """Alone, everything is fresh: plain outer steps of one are the local optimiser's."""
    alone = trained(lambda: EagerDiLoCo(period=3, momentum=0.0, outer_lr=1), PLAIN, workers=1)
    local = Replicas(workers=1)
    for step in range(STEPS):
        local.step(step)
    assert_equal(alone.w, local.w)


def test_the_delay_is_a_whole_number_of_rounds():
    eager = EagerDiLoCo(period=6, staleness=2)
    assert (eager.period_steps, eager.delay_steps, eager.in_flight) == (6, 12, 3)
    assert eager.message_bytes(100) == 400
    assert EagerDiLoCo(period=6).in_flight == 2
    assert eager.promises.follows_law
    assert not EagerDiLoCo(period=6, compression="topk").promises.follows_law


def test_a_compressor_with_momentum_is_refused():
    eager = EagerDiLoCo(period=6, compression={"kind": "dgc", "momentum": 0.9})
    with pytest.raises(AlgorithmError, match=r"'eager-diloco': compression: momentum = 0.9; expected 0"):
        eager.check(Setting(workers=4))
