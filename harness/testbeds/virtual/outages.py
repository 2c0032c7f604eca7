"""Outages on the simulated clock: when nothing gets through a directed path, and how this delays messages.

A packet is lost at the same point as in the emulators: after the path's queue, before its delay. Packets past that
point arrive. If a part of a message is lost, the message continues with the first retransmission
(`virtual.sender.attempts`) after the path has healed. Later messages of the connection arrive behind it.

An outage in one direction does not affect the other: the loss of acknowledgements is not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.testbeds.virtual.queues import Ints
from wanbench.harness.testbeds.virtual.sender import Lost
from wanbench.harness.testbeds.virtual.tcp import NEVER, Connections, Load

Spans = Sequence[tuple[int, int | None]]


class Outages:
    """The outages of the directed paths of a network. Path (a, b) has index a x sites + b.

    Args:
        paths: number of paths.
    """

    def __init__(self, paths: int) -> None:
        self._of: dict[int, list[tuple[int, int]]] = {}
        self._first, self._last = np.full(paths, NEVER), np.zeros(paths, np.int64)

    def __bool__(self) -> bool:
        return bool(self._of)

    def expect(self, spans: Mapping[int, Spans]) -> None:
        """Set the outages known now: (begin, end) in nanoseconds per path, in order. An end of None is never."""
        self._of = {path: [(begin, NEVER if end is None else end) for begin, end in of] for path, of in spans.items()}
        self._first[:], self._last[:] = NEVER, 0
        for path, of in self._of.items():
            self._first[path], self._last[path] = of[0][0], of[-1][1]

    def lost(self, path: int, times: Ints) -> NDArray[np.bool_]:
        """Whether packets that reach the end of the path's queue at these times are lost."""
        lost = np.zeros(len(times), np.bool_)
        for begin, end in self._of.get(path, ()):
            lost |= (times >= begin) & (times < end)
        return lost

    def late_ns(
        self, connections: Connections, index: Ints, path: Ints, begin: Ints, end: Ints, packets: Ints, load: Load
    ) -> Ints | None:
        """How much later each message arrives than without outages, or None if none is later.

        Args:
            index: the connection of each message.
            path: its directed path.
            begin, end: when its first and its last byte reach the end of the path's queue.
            packets: number of its packets.
            load: its load on its connection.
        """
        near = np.flatnonzero((begin < self._last[path]) & (end >= self._first[path]))
        late: Ints | None = None
        for i in near.tolist():
            at = self._lost_at(int(path[i]), int(begin[i]), int(end[i]))
            if at is None:
                continue
            if late is None:
                late = np.zeros(len(index), np.int64)
            length = int(end[i]) - int(begin[i])
            lost_share = (int(end[i]) - at) / length if length else 1.0
            rtt, drain = int(load.rtt_ns[i]), int(load.drain_ns[i])
            lost = Lost(at, rtt, rtt + 2 * drain, int(packets[i]), lost_share * float(load.flow_bytes[i]))
            resumed = connections.resume_ns(int(index[i]), lost, self._of[int(path[i])])
            late[i] = min(resumed - at, NEVER - int(end[i]))
        return late

    def _lost_at(self, path: int, begin: int, end: int) -> int | None:
        for dark, healed in self._of.get(path, ()):
            if begin < healed and end >= dark:
                return max(begin, dark)
        return None
