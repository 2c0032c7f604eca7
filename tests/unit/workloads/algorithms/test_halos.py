"""HALoS against the rules of its paper and of its authors' code, written out for all regions at once."""

from __future__ import annotations

import pytest
import torch
from clock_replicas import on_the_clock, pull
from trained import PLAIN, START, assert_equal

from wanbench.workloads.algorithms.async_local_sgd import AsyncLocalSGD, DelayedNesterov
from wanbench.workloads.algorithms.base import AlgorithmError, Setting
from wanbench.workloads.algorithms.halos import HALoS


def local(rank, x, steps):
    w = x.clone()
    for _ in range(steps):
        w -= PLAIN.lr * pull(rank, w)
    return w


@pytest.mark.parametrize("every", [1, 3])
def test_one_region_without_delay_is_its_local_scheme(every):
    run = {"step_s": (0.58, 0.75, 1.51, 3.33), "steps": 60}
    ours = on_the_clock(lambda: HALoS(period=20, local_lr=0.2, local_every=every), **run)
    theirs = on_the_clock(lambda: AsyncLocalSGD(period=20, outer_lr=0.2 * every, every=every), **run)
    for rank in range(4):
        for (now_s, w), (then_s, other) in zip(ours[rank], theirs[rank], strict=True):
            assert now_s == then_s
            assert_equal(w, other)


class Region:
    """One worker and its server, which takes a Nesterov step for each update."""

    def __init__(self, rank):
        self.rank, self.x = rank, DelayedNesterov(START, lr=0.2, momentum=0.9, every=1)
        self.merged, self.begun = START.clone(), START.clone()

    def update(self):
        self.x.step(self.begun - local(self.rank, self.begun, 2))
        self.begun = self.x.theta.clone()

    def drift(self):
        return self.merged - self.x.theta

    def merge(self, x_g):
        self.x.theta.mul_(0.75).add_(x_g, alpha=0.25)
        self.merged = self.x.theta.clone()


def test_regions_send_their_drift_and_merge_the_global_model_without_waiting_for_it():
    """Two regions of a worker each, an update per second, and a drift after every second update; RTT 1.2 s.

    Region 0 merges at 2, 4 and 6 s. The drift of region 1 is sent at 2 s and merged at 2.6 s; the answer is there at
    3.2 s, while its worker trains on. The next is sent at 5 s, merged at 5.6 s, and answered at 6.2 s.
    """
    parameters = {"period": 2, "merges": 2, "local_every": 1, "global_every": 1, "global_lr": 0.15}
    found = on_the_clock(lambda: HALoS(**parameters), [0.5, 0.5], steps=12, sites=[1, 1], rtt_ms=1200)
    near, far, x_g = Region(0), Region(1), DelayedNesterov(START, lr=0.15, momentum=0.5, every=1)
    answer = None
    for second in range(1, 7):
        near.update()
        if second % 2 == 0:
            x_g.step(near.drift())
            near.merge(x_g.theta)
            near.begun = near.x.theta.clone()
        far.update()
        if second in (2, 5):
            x_g.step(far.drift())
            answer, sent = x_g.theta.clone(), far.x.theta.clone()
        if second == 3:
            far.merge(answer)
        for region in (near, far):
            assert found[region.rank][2 * second - 1][0] == second
            assert_equal(found[region.rank][2 * second - 1][1], region.begun)
    # At 6 s both have ended. Region 1 sends what it has learned since 5 s once the answer is there.
    x_g.step(sent - far.x.theta)
    assert found[0][-1][0] == pytest.approx(6.8)
    assert_equal(found[0][-1][1], x_g.theta)
    assert_equal(found[1][-1][1], x_g.theta)


def test_the_order_of_workers_changes_nothing():
    def run(shuffle):
        trained = on_the_clock(
            lambda: HALoS(period=3, merges=4, local_every=2),
            [0.1, 0.1, 0.2, 0.1, 0.1, 0.3],
            steps=[40, 40, 30, 40, 20, 40],
            rtt_ms=70,
            sites=[2, 3, 1],
            shuffle=shuffle,
            drain_after=[9],
        )
        return [[(now_s, w.tolist()) for now_s, w in rows] for rows in trained]

    assert run(None) == run(1) == run(2)


def test_all_workers_of_all_regions_end_with_the_global_model():
    found = on_the_clock(
        lambda: HALoS(period=4, merges=3), [0.1, 0.2, 0.15, 0.1], steps=50, sites=[2, 2], rtt_ms=300, drain_after=[20]
    )
    assert all(torch.equal(rows[-1][1], found[0][-1][1]) for rows in found)
    assert float((found[0][-1][1] - START).abs().max()) > 0.1


def test_gloo_is_refused_in_one_line():
    with pytest.raises(AlgorithmError) as caught:
        HALoS(period=8).check(Setting(workers=4, collective="gloo"))
    assert str(caught.value) == (
        "algorithm 'halos' waits for messages of any worker, which 'gloo' cannot; use collective 'direct'"
    )
