"""Exact compensation: after the drain, late or blocked averages leave no trace."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_through import PassThrough
from trained import NUMEL, START, WORKERS, assert_equal, gradient

from wanbench.testing import simulate, synchronous
from wanbench.workloads.algorithms.base import Replica
from wanbench.workloads.algorithms.delayed import Delayed
from wanbench.workloads.algorithms.dts import DTS
from wanbench.workloads.algorithms.sparse import Sparse
from wanbench.workloads.algorithms.ssgd import SSGD
from wanbench.workloads.compute.optim import SGD, SGDConfig

SCHEDULE = {"schedule": "cosine", "warmup_steps": 7, "total_steps": 80}
OPTIMIZERS = {
    "vanilla": SGDConfig(lr=0.05),
    "vanilla, weight decay, schedule": SGDConfig(lr=0.05, weight_decay=0.1, **SCHEDULE),
    "momentum": SGDConfig(lr=0.05, momentum=0.9),
    "momentum, weight decay, schedule": SGDConfig(lr=0.05, momentum=0.9, weight_decay=0.1, **SCHEDULE),
    "nesterov, weight decay, schedule": SGDConfig(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1, **SCHEDULE),
}


def recorded(steps, seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(steps, WORKERS, NUMEL, generator=random, dtype=torch.float64)


def replay(make, gradients, config, drain_after=()):
    steps = len(gradients)
    return simulate(
        make,
        lambda rank, step, w: gradients[step, rank],
        config,
        START,
        steps=steps,
        world_size=WORKERS,
        drain_after=drain_after,
    )


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("period", [1, 3, 4])
@pytest.mark.parametrize("delay", [0, 1, 4, 20])
def test_after_the_drain_every_replica_is_as_if_no_average_had_been_late(delay, period, config):
    gradients = recorded(62)  # not a multiple of 3 or 4: the last block is partial
    trace = replay(lambda: DTS(delay=delay, period=period), gradients, config)
    w, m = synchronous(gradients, config, START)
    assert_equal(trace.w, w[-1])
    assert_equal(trace.m, m)


@settings(deadline=None, max_examples=40)
@given(
    delay=st.integers(0, 12),
    period=st.integers(1, 6),
    config=st.sampled_from(list(OPTIMIZERS.values())),
    steps=st.integers(1, 40),
    drains=st.sets(st.integers(0, 39), max_size=4),
)
def test_it_can_be_drained_at_any_step_and_continue(delay, period, config, steps, drains):
    gradients = recorded(steps)
    trace = replay(lambda: DTS(delay=delay, period=period), gradients, config, drains)
    w, m = synchronous(gradients, config, START)
    assert trace.left_outstanding == 0
    assert_equal(trace.w, w[-1])
    assert_equal(trace.m, m)


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_compensation_never_moves_the_mean_of_the_replicas(config):
    gradients = recorded(50)
    trace = replay(lambda: DTS(delay=5, period=4), gradients, config)
    w, _ = synchronous(gradients, config, START)
    torch.testing.assert_close(trace.w_at.mean(dim=1), w, rtol=1e-11, atol=1e-11)
    spread = (trace.w_at - trace.w_at.mean(dim=1, keepdim=True)).abs().amax(dim=(1, 2))
    assert spread.min() > 1e-4, "replicas were expected to differ while averages are under way"


@pytest.mark.parametrize("make", [lambda: Delayed(delay=6), lambda: Sparse(period=6)], ids=["delayed", "sparse"])
def test_delayed_and_sparse_are_exact_too(make):
    config, gradients = OPTIMIZERS["nesterov, weight decay, schedule"], recorded(40)
    w, m = synchronous(gradients, config, START)
    trace = replay(make, gradients, config)
    assert_equal(trace.w, w[-1])
    assert_equal(trace.m, m)


def test_passing_late_averages_through_is_exact_only_without_momentum():
    gradients = recorded(62)
    for momentum, exact in [(0.0, True), (0.9, False)]:
        trace = replay(lambda: PassThrough(delay=4), gradients, SGDConfig(lr=0.05, momentum=momentum))
        spread = float((trace.w - trace.w[0]).abs().max())
        assert (spread < 1e-11) == exact, spread
        assert exact or spread > 0.05


@dataclass
class WeightsOnly(DTS):
    """Average the block's change of `w`, and keep that of `m` local: one tensor instead of two."""

    def _issue(self):
        self._block, self._averagers = self._block[:1], self._averagers[:1]
        super()._issue()


def test_with_momentum_and_a_period_one_averaged_tensor_is_not_enough():
    gradients = recorded(62)
    for momentum, exact in [(0.0, True), (0.9, False)]:
        config = SGDConfig(lr=0.05, momentum=momentum)
        trace = replay(lambda: WeightsOnly(delay=0, period=4), gradients, config)
        spread = float((trace.w - trace.w[0]).abs().max())
        assert (spread < 1e-11) == exact, spread
        assert exact or spread > 0.05


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_without_delay_and_period_it_is_synchronous_sgd(config):
    run = {"gradient": gradient, "config": config, "start": START, "steps": 40, "world_size": WORKERS}
    late, in_time = simulate(lambda: DTS(delay=0, period=1), **run), simulate(SSGD, **run)
    assert_equal(late.w_at, in_time.w_at)
    assert_equal(late.m, in_time.m)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_delay_it_averages_parameters_and_momentum_every_period(momentum):
    config, period, steps = SGDConfig(lr=0.05, momentum=momentum, weight_decay=0.1), 4, 20
    trace = simulate(lambda: Sparse(period=period), gradient, config, START, steps=steps, world_size=WORKERS)
    w, m, optimizer = START.repeat(WORKERS, 1), torch.zeros(WORKERS, NUMEL, dtype=torch.float64), SGD(config)
    for step in range(steps):
        for rank in range(WORKERS):
            optimizer.step(w[rank], m[rank], gradient(rank, step, w[rank]))
        if (step + 1) % period == 0:
            w[:], m[:] = w.mean(dim=0), m.mean(dim=0)
        assert_equal(trace.w_at[step], w)


