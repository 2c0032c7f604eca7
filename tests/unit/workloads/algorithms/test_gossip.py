"""SGP, D-PSGD, ECD-PSGD and AD-PSGD against their papers' rules, written out for all workers at once."""

from __future__ import annotations

import random
import time
from itertools import groupby, pairwise

import pytest
import torch
from trained import NUMEL, OPTIMIZERS, PLAIN, START, Replicas, assert_equal, trained

from wanbench.testing import simulate
from wanbench.workloads.algorithms.adpsgd import ADPSGD
from wanbench.workloads.algorithms.base import AlgorithmError, Setting
from wanbench.workloads.algorithms.dpsgd import DPSGD
from wanbench.workloads.algorithms.ecdpsgd import ECDPSGD
from wanbench.workloads.algorithms.gossip import exponential, ring
from wanbench.workloads.algorithms.osgp import OSGP
from wanbench.workloads.algorithms.sgp import SGP
from wanbench.workloads.comm.memory import MemoryWork

WORKERS = 5


def pushed(x, step, peers):
    """Return the values of all nodes after each has pushed equal shares."""
    out = torch.zeros_like(x)
    for rank in range(len(x)):
        outs, _ = exponential(rank, step, len(x), peers)
        for dst in [rank, *outs]:
            out[dst] += x[rank] / (len(outs) + 1)
    return out


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("peers", [1, 2])
def test_sgp_steps_and_pushes(peers, config):
    trace, replicas = trained(lambda: SGP(peers=peers), config, workers=WORKERS), Replicas(config, WORKERS)
    for step in range(30):
        replicas.step(step)
        replicas.w[:] = pushed(replicas.w, step, peers)
        assert_equal(trace.w_at[step], replicas.w)


def test_one_round_of_the_graph_makes_eight_replicas_equal():
    def first_step_only(rank, step, w):
        return torch.full_like(w, rank) if step == 0 else torch.zeros_like(w)

    trace = simulate(SGP, first_step_only, PLAIN, START, steps=3, world_size=8)
    assert_equal(trace.w, START - PLAIN.lr * 3.5)


class Weighed(OSGP):
    """Record the weight after each step and at the end."""

    def start(self, replica):
        super().start(replica)
        self.weights = notes.setdefault(replica.comm.rank, [])

    def stepped(self):
        super().stepped()
        self.weights.append(self.weight)

    def finish(self):
        super().finish()
        self.weights.append(self.weight)


notes: dict = {}


