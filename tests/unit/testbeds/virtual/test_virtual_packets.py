"""Rounds of messages, compared with a simulation of every single packet, first come, first served."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict

import numpy as np
import pytest
from virtual_world import ends, star

from wanbench.harness.testbeds.virtual.network import HEADER_BYTES
from wanbench.harness.testbeds.virtual.tcp import SEGMENT_BYTES

WORKERS, RATE, NBYTES = 4, 1e7, 1_200_000
ONE_WAY_S = {(a, b): 0.01 * (1 + a + 2 * b) for a in range(WORKERS) for b in range(WORKERS) if a != b}


def by_packets(joins, nbytes=NBYTES):
    """The end in s of each `direct` all-reduce for each rank."""
    packets = -(-nbytes // WORKERS // SEGMENT_BYTES)
    cost = (SEGMENT_BYTES + HEADER_BYTES) / RATE
    up, down = [0.0] * WORKERS, [0.0] * WORKERS
    missing = defaultdict(lambda: packets * (WORKERS - 1))
    joined, finished = {}, {}
    events, serial = [], itertools.count()

    def at(time, what, *rest):
        heapq.heappush(events, (time, next(serial), what, rest))

    def push(now, op, rank, phase):
        for _ in range(packets):  # alternating between all peers, packet by packet
            for hop in range(1, WORKERS):
                peer = (rank + hop) % WORKERS
                up[rank] = max(up[rank], now) + cost
                at(up[rank] + ONE_WAY_S[rank, peer], "down", op, peer, phase)

    def reduce_if_complete(now, op, rank):
        if missing[op, rank, 0] == 0 and (op, rank) in joined:
            push(now, op, rank, 1)
            finished[op, rank] = now

    for op, times in enumerate(joins):
        for rank in range(WORKERS):
            at(times[rank], "join", op, rank, 0)
    while events:
        now, _, what, (op, rank, phase) = heapq.heappop(events)
        if what == "join":
            joined[op, rank] = now
            push(now, op, rank, 0)
            reduce_if_complete(now, op, rank)
        elif what == "down":
            down[rank] = max(down[rank], now) + cost
            at(down[rank], "arrived", op, rank, phase)
        else:
            missing[op, rank, phase] -= 1
            if missing[op, rank, phase] == 0:
                if phase == 0:
                    reduce_if_complete(now, op, rank)
                else:
                    finished[op, rank, "all"] = now
    return [[max(finished[op, rank], finished[op, rank, "all"]) for rank in range(WORKERS)] for op in range(len(joins))]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("interval_s", "skew_s", "tolerance"),
    [
        (5.0, 0.2, 0.01),  # one at a time
        (0.6, 0.2, 0.01),
        (0.3, 0.02, 0.01),  # they overlap, and keep the links busy for two thirds of the time
        (0.3, 0.2, 0.15),  # ranks are as far apart as operations
        (0.2, 0.0, 0.01),  # the links are never idle
        (0.2, 0.02, 0.25),
        (0.2, 0.2, 0.20),
    ],
)
def test_operations_in_flight_take_as_long_as_their_packets(interval_s, skew_s, tolerance, seed):
    """A single operation takes about 0.31 s, and occupies the links for 0.19 s of them."""
    random = np.random.default_rng(seed)
    joins = [[i * interval_s + late for late in random.uniform(0, skew_s, 4).tolist()] for i in range(8)]
    network = star([1] * WORKERS, rate=RATE, delays_ms={pair: s * 1e3 for pair, s in ONE_WAY_S.items()})
    for join, packets, rounds in zip(joins, by_packets(joins), ends(network, "direct", NBYTES, joins), strict=True):
        took = [max(times) - min(join) for times in (packets, rounds)]
        assert took[1] == pytest.approx(took[0], rel=tolerance)
