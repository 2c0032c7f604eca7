"""DTS in model space, with one tensor instead of two, and compressed."""

from __future__ import annotations

import pytest
import torch
from test_dts import OPTIMIZERS, SCHEDULE, recorded, replay
from trained import NUMEL, START, WORKERS, assert_equal, gradient

from wanbench.testing import simulate, synchronous
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Setting
from wanbench.workloads.algorithms.dts import DTS
from wanbench.workloads.compute.optim import AdamWConfig, SGDConfig


def trained(make, config, steps=30):
    return simulate(make, gradient, config, START, steps=steps, world_size=WORKERS)


@pytest.mark.parametrize(("delay", "period"), [(0, 1), (0, 4), (3, 1), (3, 4), (4, 4), (9, 2)])
def test_without_momentum_and_decay_model_space_is_gradient_space(delay, period):
    config = SGDConfig(lr=0.05, **SCHEDULE)
    gradient, model = (
        trained(lambda form=form: DTS(delay=delay, period=period, form=form), config) for form in ("gradient", "model")
    )
    assert_equal(model.w_at, gradient.w_at)


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_in_model_space_the_drained_parameters_are_those_of_synchronous_sgd_with_local_momentum(config):
    gradients = recorded(62)
    trace = replay(lambda: DTS(delay=5, period=4, form="model"), gradients, config, drain_after={30})
    w, m = synchronous(gradients, config, START)
    assert_equal(trace.w, w[-1])
    assert_equal(trace.m.mean(dim=0), m)
    assert (float((trace.m - trace.m[0]).abs().max()) > 0.1) == (config.momentum > 0)


def test_model_space_works_with_adamw_and_the_replicas_agree():
    config = AdamWConfig(lr=0.02)
    trace = trained(lambda: DTS(delay=3, period=2, form="model"), config, 60)
    assert_equal(trace.w, trace.w[0])
    alone = trained(Algorithm, config, 60)
    assert float((alone.w - alone.w[0]).abs().max()) > 0.05
    assert float((trace.w[0] - START).abs().max()) > 0.1


def test_one_tensor_is_exact_if_gradients_are_constant_within_a_block_and_close_otherwise():
    config = OPTIMIZERS["nesterov, weight decay, schedule"]
    gradients = recorded(60)
    constant = gradients.view(15, 4, WORKERS, NUMEL)[:, :1].expand(15, 4, WORKERS, NUMEL).reshape(60, WORKERS, NUMEL)
    w, m = synchronous(constant, config, START)
    trace = replay(lambda: DTS(delay=3, period=4, tensors=1), constant, config)
    assert_equal(trace.w, w[-1])
    assert_equal(trace.m, m)
    spreads = [
        float((one.w - one.w[0]).abs().max())
        for one in (replay(make, gradients, config) for make in (lambda: DTS(delay=3, period=4, tensors=1), Algorithm))
    ]
    assert 1e-3 < spreads[0] < 0.2 * spreads[1]


@pytest.mark.parametrize("period", [1, 4])
def test_one_tensor_sends_half_as_much_with_momentum(period):
    assert DTS(delay=4, period=period, tensors=1).tensors_per_message(0.9) == 1


@pytest.mark.parametrize("compression", ["topk", "signsgd", "randomk", {"kind": "powersgd", "rank": 1}, "dgc", "qsgd"])
@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_compression_never_moves_the_mean_of_the_replicas(config, compression):
    gradients = recorded(30)
    trace = simulate(
        lambda: DTS(delay=3, period=2, compression=compression),
        lambda rank, step, w: gradients[step, rank],
        config,
        START,
        steps=30,
        world_size=WORKERS,
        shapes=((2, 3),),
    )
    w, _ = synchronous(gradients, config, START)
    torch.testing.assert_close(trace.w_at.mean(dim=1), w, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("delay", "period"), [(0, 1), (4, 1), (5, 3)])
