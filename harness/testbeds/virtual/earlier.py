"""Messages that follow one another on a connection: they share its window, and the buffer of its narrowest queue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.testbeds.virtual.flow import Burst
from wanbench.harness.testbeds.virtual.queues import Ints

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bursts:
    """What senders can send at once, behind the last messages of their connections. Arrays have the shape (messages,).

    Attributes:
        free: bytes of the window that are not occupied. room: bytes that the buffer of the narrowest queue still holds.
        wait_ns: how long the last message still needs for its bytes at the rate.
        held_ns: how much longer it needs because of its stalls.
        freed_ns: how long after both the first of its bytes is acknowledged.
    """

    free: Floats
    room: Floats
    wait_ns: Floats
    held_ns: Floats
    freed_ns: Floats

    def of(self, i: int) -> Burst:
        """What one of them can send."""
        return Burst(float(self.free[i]), float(self.room[i]), float(self.freed_ns[i]))


class Earlier:
    """The last message of each connection.

    Args:
        count: number of connections.
    """

    def __init__(self, count: int) -> None:
        self._ready = np.zeros(count)
        self._drained, self._sent = np.zeros(count), np.zeros(count)  # when it has left, without and with its stalls
        self._flying, self._rtt = np.zeros(count), np.zeros(count)  # bytes on their way then, and for how long
        self._grown = np.zeros(count)  # what its acknowledgements add to the window

    def behind(self, index: Ints, ready: Ints) -> tuple[Floats, Floats, Floats]:
        """Return (begin, wait_ns, held_ns): messages of a connection leave one after another.

        Messages come round by round. One that was ready before the last message does not wait for it.
        """
        follows = ready >= self._ready[index]
        begin = np.maximum(ready, np.where(follows, self._sent[index], 0.0))
        wait_ns = np.where(follows, np.maximum(self._drained[index] - ready, 0.0), 0.0)
        return begin, wait_ns, np.maximum(begin - ready - wait_ns, 0.0)

    def bursts(self, index: Ints, ready: Ints, window: Floats, buffer_bytes: Floats, ns_per_byte: Floats) -> Bursts:
        """What each sender can send at once. `ns_per_byte` is that of its narrowest queue."""
        begin, wait_ns, held_ns = self.behind(index, ready)
        last = self._sent[index] + self._rtt[index]
        first = last - self._flying[index] * ns_per_byte
        share = np.clip((last - begin) / np.maximum(last - first, 1.0), 0.0, 1.0)
        unacknowledged = np.where(ready >= self._ready[index], share, 0.0)
        flying = self._flying[index] * unacknowledged
        queued = np.minimum(flying, np.maximum(self._drained[index] - begin, 0.0) / np.maximum(ns_per_byte, 1e-9))
        free = np.maximum(window - flying - self._grown[index] * unacknowledged, 0.0)
        return Bursts(free, np.maximum(buffer_bytes - queued, 0.0), wait_ns, held_ns, first - begin)

    def add(
        self, index: Ints, ready: Ints, drained: Floats, stall: Ints, rtt_ns: Ints, flying: Floats, grown: Floats
    ) -> None:
        """Set the last messages.

        Args:
            drained: when their bytes have left at the rate. stall: how much later they have.
            flying: the bytes that are on their way then. grown: what they add to the window.
        """
        self._ready[index], self._rtt[index] = ready, rtt_ns
        self._drained[index], self._sent[index] = drained, drained + stall
        self._flying[index], self._grown[index] = flying, np.maximum(grown, 0.0)
