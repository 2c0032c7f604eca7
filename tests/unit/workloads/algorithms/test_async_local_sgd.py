"""Asynchronous local SGD against its paper's rule, written out for all workers at once."""

from __future__ import annotations

import heapq

import pytest
import torch
from clock_replicas import on_the_clock, pull
from trained import PLAIN, START, assert_equal

from wanbench.harness.testbeds.base import WorkerDied
from wanbench.workloads.algorithms.async_local_sgd import AsyncLocalSGD, DelayedNesterov
from wanbench.workloads.algorithms.base import AlgorithmError, Setting
from wanbench.workloads.algorithms.diloco import DiLoCo, Outer
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.local import run_replicas

STEP_S = (0.58, 0.75, 1.51, 3.33)


def expected(step_s, *, period, steps, every, lr=0.7, beta=0.9, spread=0.0, dynamic=True):
    """The vectors with which the workers end: updates in the order of time, without a network."""
    theta, m, buffer, arrivals = START.clone(), torch.zeros_like(START), torch.zeros_like(START), 0
    begun = {rank: theta.clone() for rank in range(len(step_s))}
    left = dict.fromkeys(begun, steps)
    due = [(round(period * 1e9 * step_s[rank]), rank, period) for rank in begun]
    heapq.heapify(due)
    while due:
        now, rank, count = heapq.heappop(due)
        w = begun[rank].clone()
        for _ in range(count):
            w -= PLAIN.lr * pull(rank, w)
        g, left[rank], arrivals = begun[rank] - w, left[rank] - count, arrivals + 1
        buffer += g
        weight = spread
        if arrivals % every == 0:
            m, buffer, weight = beta * m + buffer / every, torch.zeros_like(START), 1 - spread * every + spread
        theta = theta - lr * (weight * beta * m + g / every)
        begun[rank] = theta.clone()
        if left[rank]:
            steps_next = max(1, round(period * min(step_s) / step_s[rank])) if dynamic else period
            steps_next = min(steps_next, left[rank])
            heapq.heappush(due, (now + round(steps_next * 1e9 * step_s[rank]), rank, steps_next))
    return theta


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(("every", "spread"), [(0, 0.0), (3, 0.2), (1, 0.0)])
def test_the_server_follows_the_delayed_nesterov_rule(every, spread, dynamic):
    trained = on_the_clock(
        lambda: AsyncLocalSGD(period=20, every=every, spread=spread, dynamic=dynamic), STEP_S, steps=100
    )
    theta = expected(STEP_S, period=20, steps=100, every=every or 4, spread=spread, dynamic=dynamic)
    for rank in range(4):
        assert_equal(trained[rank][-1][1], theta)


def test_local_steps_are_proportional_to_speed():
    trained = on_the_clock(lambda: AsyncLocalSGD(period=20), STEP_S, steps=100)
    rounds = {}
    for rank, step_s in enumerate(STEP_S):
        moved = [w for _, w in trained[rank]]
        local = [
            torch.allclose(after, before - PLAIN.lr * pull(rank, before), atol=1e-12)
            for before, after in zip([START, *moved], moved, strict=False)
        ]
        ends = [step + 1 for step, own in enumerate(local[:-1]) if not own]
        rounds[step_s] = [b - a for a, b in zip([0, *ends], ends, strict=False)]
    assert set(rounds[0.58][:-1]) == {20}
    assert (rounds[0.75][0], *set(rounds[0.75][1:-1])) == (20, 15)
    assert (rounds[1.51][0], *set(rounds[1.51][1:-1])) == (20, 8)
    assert (rounds[3.33][0], *set(rounds[3.33][1:-1])) == (20, 3)


@pytest.mark.parametrize("max_wait", ["0s", "1s"])
def test_workers_of_equal_speed_train_as_with_diloco(max_wait):
    run = {"step_s": [0.5] * 4, "steps": 33}
    ours = on_the_clock(lambda: AsyncLocalSGD(period=5, max_wait=max_wait), **run, drain_after=[11])
    theirs = on_the_clock(lambda: DiLoCo(period=5), **run, drain_after=[11])
    for rank in range(4):
        for (now_s, w), (then_s, other) in zip(ours[rank], theirs[rank], strict=True):
            assert now_s == then_s
            assert_equal(w, other)


def test_one_arrival_per_change_of_momentum_is_a_nesterov_step():
    theirs, ours = Outer(START, 0.7, 0.9), DelayedNesterov(START, lr=0.7, momentum=0.9, every=1)
    for seed in range(10):
        g = torch.randn(START.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        ours.step(g)
        assert_equal(theirs.step(g), ours.theta)


def test_the_order_of_workers_changes_nothing():
    def run(shuffle):
        trained = on_the_clock(
            lambda: AsyncLocalSGD(period=4, max_wait="50ms"),
            [0.1, 0.1, 0.2, 0.1],
            steps=50,
            rtt_ms=20,
            sites=[2, 2],
            shuffle=shuffle,
        )
        return [[(now_s, w.tolist()) for now_s, w in rows] for rows in trained]

    assert run(None) == run(1) == run(2)


def test_the_server_waits_only_for_an_update_that_is_due():
    """Ranks 1 and 2 end their rounds 0.2 s and 3 s after rank 0: the first is waited for, the second is not."""
    step_s = [1.0, 1.1, 2.5]
    trained = on_the_clock(lambda: AsyncLocalSGD(period=2, max_wait="500ms", dynamic=False), step_s, steps=4)
    assert [trained[rank][1][0] for rank in range(3)] == pytest.approx([2.2, 2.2, 5.0])


def test_an_error_in_the_server_reaches_the_workers(monkeypatch):
    def broken(self, g):
        raise ArithmeticError("no step today")

    monkeypatch.setattr(DelayedNesterov, "step", broken)
    with pytest.raises(WorkerDied, match="no step today"):
        on_the_clock(lambda: AsyncLocalSGD(period=2), [0.1, 0.1], steps=4)


def test_an_error_in_the_background_of_a_thread_fails_every_wait():
    def broken(comm):
        raise ArithmeticError("not today")

    def body(comm):
        if comm.rank == 0:
            comm.background(broken)
        comm.recv(torch.zeros(1), 1 - comm.rank, 7).wait()

    with pytest.raises(CommError, match="the background of rank 0 failed: not today"):
        run_replicas(2, body)


@pytest.mark.parametrize(
    ("algorithm", "setting", "message"),
    [
        (
            AsyncLocalSGD(period=4),
            {"workers": 4, "collective": "gloo"},
            "algorithm 'async-local-sgd' waits for messages of any worker, which 'gloo' cannot; "
            "use collective 'direct'",
        ),
        (
            AsyncLocalSGD(period=4, spread=0.3),
            {"workers": 4},
            "algorithm 'async-local-sgd': spread = 0.3; expected at most 1 / N = 0.25",
        ),
    ],
)
def test_a_setting_that_cannot_work_is_refused_in_one_line(algorithm, setting, message):
    with pytest.raises(AlgorithmError) as caught:
        algorithm.check(Setting(**setting))
    assert str(caught.value) == message
