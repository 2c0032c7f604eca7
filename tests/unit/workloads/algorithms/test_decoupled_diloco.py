"""Decoupled DiLoCo, a reconstruction: its special case is DiLoCo, and its quorums are those of the abstract."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
from clock_replicas import on_the_clock, pull
from joined_ranks import groups, on_every_rank
from trained import OPTIMIZERS, PLAIN, START, assert_equal, trained

from wanbench.workloads.algorithms.base import AlgorithmError, Replica, Setting
from wanbench.workloads.algorithms.decoupled import DecoupledDiLoCo
from wanbench.workloads.algorithms.diloco import DiLoCo, Outer
from wanbench.workloads.algorithms.olco3 import OLCO3
from wanbench.workloads.algorithms.streaming import StreamingDiLoCo
from wanbench.workloads.compute.optim import make as make_optimizer


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_with_all_learners_one_fragment_and_no_overlap_it_is_diloco(config):
    ours = trained(lambda: DecoupledDiLoCo(period=5), config, steps=33, drain_after={12})
    theirs = trained(lambda: DiLoCo(period=5), config, steps=33, drain_after={12})
    assert_equal(ours.w_at, theirs.w_at)
    assert_equal(ours.w, theirs.w)


def test_with_all_learners_and_fragments_it_is_streaming_diloco():
    theirs = trained(lambda: StreamingDiLoCo(period=6, fragments=3, delay=2), steps=30)
    assert_equal(trained(lambda: DecoupledDiLoCo(period=6, fragments=3, delay=2), steps=30).w_at, theirs.w_at)


def test_learners_of_different_speed_train_as_with_diloco_if_all_are_in_the_quorum():
    run = {"step_s": [0.1, 0.2, 0.4], "steps": 23, "rtt_ms": 30, "sites": [1, 1, 1]}
    ours, theirs = on_the_clock(lambda: DecoupledDiLoCo(period=5), **run), on_the_clock(lambda: DiLoCo(period=5), **run)
    for rank in range(3):
        assert_equal(torch.stack([w for _, w in ours[rank]]), torch.stack([w for _, w in theirs[rank]]))


def test_a_quorum_does_not_wait_for_a_slow_learner_and_counts_it_later():
    """Two learners meet every second; the third joins the quorum after it, once per 3 s."""
    step_s, outer = [0.5, 0.5, 1.5], Outer(START, 0.7, 0.9)

    def local(rank, w, steps):
        w = w.clone()
        for _ in range(steps):
            w -= PLAIN.lr * pull(rank, w)
        return w

    found = on_the_clock(lambda: DecoupledDiLoCo(period=2, quorum=2), step_s, steps=[6, 6, 2])
    first = outer.step(outer.theta - (local(0, START, 2) + local(1, START, 2)) / 2).clone()
    second = outer.step(outer.theta - (local(0, first, 2) + local(1, first, 2)) / 2).clone()
    assert [found[0][step][0] for step in (1, 3)] == [1.0, 2.0]
    assert_equal(found[0][1][1], first)
    assert_equal(found[1][3][1], second)
    # At 3 s all three send: the first two are a quorum, and the slow one, which ends with this step, is merged alone.
    third = outer.step(outer.theta - (local(0, second, 2) + local(1, second, 2)) / 2).clone()
    assert_equal(found[0][5][1], third)
    fourth = outer.step(outer.theta - local(2, START, 2)).clone()
    assert all(torch.allclose(rows[-1][1], fourth) for rows in found)


def test_a_learner_counts_in_proportion_to_the_steps_since_it_last_sent():
    """At the end, the steps that nobody has sent are merged together: 3 of rank 0, 1 of rank 1."""
    found = on_the_clock(lambda: DecoupledDiLoCo(period=5), [0.1, 0.1], steps=[3, 1])
    outer, ends = Outer(START, 0.7, 0.9), []
    for rank, steps in enumerate((3, 1)):
        w = START.clone()
        for _ in range(steps):
            w -= PLAIN.lr * pull(rank, w)
        ends.append(w)
    assert_equal(found[0][-1][1], outer.step(START - (3 * ends[0] + ends[1]) / 4))


@pytest.mark.parametrize("seed", range(40))
def test_no_combination_of_speeds_holds_learners_up_for_ever(seed):
    draw = random.Random(seed)
    learners, fragments = draw.randint(2, 6), draw.randint(1, 5)
    period = fragments * draw.randint(1, 2)
    delay, quorum = draw.randrange(period), draw.randint(1, learners)
    step_s = [draw.uniform(0.1, 3.0) for _ in range(learners)]
    steps = [draw.randint(1, 60) for _ in range(learners)]

    def run(shuffle):
        return on_the_clock(
            lambda: DecoupledDiLoCo(period=period, fragments=fragments, delay=delay, quorum=quorum),
            step_s,
            steps=steps,
            shuffle=shuffle,
        )

    plain, shuffled = run(None), run(seed)
    for one, other in zip(plain, shuffled, strict=True):
        assert [now_s for now_s, _ in one] == [now_s for now_s, _ in other]
        assert torch.equal(one[-1][1], other[-1][1])
        assert torch.equal(one[-1][1], plain[0][-1][1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DecoupledDiLoCo(period=6, fragments=4),
         "algorithm 'decoupled-diloco': period = 6; expected a multiple of fragments = 4"),
        (lambda: DecoupledDiLoCo(period=6, delay=6),
         "algorithm 'decoupled-diloco': delay = 6; expected less than period = 6"),
        (lambda: DecoupledDiLoCo(period=6, quorum=5).check(Setting(workers=4)),
         "algorithm 'decoupled-diloco': quorum = 5; expected at most 4, the number of workers"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_line(make, message):
    with pytest.raises(AlgorithmError) as caught:
        make()
    assert str(caught.value) == message


# ---------------------------------------------------------------- empty vectors: fragments or pieces of a small model

MANY = {"period": 12, "fragments": 12}  # of 6 parameters


def test_with_more_fragments_than_parameters_it_is_streaming_diloco():
    theirs = trained(lambda: StreamingDiLoCo(**MANY, delay=3), steps=36)
    assert_equal(trained(lambda: DecoupledDiLoCo(**MANY, delay=3), steps=36).w_at, theirs.w_at)


def test_empty_fragments_travel_on_the_simulated_clock():
    found = on_the_clock(lambda: DecoupledDiLoCo(**MANY, delay=3, quorum=1), [0.5, 0.7], steps=30, rtt_ms=100)
    assert_equal(found[0][-1][1], found[1][-1][1])


@pytest.mark.parametrize("collective", ["direct", "hierarchical"])
def test_empty_fragments_travel_on_sockets(collective, tmp_path):
    def train(comm):
        w = START.clone()
        replica = Replica(w, torch.zeros_like(w), make_optimizer(PLAIN), comm)
        algorithm = DecoupledDiLoCo(**MANY)
        algorithm.start(replica)
        for step in range(24):
            replica.step = step
            replica.optimizer.advance(step)
            replica.optimizer.step(w, replica.m, algorithm.gradient(pull(comm.rank, w)))
            algorithm.stepped()
        algorithm.finish()
        return w

    with groups(collective, tmp_path) as make:
        first, second = on_every_rank(make(2, site_of=(0, 1)), train)
    expected = on_the_clock(lambda: DecoupledDiLoCo(**MANY), [0.5, 0.5], steps=24)[0][-1][1]
    assert_equal(first, expected)
    assert_equal(second, expected)


TWO_WAY = ["topk", "chunk-topk", "signsgd", "qsgd", "terngrad"]


@pytest.mark.parametrize("compression", [*TWO_WAY, "dgc", "chunkwise", "randomk", "fp16"])
def test_empty_fragments_and_pieces_are_not_compressed(compression):
    ours = trained(lambda: StreamingDiLoCo(**MANY, compression=compression), steps=13)
    assert torch.isfinite(ours.w).all()
    if compression in TWO_WAY:
        make = partial(OLCO3, staleness=1, period=1, two_way=True, compression=compression)
        assert torch.isfinite(trained(make, steps=4, workers=8).w).all()