@pytest.mark.parametrize(("delay", "period"), [(3, 4), (4, 4), (7, 3)])
def test_without_momentum_it_is_cocod_sgd(delay, period):
    """Model-space form: x <- mean(x as sent) + (x now - x as sent), later sent copies are corrected in the same way."""
    config, steps = SGDConfig(lr=0.05), 30
    trace = simulate(
        lambda: DTS(delay=delay, period=period),
        gradient,
        config,
        START,
        steps=steps,
        world_size=WORKERS,
    )
    w, sent, optimizer = START.repeat(WORKERS, 1), [], SGD(config)
    for step in range(steps):
        for rank in range(WORKERS):
            optimizer.step(w[rank], w[rank], gradient(rank, step, w[rank]))
        if (step + 1) % period == 0:
            sent.append((step, w.clone()))
        if sent and step - sent[0][0] == delay:
            _, saved = sent.pop(0)
            for copy in [w, *(later for _, later in sent)]:
                copy += saved.mean(dim=0) - saved
        assert_equal(trace.w_at[step], w)


def test_in_float32_the_drained_replicas_agree_to_rounding():
    def gradient(rank, step, w):
        return w.new_tensor([(step * 7 + rank * 3 + i) % 11 - 5.0 for i in range(NUMEL)])

    config = SGDConfig(lr=0.01, momentum=0.9)
    trace = simulate(lambda: DTS(delay=8, period=4), gradient, config, START.float(), steps=400, world_size=WORKERS)
    spread = (trace.w - trace.w[0]).abs().max() / trace.w.abs().max()
    assert spread < 1e-5


class Scalar:
    """A vector without values: it has the operations of the Vector protocol and counts its copies."""

    copies = 0

    def __init__(self, value=0.0):
        self.value = value

    def add_(self, other, *, alpha=1.0):
        self.value += alpha * other.value
        return self

    def mul_(self, factor):
        self.value *= factor
        return self

    def copy_(self, other):
        self.value = other.value
        return self

    def zero_(self):
        self.value = 0.0
        return self

    def clone(self):
        Scalar.copies += 1
        return Scalar(self.value)

    def numel(self):
        return 1


class Events:
    """A comm of one worker that records what is issued and what is waited for."""

    rank, world_size = 0, 1

    def __init__(self):
        self.log = []

    def all_reduce(self, vector):
        number = sum(event.startswith("issue") for event in self.log)
        self.log.append(f"issue {number}")
        return Awaited(self.log, number)


@dataclass
class Awaited:
    log: list
    number: int

    def wait(self):
        self.log.append(f"wait {self.number}")


def stand_in(algorithm, momentum=0.0):
    optimizer, comm = SGD(SGDConfig(momentum=momentum)), Events()
    replica = Replica(w=Scalar(), m=Scalar(), optimizer=optimizer, comm=comm)
    algorithm.start(replica)

    def step():
        applied = algorithm.gradient(Scalar(1.0))
        optimizer.step(replica.w, replica.m, applied)
        algorithm.stepped()

    return step, comm.log


def test_a_message_is_sent_before_the_wait_of_its_step_and_averages_are_applied_in_order():
    step, log = stand_in(Delayed(delay=2))
    for _ in range(5):
        step()
    assert log == ["issue 0", "issue 1", "issue 2", "wait 0", "issue 3", "wait 1", "issue 4", "wait 2"]


def test_a_block_is_sent_at_its_end_and_awaited_one_delay_later():
    step, log = stand_in(DTS(delay=3, period=2))
    seen = []
    for _ in range(8):
        step()
        seen.append(list(log))
        log.clear()
    assert seen == [[], ["issue 0"], [], ["issue 0"], ["wait 0"], ["issue 0"], ["wait 0"], ["issue 0"]]


def test_with_momentum_the_two_tensors_of_a_block_are_sent_back_to_back():
    step, log = stand_in(DTS(delay=0, period=2), momentum=0.9)
    step()
    step()
    assert log == ["issue 0", "issue 1", "wait 0", "wait 1"]


def test_drain_sends_the_partial_block_and_waits_for_all_messages():
    algorithm = DTS(delay=9, period=2)
    step, log = stand_in(algorithm)
    for _ in range(5):
        step()
    algorithm.finish()
    assert log == ["issue 0", "issue 1", "issue 2", "wait 0", "wait 1", "wait 2"]
    algorithm.finish()
    assert len(log) == 6, "nothing is left to drain"


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("algorithm", [Delayed(delay=20), DTS(delay=20, period=4), Sparse(period=4)])
def test_vectors_are_reused(algorithm, momentum):
    step, _ = stand_in(algorithm, momentum)
    Scalar.copies = 0
    for _ in range(30):
        step()
    first = Scalar.copies
    # Two for each message in flight, one for the block that is growing.
    assert first <= (2 * algorithm.in_flight + 1) * algorithm.tensors_per_message(momentum)
    for _ in range(300):
        step()
    assert Scalar.copies == first
