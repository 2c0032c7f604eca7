"""Exchanges of datagrams on the simulated clock: arrivals, losses, and when an exchange ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_spec import edited, swept
from virtual_world import MS, star

from wanbench.harness.testbeds.virtual.fabric import SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.workloads.comm.base import Terms
from wanbench.workloads.comm.blocks import PAYLOAD_BYTES, WIRE_HEADER_BYTES
from wanbench.workloads.comm.memory import MemoryComm, MemoryGroup

ELEMENTS = PAYLOAD_BYTES // 4
TERMS = Terms(PAYLOAD_BYTES, 1000 * MS, 30 * MS)


def run(network, numel, starts_ms=(0.0,), *, rounds=1, terms=TERMS, seed=0, shuffle=None):
    """Let each rank send a vector of its rank plus 1 to all others, `rounds` times.

    Returns, by rank and round: (end in ms, blocks expected, blocks lost, elements that arrived by peer).
    """
    simulation = Simulation(shuffle=shuffle)
    fabric = SimulatedFabric(simulation, VirtualNetwork(network, seed=seed), "direct", 1)
    group = MemoryGroup(network.workers, fabric)
    found = [[] for _ in range(network.workers)]

    def worker(rank):
        comm = MemoryComm(group, rank)
        fabric.sleep(rank, round(starts_ms[rank if len(starts_ms) > 1 else 0] * MS))
        for _ in range(rounds):
            peers = [peer for peer in range(network.workers) if peer != rank]
            receives = {peer: torch.zeros(numel) for peer in peers}
            work = comm.exchange({peer: torch.full((numel,), rank + 1.0) for peer in peers}, receives, terms)
            work.wait()
            for peer in peers:
                arrived = torch.zeros(numel)
                for part in work.arrived[peer]:
                    arrived[part] = peer + 1.0
                assert torch.equal(receives[peer], arrived)
            sums = {peer: int(receives[peer].count_nonzero()) for peer in peers}
            found[rank].append((simulation.now / MS, *work.blocks, sums))

    for rank in range(network.workers):
        simulation.spawn(rank, lambda rank=rank: worker(rank))
    simulation.run()
    assert not group.datagrams
    assert not group.ended
    return found


def test_without_loss_an_exchange_takes_one_delay_and_its_bytes():
    wire = 3 * (10 * PAYLOAD_BYTES + 10 * WIRE_HEADER_BYTES)  # to each of three peers
    for ((end, expected, lost, sums),) in run(star([1] * 4, 100.0, rate=1e6), 10 * ELEMENTS):
        assert end == pytest.approx(50 + wire / 1e3, rel=1e-6)
        assert (expected, lost) == (30, 0)
        assert set(sums.values()) == {10 * ELEMENTS}


def test_within_a_site_there_is_only_the_local_delay_and_no_loss():
    (first, *_), _ = run(star([2], local_ms=1.0, loss=0.5), 10 * ELEMENTS)
    assert first == (1.0, 10, 0, {1: 10 * ELEMENTS})


def test_a_late_worker_is_waited_for_and_loses_nothing():
    found = run(star([1, 1], 20.0), ELEMENTS, (0.0, 400.0), rounds=3)
    assert [[entry[0] for entry in rank] for rank in found] == [[410.0, 410.0, 430.0], [400.0, 420.0, 420.0]]
    assert all(entry[2] == 0 for rank in found for entry in rank)


def test_a_worker_after_the_deadline_is_not_waited_for():
    found = run(star([1, 1], 20.0), ELEMENTS, (0.0, 2000.0))
    assert found[0] == [(1000.0, 1, 1, {1: 0})]
    assert found[1] == [(2000.0, 1, 0, {0: ELEMENTS})]


def test_a_loss_costs_the_silence_after_the_last_datagram():
    found = run(star([1, 1], 20.0, rate=1e6, loss=0.3), 40 * ELEMENTS)
    last = 10 + 40 * (PAYLOAD_BYTES + WIRE_HEADER_BYTES) / 1e3
    for ((end, expected, lost, _),) in found:
        assert (expected, lost > 0) == (40, True)
        assert last + 30 - 10 * 1.5 < end <= last + 30


def test_slow_datagrams_do_not_end_an_exchange_while_its_own_are_still_leaving():
    """At 1500 bytes per second each datagram takes a second."""
    slow, terms = star([1, 1], 20.0, rate=1500.0), Terms(PAYLOAD_BYTES, 60_000 * MS, 900 * MS)
    # A worker's own datagrams leave as slowly, and its exchange does not end before.
    assert [entry[0][2] for entry in run(slow, 4 * ELEMENTS, terms=terms)] == [0, 0]


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.3])
def test_the_share_of_lost_blocks_is_the_loss_of_the_path(loss):
    found = run(star([1] * 3, 20.0, loss=loss), 200 * ELEMENTS, rounds=10)
    expected, lost = (sum(entry[i] for rank in found for entry in rank) for i in (1, 2))
    assert expected == 12_000
    assert lost / expected == pytest.approx(loss, abs=4 * (loss * (1 - loss) / expected) ** 0.5)


def test_a_block_is_lost_if_any_of_its_datagrams_is():
    terms = Terms(10 * PAYLOAD_BYTES, TERMS.deadline_ns, TERMS.silence_ns)
    found = run(star([1, 1], 20.0, loss=0.1), 1000 * ELEMENTS, rounds=10, terms=terms)
    expected, lost = (sum(entry[i] for rank in found for entry in rank) for i in (1, 2))
    assert lost / expected == pytest.approx(1 - 0.9**10, abs=0.04)


def test_an_exchange_ends_even_if_everything_is_lost():
    found = run(star([1] * 3, 20.0, loss=1.0), 5 * ELEMENTS, rounds=2)
    assert [[entry[:3] for entry in rank] for rank in found] == [[(1000.0, 10, 10), (2000.0, 10, 10)]] * 3


def test_the_result_depends_on_the_seed_and_not_on_the_order_of_workers():
    network = star([1] * 3, 20.0, rate=1e6, loss=0.2, jitter_ms=3.0)
    plain = run(network, 20 * ELEMENTS, rounds=5)
    assert run(network, 20 * ELEMENTS, rounds=5, shuffle=3) == plain
    assert run(network, 20 * ELEMENTS, rounds=5, seed=1) != plain


DIGITS = ("params = 1000\ntensors = 2\n", 'name = "digits-cnn"\n')
VIRTUAL = ("[algorithms]", '[run]\ntestbed = "virtual"\n\n[train]\nlr = 0.1\nuntil = "60 steps"\n\n[algorithms]')


def outcomes(algorithm, loss="0%", **changed):
    changes = [DIGITS, VIRTUAL, ("ssgd = {}", algorithm), ("workers = [2]", f'workers = [4]\nloss = ["{loss}"]')]
    (cell,) = swept(edited(*changes))
    changed_jobs = [replace(job, **changed) for job in cell.repetition(0).jobs]
    return [*simulate(changed_jobs, cell.emulated_network, Tcp()).outcomes.values()]


def test_without_loss_rps_is_averaging_and_gradient_sharing_synchronous_sgd():
    """Equal to the bit if the sums are equal.

    `localsgd` averages changes instead of parameters, which rounds differently by one bit per step. This alone stays
    below 1e-6 for ten steps. But once such a bit changes the sign of a unit's input, its gradient appears or vanishes
    (w then differs by 4e-5 instead of 2e-7), and seven steps later losses differ by 0.1 %. So the test compares the
    steps before that.
    """
    few = {"steps": 5, "window_begin": 0, "window_steps": 5}
    averaging, rps, sharing, ssgd = (
        [(o.final_loss, [e.accuracy for e in o.evaluations], o.replica_spread) for o in outcomes(text, **few)]
        for text in ("localsgd = { period = 1 }", "rps = {}", "gradient-sharing = {}", "ssgd = {}")
    )
    assert rps == [(pytest.approx(loss, rel=1e-5), accuracy, 0.0) for loss, accuracy, _ in averaging]
    assert sharing == ssgd
    assert [spread for *_, spread in sharing] == [0.0] * 4


@pytest.mark.long  # the rule of the replicas is tested without a network each time
def test_with_loss_both_learn_and_the_replicas_of_rps_stay_closer():
    rps, sharing = (outcomes(text, "10%") for text in ("rps = {}", "gradient-sharing = {}"))
    for found in (rps, sharing):
        lost, expected = (sum(getattr(o.total, name) for o in found) for name in ("blocks_lost", "blocks_expected"))
        assert lost / expected == pytest.approx(0.1, abs=0.02)
        assert found[0].evaluations[-1].accuracy > 0.8
    spreads = [max(o.replica_spread for o in found) for found in (rps, sharing)]
    assert 0 < 2 * spreads[0] < spreads[1]
