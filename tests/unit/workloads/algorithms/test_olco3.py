"""OLCO3, a reconstruction: its limiting cases are known algorithms, and both directions keep their sums."""

from __future__ import annotations

import pytest
import torch
from trained import OPTIMIZERS, START, WORKERS, Replicas, assert_equal, trained

from wanbench.workloads.algorithms.base import AlgorithmError
from wanbench.workloads.algorithms.cocod import CoCoD
from wanbench.workloads.algorithms.dts import DTS
from wanbench.workloads.algorithms.localsgd import LocalSGD
from wanbench.workloads.algorithms.olco3 import OLCO3
from wanbench.workloads.comm.base import Phantom
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.comm.meter import MeteredComm
from wanbench.workloads.compression.averaging import Averager
from wanbench.workloads.compression.signsgd import SignSGD
from wanbench.workloads.compression.topk import TopK
from wanbench.workloads.compression.two_way import TwoWay

TOPK = {"kind": "topk", "ratio": 0.3}


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_one_round_late_without_compression_it_is_cocod_sgd(config):
    late = trained(lambda: OLCO3(staleness=1, period=4), config, 32)
    cocod = trained(lambda: CoCoD(period=4), config, 32)
    assert_equal(late.w_at, cocod.w_at)
    assert_equal(late.w, cocod.w)


@pytest.mark.parametrize("staleness", [0, 1, 5])
def test_with_rounds_of_one_step_it_is_dts_with_that_delay(staleness):
    olco3 = trained(lambda: OLCO3(staleness=staleness, period=1))
    assert_equal(olco3.w_at, trained(lambda: DTS(delay=staleness, period=1)).w_at)


def test_with_rounds_of_one_step_compressed_it_is_dts_compressed_in_model_space():
    olco3 = trained(lambda: OLCO3(staleness=3, period=1, compression=TOPK))
    dts = trained(lambda: DTS(delay=3, period=1, form="model", compression=TOPK))
    assert_equal(olco3.w_at, dts.w_at)


def test_without_delay_it_is_local_sgd_with_error_feedback():
    in_time = trained(lambda: OLCO3(staleness=0, period=4, compression=TOPK))
    topk, replicas = TopK(ratio=0.3), Replicas()
    anchor, e = START.clone(), torch.zeros_like(replicas.w)
    for step in range(28):
        replicas.step(step)
        if (step + 1) % 4 == 0:
            v = (anchor - e) - replicas.w + e
            c = torch.stack([topk.decode(topk.encode(row), row) for row in v])
            e, anchor = v - c, anchor - c.mean(dim=0)
            replicas.w[:] = anchor - e
        assert_equal(in_time.w_at[step], replicas.w)
    plain = trained(lambda: OLCO3(staleness=0, period=4))
    assert_equal(plain.w_at, trained(lambda: LocalSGD(period=4)).w_at)


@pytest.mark.parametrize("compression", [TOPK, "signsgd", {"kind": "powersgd", "rank": 1, "least": 0}, "randomk"])
def test_replicas_differ_by_contributions_in_flight_and_by_their_residuals(compression):
    """x + residual + own contributions in flight is the anchor, equal on all: so only e is left after the drain."""
    residuals = {}

    class Watched(OLCO3):
        def finish(self):
            super().finish()
            residuals[self.replica.comm.rank] = self._averager.residual.clone()

    trace = trained(lambda: Watched(staleness=2, period=3, compression=compression), drain_after={16})
    anchors = torch.stack([trace.w[rank] + residuals[rank] for rank in range(WORKERS)])
    assert_equal(anchors, anchors[0])
    assert float((trace.w - trace.w[0]).abs().max()) > 1e-3


# ---------------------------------------------------------------- two directions