def test_after_the_drain_compressed_replicas_differ_only_by_their_residuals(delay, period):
    """w_j = w_0 - lr (sum of cbar + e_j), and the values sent plus e_j equal the sum of all gradients."""
    lr, gradients, residuals = 0.05, recorded(24), {}

    class Watched(DTS):
        def finish(self):
            super().finish()
            residuals[self.replica.comm.rank] = self._averagers[0].residual.clone()

    compression = {"kind": "topk", "ratio": 0.3}
    trace = replay(lambda: Watched(delay=delay, period=period, compression=compression), gradients, SGDConfig(lr=lr))
    e = torch.stack([residuals[rank] for rank in range(WORKERS)])
    # With a period the block's step is sent, -lr times its gradients; without one, the gradient itself.
    expected = e - e.mean(dim=0) if period > 1 else -lr * (e - e.mean(dim=0))
    assert_equal(trace.w - trace.w.mean(dim=0), expected)
    assert float(expected.abs().max()) > 0.05 * lr


def test_top_k_of_everything_changes_nothing():
    config, everything = OPTIMIZERS["momentum, weight decay, schedule"], {"kind": "topk", "ratio": 1}
    plain, sent = (trained(lambda c=c: DTS(delay=3, period=2, compression=c), config) for c in ("none", everything))
    assert_equal(sent.w_at, plain.w_at)


class Rounds(DTS):
    """Record the step at which each all_reduce is issued."""

    def start(self, replica):
        super().start(replica)
        issued, original = [], replica.comm.all_reduce
        replica.comm.all_reduce = lambda vector: (issued.append(replica.step), original(vector))[1]
        self.issued = issued
        logs.append(issued)


logs: list = []


def test_the_two_rounds_of_powersgd_share_the_delay():
    logs.clear()
    gradients = recorded(7)
    simulate(
        lambda: Rounds(delay=4, period=3, compression={"kind": "powersgd", "rank": 1, "least": 0}),
        lambda rank, step, w: gradients[step, rank],
        SGDConfig(lr=0.05),
        START,
        steps=7,
        world_size=WORKERS,
        shapes=((2, 3),),
    )
    # Blocks end with steps 2 and 5: P is sent then, Q two steps later. The last step drains: Q of the second block,
    # then P and Q of the partial third.
    assert logs == [[2, 4, 5, 6, 6, 6]] * WORKERS


@pytest.mark.parametrize(
    ("params", "setting", "message"),
    [
        (
            {},
            {"optimizer": "adamw"},
            "algorithm 'dts': exact compensation needs optimizer 'sgd', not 'adamw'; "
            'dts with form = "model" works with any',
        ),
        (
            {"compression": {"kind": "dgc", "momentum": 0.9}},
            {},
            "algorithm 'dts': compression: momentum = 0.9; expected 0, because local steps use the "
            "optimiser's momentum; set train.momentum instead",
        ),
        (
            {"compression": "topk"},
            {"collective": "hierarchical"},
            "algorithm 'dts': compression: 'topk' needs an all_gather, which collective 'hierarchical' lacks; "
            "use one of direct, gloo, ring",
        ),
        (
            {"compression": "powersgd"},
            {"shapes": ((100,),)},
            "algorithm 'dts': compression: 'powersgd' needs the matrices of a model; a workload by numbers has none, "
            "and a payload_scale below 1 cuts them up",
        ),
    ],
)
def test_parameters_that_exclude_each_other_are_refused_in_one_line(params, setting, message):
    with pytest.raises(AlgorithmError) as caught:
        DTS(delay=4, period=4, **params).check(Setting(workers=4, **setting))
    assert str(caught.value) == message


def test_model_space_and_matrices_are_not_refused():
    DTS(delay=4, period=4, form="model").check(Setting(workers=4, optimizer="adamw"))
    DTS(delay=4, period=4, compression="powersgd").check(Setting(workers=4, shapes=((10, 10),)))
