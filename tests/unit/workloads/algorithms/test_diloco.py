"""DiLoCo and Streaming DiLoCo against their papers' rules, written out for all workers at once."""

from __future__ import annotations

import pytest
import torch
from trained import NUMEL, OPTIMIZERS, START, Replicas, assert_equal, trained

from wanbench.workloads.algorithms.base import AlgorithmError, Setting
from wanbench.workloads.algorithms.diloco import DiLoCo
from wanbench.workloads.algorithms.localsgd import LocalSGD
from wanbench.workloads.algorithms.ssgd import SSGD
from wanbench.workloads.algorithms.streaming import StreamingDiLoCo


class Nesterov:
    """torch.optim.SGD's Nesterov step on pseudo-gradients."""

    def __init__(self, start, lr=0.7, momentum=0.9):
        self.theta = start.clone().requires_grad_()
        self.optimizer = torch.optim.SGD([self.theta], lr, momentum, nesterov=momentum > 0)

    def step(self, delta):
        self.theta.grad = delta.clone()
        self.optimizer.step()
        return self.theta.detach().clone()


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_each_round_ends_with_an_outer_nesterov_step(config):
    trace, replicas, outer = trained(lambda: DiLoCo(period=5), config), Replicas(config), Nesterov(START)
    for step in range(30):
        replicas.step(step)
        if (step + 1) % 5 == 0:
            replicas.w[:] = outer.step(outer.theta.detach() - replicas.w.mean(dim=0))
        assert_equal(trace.w_at[step], replicas.w)
    assert_equal(trace.w, replicas.w)


def test_a_round_of_one_step_and_a_plain_outer_step_are_synchronous_sgd():
    trace = trained(lambda: DiLoCo(period=1, outer_lr=1, momentum=0))
    assert_equal(trace.w_at, trained(SSGD).w_at)


def test_a_plain_outer_step_of_one_is_local_sgd():
    trace = trained(lambda: DiLoCo(period=4, outer_lr=1, momentum=0), OPTIMIZERS["adamw"])
    assert_equal(trace.w_at[:28], trained(lambda: LocalSGD(period=4), OPTIMIZERS["adamw"]).w_at[:28])


def test_a_drain_ends_the_round_early_and_a_second_one_does_nothing():
    drained = trained(lambda: DiLoCo(period=7), steps=10)
    assert_equal(drained.w, drained.w[0])
    again = trained(lambda: DiLoCo(period=10), steps=10, drain_after={9})
    assert_equal(again.w, again.w_at[-1])


def test_compressed_pseudo_gradients_leave_the_replicas_equal():
    trace = trained(lambda: DiLoCo(period=3, compression={"kind": "topk", "ratio": 0.3}))
    assert_equal(trace.w, trace.w[0])
    assert float((trace.w[0] - START).abs().max()) > 0.1


# ---------------------------------------------------------------- streaming


def test_one_fragment_without_delay_and_mixing_is_diloco():
    streaming = trained(lambda: StreamingDiLoCo(period=5, fragments=1))
    assert_equal(streaming.w_at, trained(lambda: DiLoCo(period=5)).w_at)


@pytest.mark.parametrize(("delay", "mixing"), [(0, 0.0), (1, 0.5), (4, 0.25)])
def test_fragments_are_sent_in_turn_and_mixed_in_later(delay, mixing):
    period, fragments = 6, 3
    make = lambda: StreamingDiLoCo(period=period, fragments=fragments, delay=delay, mixing=mixing)  # noqa: E731
    trace, replicas = trained(make), Replicas()
    parts = [slice(2 * f, 2 * f + 2) for f in range(fragments)]
    outers, under_way = [Nesterov(START[part]) for part in parts], []
    for step in range(30):
        replicas.step(step)
        if (step + 1) % 2 == 0:
            f = (step // 2) % fragments
            under_way.append((step, f, outers[f].theta.detach() - replicas.w[:, parts[f]].mean(dim=0)))
        while under_way and step - under_way[0][0] >= delay:
            _, f, delta = under_way.pop(0)
            replicas.w[:, parts[f]] = mixing * replicas.w[:, parts[f]] + (1 - mixing) * outers[f].step(delta)
        assert_equal(trace.w_at[step], replicas.w)


def test_each_message_is_a_fragment():
    streaming = StreamingDiLoCo(period=6, fragments=4 - 1, delay=3)
    assert (streaming.period_steps, streaming.delay_steps, streaming.in_flight) == (2, 3, 2)
    assert streaming.message_bytes(100) == 4 * 34
    assert NUMEL % 3 == 0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"period": 6, "fragments": 4},
            "algorithm 'streaming-diloco': period = 6; expected a multiple of fragments = 4",
        ),
        (
            {"period": 6, "fragments": 3, "delay": 6},
            "algorithm 'streaming-diloco': delay = 6; expected less than period = 6",
        ),
        (
            {"period": 6, "fragments": 3, "mixing": -1},
            "algorithm 'streaming-diloco': mixing = -1; expected a number, from 0 to 1",
        ),
        (
            {"period": 6, "fragments": 3, "outer_lr": 0},
            "algorithm 'streaming-diloco': outer_lr = 0; expected a number, above 0 to 100",
        ),
    ],
)
def test_a_mistake_is_reported_in_one_line(params, message):
    with pytest.raises(AlgorithmError) as caught:
        StreamingDiLoCo(**params)
    assert str(caught.value) == message


def test_fragments_are_not_matrices():
    streaming = StreamingDiLoCo(period=6, fragments=3, compression="powersgd")
    with pytest.raises(AlgorithmError) as caught:
        streaming.check(Setting(workers=4, shapes=((10, 10),)))
    assert str(caught.value).endswith("'powersgd' needs whole matrices; fragments cut them up")