def vectors(rank, count, numel):
    return torch.randn(count, numel, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def two_way(inner, count=40, numel=10, workers=3):
    def body(comm):
        mine, means, sent = vectors(comm.rank, count, numel), [], []
        averager = Averager(TwoWay(inner()), comm, mine[0])
        for v in mine:
            exchange = averager.begin(v)
            means.append(exchange.wait().clone())
            sent.append(exchange.own.clone())
        return torch.stack(means), torch.stack(sent), averager.residual, averager._compressor._residual

    return run_replicas(workers, body)


@pytest.mark.parametrize("inner", [lambda: TopK(ratio=0.3), SignSGD], ids=["topk", "signsgd"])
def test_with_both_directions_compressed_only_the_residuals_are_missing(inner):
    ranks = two_way(inner)
    given = torch.stack([vectors(rank, 40, 10) for rank in range(3)])
    owners = torch.cat([owner for *_, owner in ranks])
    sent = torch.stack([sent for _, sent, *_ in ranks])
    for rank, (means, _, residual, _) in enumerate(ranks):
        assert torch.equal(means, ranks[0][0])
        torch.testing.assert_close(sent[rank].sum(dim=0) + residual, given[rank].sum(dim=0))
        torch.testing.assert_close(means.sum(dim=0) + owners, sent.mean(dim=0).sum(dim=0))
    assert float(owners.abs().max()) > 0.1


def test_with_everything_sent_in_both_directions_the_result_is_the_mean():
    ranks = two_way(lambda: TopK(ratio=1.0))
    mean = torch.stack([vectors(rank, 40, 10) for rank in range(3)]).mean(dim=0)
    for means, *_ in ranks:
        torch.testing.assert_close(means, mean)


@pytest.mark.parametrize("numel", [12, 13])
def test_both_directions_are_counted_and_a_phantom_sends_as_much(numel):
    def body(comm):
        counted = []
        for v in (torch.ones(numel), Phantom(numel)):
            metered = MeteredComm(comm, MonotonicClock())
            Averager(TwoWay(SignSGD()), metered, v).begin(v).wait()
            counted.append((metered.payload_bytes, metered.messages_sent))
        return counted

    ranks = run_replicas(3, body)
    for real, phantom in ranks:
        assert real == phantom
    assert ranks[-1][0] == (4 * 5, 4)  # pieces of at most 8 elements: a scale and a byte, to two peers, there and back


def test_a_lone_worker_compresses_and_sends_nothing():
    ((means, sent, *_),) = two_way(lambda: TopK(ratio=1.0), workers=1)
    torch.testing.assert_close(means, sent)


def test_training_with_both_directions_compressed_converges():
    trace = trained(lambda: OLCO3(staleness=1, period=2, compression=TOPK, two_way=True), steps=60)
    best = trained(lambda: OLCO3(staleness=1, period=2), steps=60)
    assert float((trace.w.mean(dim=0) - best.w[0]).norm()) < 0.5 * float((START - best.w[0]).norm())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"two_way": True}, "algorithm 'olco3': two_way = True; expected a compression as well"),
        (
            {"two_way": True, "compression": "powersgd"},
            "algorithm 'olco3': two_way = True: compressor 'powersgd' works one way only; "
            "expected one whose messages can be decoded one by one, such as 'topk'",
        ),
        (
            {"two_way": True, "compression": "dgc"},
            "algorithm 'olco3': two_way = True: compressor 'dgc' works one way only; "
            "expected one whose messages can be decoded one by one, such as 'topk'",
        ),
        ({"staleness": -1}, "algorithm 'olco3': staleness = -1; expected a whole number, 0 or more"),
    ],
)
def test_a_mistake_is_reported_in_one_line(params, message):
    with pytest.raises(AlgorithmError) as caught:
        OLCO3(**{"staleness": 1, "period": 2, **params})
    assert str(caught.value) == message


def test_a_label_shows_that_both_directions_are_compressed():
    assert OLCO3(staleness=1, period=2, compression=TOPK, two_way=True).label == "olco3-s1-p2-topk-r0.3-two_way"
