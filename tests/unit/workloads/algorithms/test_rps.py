"""RPS and gradient sharing against the paper's rules, written out for all workers at once."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest
import torch
from trained import NUMEL, OPTIMIZERS, PLAIN, START, Replicas, assert_equal, gradient, trained

from wanbench.testing import check, simulate
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Setting
from wanbench.workloads.algorithms.localsgd import LocalSGD
from wanbench.workloads.algorithms.rps import RPS, GradientSharing
from wanbench.workloads.algorithms.ssgd import SSGD
from wanbench.workloads.compute.optim import SGDConfig

WORKERS = 3
BLOCK = "8B"  # one float64
OWNER = [element * WORKERS // NUMEL for element in range(NUMEL)]


def lost(number, src, dst, block):
    """Return whether a block is lost: a third of all blocks, the same in every run."""
    return random.Random(f"{number}/{src}/{dst}/{block}").random() < 1 / 3


def everything_lost(number, src, dst, block):
    return True


def block_of(element):
    return element % (NUMEL // WORKERS)


def averaged(v, step):
    """Apply the paper's rule element by element; `v` has the shape (workers, numel)."""
    out = v.clone()
    for element, owner in enumerate(OWNER):
        block = block_of(element)
        arrived = [i for i in range(WORKERS) if i == owner or not lost(2 * step, i, owner, block)]
        mean = sum(v[i, element] for i in arrived) / len(arrived)
        for i in range(WORKERS):
            if i == owner or not lost(2 * step + 1, owner, i, block):
                out[i, element] = mean
    return out


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_rps_steps_and_averages_the_models_that_arrive(config):
    trace = trained(lambda: RPS(block=BLOCK), config, workers=WORKERS, lost=lost)
    replicas = Replicas(config, WORKERS)
    for step in range(30):
        replicas.step(step)
        replicas.w[:] = averaged(replicas.w, step)
        assert_equal(trace.w_at[step], replicas.w)
    assert not torch.equal(trace.w[0], trace.w[1])


def test_gradient_sharing_steps_with_the_gradients_that_arrive():
    trace = trained(lambda: GradientSharing(block=BLOCK), workers=WORKERS, lost=lost)
    w = START.repeat(WORKERS, 1)
    for step in range(30):
        g = torch.stack([gradient(rank, step, w[rank]) for rank in range(WORKERS)])
        w = w - PLAIN.lr * averaged(g, step)
        assert_equal(trace.w_at[step], w)


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("block", [BLOCK, "16B", "1MiB"])
def test_without_loss_rps_is_averaging_the_models_at_every_step(config, block):
    assert_equal(trained(lambda: RPS(block=block), config).w_at, trained(lambda: LocalSGD(period=1), config).w_at)


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_without_loss_gradient_sharing_is_synchronous_sgd(config):
    assert_equal(trained(GradientSharing, config).w_at, trained(SSGD, config).w_at)


def test_without_loss_and_momentum_rps_is_synchronous_sgd():
    assert_equal(trained(RPS).w_at, trained(SSGD).w_at)


@pytest.mark.parametrize("kind", [RPS, GradientSharing])
def test_if_nothing_arrives_every_worker_trains_alone(kind):
    assert_equal(trained(kind, lost=everything_lost).w_at, trained(Algorithm).w_at)


@pytest.mark.parametrize("workers", [7, 9])
def test_with_more_workers_than_parameters_some_have_no_share(workers):
    assert_equal(trained(RPS, workers=workers).w_at, trained(SSGD, workers=workers).w_at)


@pytest.mark.parametrize("kind", [RPS, GradientSharing])
def test_the_oracles_hold(kind):
    assert "nothing is in flight after finish" in check(kind)


# n = 16, updates of variance 1 in each step: steady variance over the replicas, from our own simulation of the
# rule with whole (worker, block) messages lost independently, not from a figure of the paper.
STEADY = {0.1: 0.092, 0.3: 0.37}


def noise(rank, step, w):
    return torch.randn(w.numel(), generator=torch.Generator().manual_seed(1000 * step + rank), dtype=w.dtype)


@lru_cache
def spread(kind, loss, steps=40, workers=16, blocks=3):
    """The variance over the replicas after each step, averaged over parameters with zero-mean gradients."""
    draws = torch.rand(2 * steps, workers, workers, blocks, generator=torch.Generator().manual_seed(1)).tolist()

    def some(number, src, dst, block):
        return draws[number][src][dst][block] < loss

    trace = simulate(
        lambda: kind(block="8B"),
        noise,
        SGDConfig(lr=1.0),
        torch.zeros(blocks * workers, dtype=torch.float64),
        steps=steps,
        world_size=workers,
        lost=some,
    )
    return trace.w_at.var(dim=1, unbiased=False).mean(dim=1)


@pytest.mark.parametrize("loss", [pytest.param(0.1, marks=pytest.mark.long), 0.3])
def test_the_replicas_of_rps_stay_as_close_as_the_rule_says(loss):
    assert float(spread(RPS, loss)[5:].mean()) == pytest.approx(STEADY[loss], rel=0.1)


def test_gradient_sharing_drifts_apart_without_limit_and_rps_does_not():
    sharing, rps = (spread(kind, 0.1) for kind in (GradientSharing, RPS))
    # Independent errors add up: the variance grows in proportion to the steps.
    assert float(sharing[39] / sharing[9]) == pytest.approx(4.0, rel=0.25)
    assert float(rps[30:].mean() / rps[5:15].mean()) == pytest.approx(1.0, rel=0.25)
    assert float(sharing[39]) > 10 * float(rps[39])


def refusal(action):
    with pytest.raises(AlgorithmError) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"block": "10B"}, "block = '10B'; expected a multiple of 4 bytes, the size of a parameter"),
        ({"block": "0B"}, "block = '0B'; expected more than 0"),
        ({"block": 1456}, "block = 1456; expected a string"),
        ({"deadline": "0s"}, "deadline = '0s'; expected more than 0"),
        ({"deadline": "1000s"}, "deadline = '1000s'; expected at most 30s"),
        ({"deadline": "20ms"}, "silence = '50ms'; expected at most the deadline, 20ms"),
        ({"silence": "0ms"}, "silence = '0ms'; expected more than 0"),
        (
            {"deadline": "-1s"},
            "deadline: '-1s' is negative; a delay is a number and one of ns, us, ms, s, such as '80ms'",
        ),
        ({"block": "1KB"}, "block: '1KB' has the unknown unit 'KB'; a size is a number and one of B, kB, KiB, MB, MiB, "
         "GB, GiB, such as '25MiB'; did you mean 'kB'?"),
    ],
)  # fmt: skip
def test_an_impossible_parameter_is_named(params, line):
    assert refusal(lambda: RPS(**params)) == f"algorithm 'rps': {line}"
    assert refusal(lambda: GradientSharing(**params)) == f"algorithm 'gradient-sharing': {line}"


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (Setting(workers=1), "algorithm 'rps' needs at least 2 workers, got 1"),
        (
            Setting(workers=2, collective="gloo"),
            "algorithm 'rps' sends each block to its owner and back, as collective 'direct' does; expected "
            "comm.collective = 'direct', got 'gloo'",
        ),
        (
            Setting(workers=2, rtt_s=2.0),
            "algorithm 'rps': deadline = '1s'; expected more than 1000 ms, the one-way delay of a datagram",
        ),
    ],
)
def test_an_unsupported_setting_is_refused(setting, line):
    assert refusal(lambda: RPS().check(setting)) == line
    RPS().check(Setting(workers=2, rtt_s=1.9))
