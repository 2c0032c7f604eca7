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
from wanbench.workloads.comm.blocks import chunk_bytes

WORKERS, RATE, NBYTES = 4, 1e7, 1_200_000
ONE_WAY_S = {(a, b): 0.01 * (1 + a + 2 * b) for a in range(WORKERS) for b in range(WORKERS) if a != b}


class Packets:
    """`direct` all-reduces, packet by packet: links first come, first served, and the oldest operation first."""

    def __init__(self, nbytes: int) -> None:
        piece = nbytes // WORKERS
        size = chunk_bytes(piece)
        self.chunks = [-(-min(size, piece - begin) // SEGMENT_BYTES) for begin in range(0, piece, size)]  # in packets
        self.cost_s = (SEGMENT_BYTES + TCP_HEADER_BYTES) / RATE
        self.waiting: list[list[tuple]] = [[] for _ in range(WORKERS)]
        self.busy, self.down_s = [False] * WORKERS, [0.0] * WORKERS
        self.missing: dict[tuple, int] = {}  # packets, by operation, rank, phase and chunk
        self.joined, self.ended = set(), defaultdict(float)
        self.events, self.serial = [], itertools.count()

    def run(self, joins):
        """Return the end in s of each all-reduce for each rank."""
        for op, times in enumerate(joins):
            for rank, join_s in enumerate(times):
                self._at(join_s, self._join, op, rank)
        while self.events:
            now, _, what, rest = heapq.heappop(self.events)
            what(now, *rest)
        return [[self.ended[op, rank] for rank in range(WORKERS)] for op in range(len(joins))]

    def _at(self, time, what, *rest):
        heapq.heappush(self.events, (time, next(self.serial), what, rest))

    def _join(self, now, op, rank):
        self.joined.add((op, rank))
        for chunk in range(len(self.chunks)):
            self._push(now, op, rank, 0, chunk)
        for chunk in range(len(self.chunks)):
            self._average_if_complete(now, op, rank, chunk)

    def _push(self, now, op, rank, phase, chunk):
        for _ in range(self.chunks[chunk]):  # alternating between all peers, packet by packet
            for hop in range(1, WORKERS):
                peer = (rank + hop) % WORKERS
                heapq.heappush(self.waiting[rank], (op, next(self.serial), peer, phase, chunk))
        if not self.busy[rank]:
            self._send_next(now, rank)

    def _send_next(self, now, rank):
        self.busy[rank] = bool(self.waiting[rank])
        if self.busy[rank]:
            op, _, peer, phase, chunk = heapq.heappop(self.waiting[rank])
            self._at(now + self.cost_s, self._send_next, rank)
            self._at(now + self.cost_s + ONE_WAY_S[rank, peer], self._enter_downlink, op, peer, phase, chunk)

    def _enter_downlink(self, now, op, rank, phase, chunk):
        self.down_s[rank] = max(self.down_s[rank], now) + self.cost_s
        self._at(self.down_s[rank], self._arrive, op, rank, phase, chunk)

    def _arrive(self, now, op, rank, phase, chunk):
        key = op, rank, phase, chunk
        self.missing[key] = self.missing.get(key, self.chunks[chunk] * (WORKERS - 1)) - 1
        if self.missing[key] == 0:
            self.ended[op, rank] = now
            if phase == 0:
                self._average_if_complete(now, op, rank, chunk)

    def _average_if_complete(self, now, op, rank, chunk):
        if self.missing.get((op, rank, 0, chunk)) == 0 and (op, rank) in self.joined:
            self._push(now, op, rank, 1, chunk)
            self.ended[op, rank] = now


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("interval_s", "skew_s"),
    [
        (5.0, 0.2),  # one at a time
        (0.6, 0.2),
        (0.3, 0.02),  # they overlap, and keep the links busy for two thirds of the time
        (0.3, 0.2),  # ranks are as far apart as operations
        (0.2, 0.0),  # the links are never idle
        (0.2, 0.02),
        (0.2, 0.2),
    ],
)
def test_operations_in_flight_take_as_long_as_their_packets(interval_s, skew_s, seed):
    """A single operation takes about 0.31 s, and occupies the links for 0.19 s of them."""
    random = np.random.default_rng(seed)
    joins = [[i * interval_s + late for late in random.uniform(0, skew_s, 4).tolist()] for i in range(8)]
    network = star([1] * WORKERS, rate=RATE, delays_ms={pair: s * 1e3 for pair, s in ONE_WAY_S.items()})
    by_packets, by_rounds = Packets(NBYTES).run(joins), ends(network, "direct", NBYTES, joins)
    for join, packets, rounds in zip(joins, by_packets, by_rounds, strict=True):
        assert max(rounds) - min(join) == pytest.approx(max(packets) - min(join), rel=0.02)