@pytest.mark.parametrize("delay", [1, 3])
def test_overlap_sgp_mixes_a_round_when_it_is_due_and_then_sends_the_next(delay, monkeypatch):
    monkeypatch.setattr(MemoryWork, "done", lambda work: False)  # nothing arrives before it is waited for
    notes.clear()
    trace = trained(lambda: Weighed(delay=delay), workers=WORKERS)
    replicas = Replicas(workers=WORKERS)
    y = torch.cat([START.repeat(WORKERS, 1), torch.ones(WORKERS, 1, dtype=torch.float64)], dim=1)
    arriving = torch.zeros_like(y)
    for step in range(29):
        before = replicas.w.clone()
        replicas.step(step)
        y[:, :NUMEL] += replicas.w - before
        if step % delay == 0:  # the last round was sent `delay` steps ago
            y = y + arriving
            everyone = pushed(y, step // delay, 1)
            y = y / 2
            arriving = everyone - y
        x, omega = y[:, :NUMEL], y[:, NUMEL:]
        replicas.w[:] = x / omega
        assert_equal(trace.w_at[step], replicas.w)
        for rank in range(WORKERS):
            assert notes[rank][step] == pytest.approx(float(omega[rank]))
    assert float(omega.max()) < 0.7  # the rest is in flight
    assert sum(weights[-1] for weights in notes.values()) == pytest.approx(WORKERS)


class Counted(OSGP):
    """Polls at random, so nodes differ in their rounds."""

    def start(self, replica):
        super().start(replica)
        self.random, self.sent = random.Random(f"{seeds[0]} {replica.comm.rank}"), []
        counted[replica.comm.rank] = self

    def _take(self, peer, wait_s):
        if wait_s is None or self.random.random() < 0.4:
            super()._take(peer, wait_s)

    def stepped(self):
        time.sleep(self.random.choice([0.0, 0.0, 0.001]))
        super().stepped()
        self.sent.append(self._rounds)


counted: dict[int, Counted] = {}
seeds = [0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("workers", "peers"), [(2, 1), (3, 2), (5, 1), (8, 1)])
@pytest.mark.parametrize("delay", [1, 2, 7])
def test_overlap_sgp_loses_no_mass_and_ends_whenever_shares_arrive(workers, peers, delay, seed):
    """Neither the weights nor the weighted parameters depend on timing in sum, and no node waits for ever."""
    seeds[0] = seed
    gradients = torch.randn(40, workers, NUMEL, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    trace = simulate(
        lambda: Counted(delay=delay, peers=peers), lambda rank, step, w: gradients[step, rank], PLAIN, START,
        steps=40, world_size=workers, drain_after={17},
    )  # fmt: skip
    assert trace.left_outstanding == 0
    assert trace.most_outstanding <= 4 * peers + workers, "one round, and the ends of `finish`"
    weights = [counted[rank].weight for rank in range(workers)]
    assert sum(weights) == pytest.approx(workers)
    mass = sum(weight * w for weight, w in zip(weights, trace.w, strict=True)) / workers
    torch.testing.assert_close(mass, START - PLAIN.lr * gradients.mean(dim=1).sum(dim=0))
    for rank in range(workers):
        assert all(after - before <= 1 for before, after in pairwise(counted[rank].sent)), "one round a step at most"
        longest = max(len(list(same)) for _, same in groupby(counted[rank].sent))
        assert longest <= delay, "a round ends after D steps"


def test_nodes_differ_in_their_rounds():
    seeds[0], found = 0, set()
    for attempt in range(20):
        seeds[0] = attempt
        trained(lambda: Counted(delay=7), workers=8)
        found |= {len({counted[rank].sent[-1] for rank in range(8)}) > 1}
    assert True in found


def doubly_stochastic(workers):
    matrix = torch.zeros(workers, workers, dtype=torch.float64)
    for rank in range(workers):
        for peer in {rank, *ring(rank, workers)}:
            matrix[rank, peer] = 1 / (len(ring(rank, workers)) + 1)
    return matrix


@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("workers", [2, 3, WORKERS])
def test_dpsgd_averages_the_models_before_the_step_and_adds_the_step(workers, config):
    trace, replicas = trained(DPSGD, config, workers=workers, drain_after={7}), Replicas(config, workers)
    for step in range(30):
        before = replicas.w.clone()
        replicas.step(step)
        replicas.w[:] = doubly_stochastic(workers) @ before + replicas.w - before
        assert_equal(trace.w_at[step], replicas.w)
    assert_equal(trace.w, replicas.w)


def test_ecd_psgd_without_compression_is_dpsgd():
    exact = trained(lambda: ECDPSGD(compression="none"), workers=WORKERS, drain_after={7})
    assert_equal(exact.w_at, trained(DPSGD, workers=WORKERS).w_at)


def test_ecd_psgd_with_a_fine_quantiser_stays_close_and_its_noise_does_not_grow():
    fine = {"kind": "qsgd", "levels": 127}
    noisy = trained(lambda: ECDPSGD(compression=fine), workers=WORKERS, steps=80)
    exact = trained(DPSGD, workers=WORKERS, steps=80)
    off = (noisy.w_at - exact.w_at).abs().amax(dim=(1, 2))
    assert 1e-6 < float(off[20:40].mean()) < 0.2
    assert float(off[60:].mean()) < 3 * float(off[20:40].mean())


# ---------------------------------------------------------------- AD-PSGD


@pytest.mark.parametrize("workers", [2, 4, 6])
def test_adpsgd_never_moves_the_mean_for_any_pairing(workers):
    gradients = torch.randn(40, workers, NUMEL, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    run = {"gradient": lambda rank, step, w: gradients[step, rank], "config": PLAIN, "start": START, "steps": 40}
    trace = simulate(ADPSGD, **run, world_size=workers, drain_after={3, 20})
    assert trace.left_outstanding == 0
    expected = START - PLAIN.lr * gradients.mean(dim=1).sum(dim=0)
    torch.testing.assert_close(trace.w.mean(dim=0), expected)
    alone = START - PLAIN.lr * gradients.sum(dim=0)
    assert float((trace.w - alone).abs().max()) > 1e-3, "no two workers met"


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("algorithm", "setting", "message"),
    [
        (SGP(), {"workers": 1}, "algorithm 'sgp' needs at least 2 workers, got 1"),
        (OSGP(), {"workers": 1}, "algorithm 'osgp' needs at least 2 workers, got 1"),
        (DPSGD(), {"workers": 1}, "algorithm 'dpsgd' needs at least 2 workers, got 1"),
        (ECDPSGD(), {"workers": 1}, "algorithm 'ecdpsgd' needs at least 2 workers, got 1"),
        (ADPSGD(), {"workers": 1}, "algorithm 'adpsgd' needs at least 2 workers, got 1"),
        (SGP(peers=4), {"workers": 4}, "algorithm 'sgp': peers = 4; expected at most 3 with 4 workers"),
        (ADPSGD(), {"workers": 5}, "algorithm 'adpsgd' needs an even number of workers, got 5"),
        (
            ADPSGD(),
            {"workers": 4, "collective": "gloo"},
            "algorithm 'adpsgd' polls for messages, which 'gloo' cannot; use collective 'direct'",
        ),
    ],
)
def test_a_wrong_number_of_workers_is_reported_in_one_line(algorithm, setting, message):
    with pytest.raises(AlgorithmError) as caught:
        algorithm.check(Setting(**setting))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGP(peers=0), "algorithm 'sgp': peers = 0; expected a whole number, 1 or more"),
        (lambda: OSGP(delay=0), "algorithm 'osgp': delay = 0; expected a whole number, 1 or more"),
        (
            lambda: ECDPSGD(compression="topk"),
            "algorithm 'ecdpsgd': compression: 'topk' is biased; "
            "expected an unbiased compressor, 'qsgd' or 'terngrad', or 'none'",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_line(make, message):
    with pytest.raises(AlgorithmError) as caught:
        make()
    assert str(caught.value) == message
