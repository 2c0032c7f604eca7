"""Losses in bursts on the simulated clock follow the Gilbert-Elliott chain, across messages."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from virtual_world import MS, NO_RAMP, delivered, star

from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.noise import MessageNoise, PathStreams
from wanbench.harness.testbeds.virtual.tcp import Connections

LOSS, BURST = 0.05, 8.0
BEGINS = LOSS / (1 - LOSS) / BURST
MEMORY = 1 - BEGINS - 1 / BURST


def bursty(network, loss=LOSS, burst=BURST):
    return replace(
        network,
        links={pair: replace(link, loss=loss, loss_burst=burst) for pair, link in network.links.items()},
    )


NETWORK = bursty(star([1, 1, 1], 40))


def lost(count, *, each, network=NETWORK, seed=0, path=1):
    """Whether each of the next packets of a path is lost, drawn in messages of `each` packets."""
    paths = PathStreams(network, seed)
    return np.concatenate([paths.lost(path, each) for _ in range(count // each)])


def noise_of(paths, packets, messages=1):
    links, delay = np.full(messages, 1), np.full(messages, 20 * MS)
    return MessageNoise(paths, links, delay, np.full(messages, packets), np.zeros(messages, np.int64))


def test_the_share_and_the_bursts_of_lost_packets_are_those_of_the_chain():
    found = lost(400_000, each=7)
    deviation = math.sqrt(LOSS * (1 - LOSS) * (1 + MEMORY) / (1 - MEMORY) / len(found))
    assert found.mean() == pytest.approx(LOSS, abs=4 * deviation)
    lengths = [len(list(run)) for is_lost, run in itertools.groupby(found.tolist()) if is_lost]
    assert np.mean(lengths) == pytest.approx(BURST, abs=4 * math.sqrt(BURST * (BURST - 1) / len(lengths)))


def test_the_number_of_losses_of_a_message_varies_as_the_chain_says():
    counts = lost(2_000_000, each=50).reshape(-1, 50).sum(axis=1)
    lags = sum((50 - lag) * MEMORY**lag for lag in range(1, 50))
    assert counts.var() == pytest.approx(LOSS * (1 - LOSS) * (50 + 2 * lags), rel=0.1)


def test_a_burst_continues_in_the_next_message():
    assert (lost(10_000, each=1) == lost(10_000, each=100)).all()


def test_each_path_has_its_own_losses_which_its_seed_decides():
    assert (lost(1000, each=10, seed=3) == lost(1000, each=10, seed=3)).all()
    assert (lost(1000, each=10, seed=3) != lost(1000, each=10, seed=4)).any()
    assert (lost(1000, each=10, path=1) != lost(1000, each=10, path=2)).any()
    two = bursty(star([1, 1], 40))
    assert (lost(1000, each=10, network=two) == lost(1000, each=10)).all()


def test_a_burst_costs_a_message_one_recovery():
    """Ten packets: none is lost with (1 - loss)(1 - p)^9, the last one with the loss, which costs a probe as well."""
    virtual = VirtualNetwork(NETWORK, tcp=NO_RAMP)
    route, sockets = Route(virtual, np.array([0]), np.array([1]), np.array([14_480])), Connections(NO_RAMP, 1)
    sent = [i * 1000 * MS for i in range(20_000)]
    late = np.array([(delivered(route, np.array([at]), sockets)[0] - at) / MS for at in sent]).round()
    assert set(late.tolist()) == {20.0, 60.0, 100.0}
    assert (late > 20).mean() == pytest.approx(1 - (1 - LOSS) * (1 - BEGINS) ** 9, abs=0.01)
    assert (late == 100).mean() == pytest.approx(LOSS, abs=0.01)


def test_packets_lost_in_a_row_are_one_loss_for_tcp():
    """A message of n packets meets one burst if its first packet is lost, and one for each that begins later."""
    noise = noise_of(PathStreams(NETWORK, 0), 100, messages=20_000)
    (losses, tails), jitter = noise.draw()
    assert losses.mean() == pytest.approx(LOSS + 99 * (1 - LOSS) * BEGINS, rel=0.05)
    assert tails.mean() == pytest.approx(LOSS, abs=0.01)
    assert jitter is None


def test_bursts_on_one_path_do_not_change_the_draws_of_the_others():
    plain = star([1, 1, 1], 40, loss=0.1, jitter_ms=2.0)
    link = replace(plain.links[0, 1], loss_burst=BURST)
    mixed = replace(plain, links={**plain.links, (0, 1): link})
    links, delay = np.array([1, 2]), np.full(2, 20 * MS)

    def drawn(network):
        noise = MessageNoise(PathStreams(network, 0), links, delay, np.array([10, 10]), np.zeros(2, np.int64))
        rounds = [noise.draw() for _ in range(200)]
        return [([0, 0] if losses is None else losses[:, 1].tolist(), jitter[1]) for losses, jitter in rounds]

    assert drawn(mixed) == drawn(plain)


def test_a_path_whose_bursts_change_begins_anew_with_other_losses():
    paths = PathStreams(NETWORK, 0)
    first = paths.lost(1, 1000)
    paths.update(bursty(NETWORK, burst=0.0))
    assert not paths.bursts
    paths.update(NETWORK)
    assert (paths.lost(1, 1000) != first).any()
    carried = paths.bursts[1]
    paths.update(NETWORK)
    assert paths.bursts[1] is carried
