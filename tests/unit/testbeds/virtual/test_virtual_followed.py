"""Connections that are followed packet by packet: those in equal state share a sender, and nothing else changes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wanbench.harness.testbeds.virtual.sender import Sender
from wanbench.harness.testbeds.virtual.tcp import Connections, Load, Tcp

MS = 1_000_000
COUNT = 6
SEED = 2


def rounds(seed, *, lossy, number=12):
    """Rounds of messages (connections, ready, bytes, losses), most of them alike, some absent, early or lossy."""
    drawn, now, found = random.Random(seed), 0, []
    for _ in range(number):
        now += drawn.choice([5, 40, 90, 600]) * MS
        index = [i for i in range(COUNT) if drawn.random() < 0.9]
        usual = drawn.choice([20_000, 200_000, 600_000])
        sizes = [float(usual if drawn.random() < 0.9 else 100_000) for _ in index]
        early = [drawn.choice([0, 0, 0, 0, 0, 70]) * MS for _ in index]
        losses = [int(lossy and drawn.random() < 0.1) for _ in index]
        found.append((np.array(index), now - np.array(early), np.array(sizes), np.array(losses)))
    return found


def left_ns(connections, index, ready, sizes, losses, loss, ns_per_byte=80):
    full = np.ones(len(index))
    drain = np.rint(sizes * ns_per_byte).astype(np.int64)
    load = Load(sizes, np.full(len(index), 80 * MS), drain, full * 150_000, full * loss)
    return connections.stall(index, ready, load, np.stack([losses, np.zeros_like(losses)]))[1]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize("loss", [0.0, 0.02])
@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("paced", [True, False])
@pytest.mark.parametrize("congestion", ["reno", "cubic"])
def test_messages_of_a_round_take_as_long_as_if_each_connection_were_followed_by_itself(
    congestion, paced, lossy, loss, seed
):
    tcp = Tcp(congestion=congestion)
    together, apart = (Connections(tcp, COUNT, paced=paced, seed=seed) for _ in range(2))
    for index, ready, sizes, losses in rounds(seed, lossy=lossy):
        left = left_ns(together, index, ready, sizes, losses, loss)
        alone = [
            left_ns(apart, index[k : k + 1], ready[k : k + 1], sizes[k : k + 1], losses[k : k + 1], loss)[0]
            for k in range(len(index))
        ]
        assert left.tolist() == alone


def test_the_work_does_not_grow_with_connections_in_equal_state(monkeypatch):
    sent, send = [], Sender.send

    def count(sender, *message):
        sent.append(message)
        return send(sender, *message)

    monkeypatch.setattr(Sender, "send", count)
    everyone = np.arange(COUNT)
    connections, nothing = Connections(Tcp(), COUNT), np.zeros(COUNT, np.int64)
    for number in range(5):
        ready, sizes = np.full(COUNT, 100 * MS * number), np.full(COUNT, 2e6)
        assert len(set(left_ns(connections, everyone, ready, sizes, nothing, 0.0, 1).tolist())) == 1
    assert len(sent) == 5
    late = np.where(everyone == 2, 30 * MS, 0) + 500 * MS
    left_ns(connections, everyone, late, np.full(COUNT, 2e6), nothing, 0.0, 1)
    assert len(sent) == 7
