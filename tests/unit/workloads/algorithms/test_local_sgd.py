"""Local SGD, CoCoD-SGD, Overlap-Local-SGD and DGA against their papers' rules, written out for all workers at once."""

from __future__ import annotations

import pytest
import torch
from trained import OPTIMIZERS, START, Replicas, assert_equal, trained

from wanbench.workloads.algorithms.base import AlgorithmError, Setting
from wanbench.workloads.algorithms.cocod import CoCoD
from wanbench.workloads.algorithms.dga import DGA
from wanbench.workloads.algorithms.dts import DTS
from wanbench.workloads.algorithms.localsgd import LocalSGD
from wanbench.workloads.algorithms.overlap import OverlapLocalSGD
from wanbench.workloads.algorithms.ssgd import SSGD
from wanbench.workloads.compute.optim import SGDConfig


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("period", [1, 4])
def test_local_sgd_averages_the_parameters_every_period_and_nothing_else(period, config):
    trace, replicas = trained(lambda: LocalSGD(period=period), config), Replicas(config)
    for step in range(28):
        replicas.step(step)
        if (step + 1) % period == 0:
            replicas.w[:] = replicas.w.mean(dim=0)
        assert_equal(trace.w_at[step], replicas.w)


def test_local_sgd_of_period_one_without_momentum_is_synchronous_sgd():
    local, synchronous = trained(lambda: LocalSGD(period=1)), trained(SSGD)
    assert_equal(local.w_at, synchronous.w_at)


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_cocod_adds_the_progress_since_sending_to_the_average(config):
    """x <- mean(x as sent) + (x now - x as sent), each p steps."""
    period = 4
    trace, replicas, sent = trained(lambda: CoCoD(period=period), config), Replicas(config), None
    for step in range(28):
        replicas.step(step)
        if (step + 1) % period == 0:
            if sent is not None:
                replicas.w += sent.mean(dim=0) - sent
            sent = replicas.w.clone()
        assert_equal(trace.w_at[step], replicas.w)


@pytest.mark.parametrize(("delay", "period"), [(0, 5), (2, 5), (5, 5), (12, 5)])
def test_dga_replaces_a_workers_own_part_of_a_round_by_the_average_at_any_delay(delay, period):
    trace, replicas, rounds = trained(lambda: DGA(delay=delay, period=period)), Replicas(), []
    u = torch.zeros_like(replicas.w)
    for step in range(30):
        before = replicas.w.clone()
        replicas.step(step)
        u += replicas.w - before
        if (step + 1) % period == 0:
            rounds.append((step, u.clone()))
            u.zero_()
        while rounds and step - rounds[0][0] >= delay:
            _, own = rounds.pop(0)
            replicas.w += own.mean(dim=0) - own
        assert_equal(trace.w_at[step], replicas.w) if step < 29 else None
    assert_equal(trace.w, trace.w[0])


def test_dga_is_federated_averaging_without_delay_and_delayed_with_rounds_of_one_step():
    assert_equal(trained(lambda: DGA(delay=0, period=4)).w_at, trained(lambda: LocalSGD(period=4)).w_at)
    assert_equal(trained(lambda: DGA(delay=6, period=1)).w_at, trained(lambda: DTS(delay=6, period=1)).w_at)


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_overlap_local_sgd_pulls_towards_the_anchor_of_the_last_round(config):
    period, pull, beta = 3, 0.6, 0.7
    trace = trained(lambda: OverlapLocalSGD(period=period, pull=pull, momentum=beta), config)
    replicas, z, v, sent = Replicas(config), START.clone(), torch.zeros_like(START), None
    for step in range(29):  # the drain after the last step moves only the anchor
        replicas.step(step)
        if (step + 1) % period == 0:
            if sent is not None:
                v = beta * v + (sent.mean(dim=0) - z)
                z = z + v
            replicas.w[:] = (1 - pull) * replicas.w + pull * z
            sent = replicas.w.clone()
        assert_equal(trace.w_at[step], replicas.w)


def test_overlap_local_sgd_without_pull_trains_alone():
    trace, replicas = trained(lambda: OverlapLocalSGD(period=2, pull=0.0)), Replicas()
    for step in range(30):
        replicas.step(step)
    assert_equal(trace.w, replicas.w)


@pytest.mark.parametrize(
    "make", [lambda c: LocalSGD(period=3, compression=c), lambda c: CoCoD(period=3, compression=c)]
)
def test_compressed_replicas_keep_their_mean(make):
    plain, compressed = (
        trained(lambda c=c: make(c), SGDConfig(lr=1e-9)) for c in ("none", {"kind": "topk", "ratio": 0.2})
    )
    # With a tiny learning rate the gradients are those of the start, whatever is sent.
    scale = float((plain.w - START).abs().max())
    assert float((compressed.w.mean(dim=0) - plain.w.mean(dim=0)).abs().max()) < 1e-5 * scale


def test_they_work_with_any_optimiser():
    for algorithm in (LocalSGD(period=3), CoCoD(period=3), DGA(delay=1, period=3), OverlapLocalSGD(period=3)):
        algorithm.check(Setting(workers=4, optimizer="adamw"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalSGD(period=0), "algorithm 'localsgd': period = 0; expected a whole number, 1 or more"),
        (lambda: DGA(delay=-1, period=2), "algorithm 'dga': delay = -1; expected a whole number, 0 or more"),
        (
            lambda: OverlapLocalSGD(period=1, pull=1.5),
            "algorithm 'overlap-localsgd': pull = 1.5; expected a number, from 0 to 1",
        ),
        (
            lambda: OverlapLocalSGD(period=1, momentum=1),
            "algorithm 'overlap-localsgd': momentum = 1; expected a number, from 0 to below 1",
        ),
    ],
)
def test_a_mistake_is_reported_in_one_line(make, message):
    with pytest.raises(AlgorithmError) as caught:
        make()
    assert str(caught.value) == message
