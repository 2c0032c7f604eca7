"""Rounds of messages, compared with a simulation of every single packet, first come, first served."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict

import numpy as np
import pytest
from virtual_world import ends, star

from wanbench.harness.emulators.plan import TCP_HEADER_BYTES
from wanbench.harness.testbeds.virtual.tcp import SEGMENT_BYTES
from wanbench.workloads.comm.chunks import chunk_bytes

WORKERS, RATE, NBYTES = 4, 1e7, 1_200_000
ONE_WAY_S = {(a, b): 0.01 * (1 + a + 2 * b) for a in range(WORKERS) for b in range(WORKERS) if a != b}


def by_packets(joins, nbytes=NBYTES):
    """The end in s of each `direct` all-reduce for each rank."""
    piece = nbytes // WORKERS
    chunks = [
        -(-min(chunk_bytes(piece), piece - begin) // SEGMENT_BYTES) for begin in range(0, piece, chunk_bytes(piece))
    ]
    cost = (SEGMENT_BYTES + TCP_HEADER_BYTES) / RATE
    waiting, busy = [[] for _ in range(WORKERS)], [False] * WORKERS
    down = [0.0] * WORKERS
    missing = {}  # packets, by operation, rank, phase and chunk
    joined, ended = {}, defaultdict(float)
    events, serial = [], itertools.count()

    def at(time, what, *rest):
        heapq.heappush(events, (time, next(serial), what, rest))

    def push(now, op, rank, phase, chunk):
        for _ in range(chunks[chunk]):  # alternating between all peers, packet by packet
            for hop in range(1, WORKERS):
                peer = (rank + hop) % WORKERS
                heapq.heappush(waiting[rank], (op, next(serial), peer, phase, chunk))
        if not busy[rank]:
            leave(now, rank)

    def leave(now, rank):
        """Send the next packet: the oldest operation first."""
        busy[rank] = bool(waiting[rank])
        if busy[rank]:
            op, _, peer, phase, chunk = heapq.heappop(waiting[rank])
            at(now + cost, "left", 0, rank, 0, 0)
            at(now + cost + ONE_WAY_S[rank, peer], "down", op, peer, phase, chunk)

    def average_if_complete(now, op, rank, chunk):
        if missing.get((op, rank, 0, chunk)) == 0 and (op, rank) in joined:
            push(now, op, rank, 1, chunk)
            ended[op, rank] = now

    for op, times in enumerate(joins):
        for rank in range(WORKERS):
            at(times[rank], "join", op, rank, 0, 0)
    while events:
        now, _, what, (op, rank, phase, chunk) = heapq.heappop(events)
        if what == "join":
            joined[op, rank] = now
            for number in range(len(chunks)):
                push(now, op, rank, 0, number)
            for number in range(len(chunks)):
                average_if_complete(now, op, rank, number)
        elif what == "left":
            leave(now, rank)
        elif what == "down":
            down[rank] = max(down[rank], now) + cost
            at(down[rank], "arrived", op, rank, phase, chunk)
        else:
            key = op, rank, phase, chunk
            missing[key] = missing.get(key, chunks[chunk] * (WORKERS - 1)) - 1
            if missing[key] == 0:
                ended[op, rank] = now
                if phase == 0:
                    average_if_complete(now, op, rank, chunk)
    return [[ended[op, rank] for rank in range(WORKERS)] for op in range(len(joins))]


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
