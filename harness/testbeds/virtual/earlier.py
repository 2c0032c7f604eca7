"""Messages that follow one another on a connection: they share its window, and the buffer of its narrowest queue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.testbeds.virtual.queues import Ints

Floats = NDArray[np.float64]

_LAST = 8  # messages of a connection that can be on their way


@dataclass(frozen=True)
class Bursts:
    """What senders can send at once, behind the last messages of their connections. Arrays have the shape (messages,).

    Attributes:
        free: bytes of the window that are not occupied. room: bytes that the buffer of the narrowest queue still holds.
        wait_ns: how long the last message still needs for its bytes at the rate.
        held_ns: how much longer it needs because of its stalls.
    """

    free: Floats
    room: Floats
    wait_ns: Floats
    held_ns: Floats


class Earlier:
    """The last message of each connection.

    A paced message begins when the last one has left. Others enter the queue as soon as the window lets them.

    Args:
        count: number of connections. paced: whether senders keep to their share of the rate.
    """

    def __init__(self, count: int, *, paced: bool) -> None:
        self._paced, self._every = paced, np.arange(count)
        self._ready = np.zeros(count)
        self._drained, self._sent = np.zeros(count), np.zeros(count)  # when it has left, without and with its stalls
        self._entered = np.zeros(count)  # when its last byte is in the queue
        # Of the last messages, latest first: when the last byte is acknowledged, the bytes that are on their way until
        # then, and what they add to the window.
        self._acknowledged, self._flying, self._grown = np.zeros((3, _LAST, count))

    def behind(self, index: Ints, ready: Ints) -> tuple[Floats, Floats, Floats]:
        """Return (begin, wait_ns, held_ns): messages of a connection leave one after another.

        Messages come round by round. One that was ready before the last message does not wait for it.
        """
        follows = ready >= self._ready[index]
        begin = np.maximum(ready, np.where(follows, self._entered[index], 0.0))
        wait_ns = np.where(follows, np.maximum(self._drained[index] - ready, 0.0), 0.0)
        held_ns = np.where(follows, np.maximum(self._sent[index] - ready - wait_ns, 0.0), 0.0)
        return begin, wait_ns, held_ns

    def bursts(self, index: Ints, ready: Ints, window: Floats, buffer_bytes: Floats, ns_per_byte: Floats) -> Bursts:
        """What each sender can send at once. `ns_per_byte` is that of its narrowest queue."""
        begin, wait_ns, held_ns = self.behind(index, ready)
        each = self._quick(index)
        last, sizes = self._acknowledged[:, each], self._flying[:, each]
        left_ns = np.where(ready >= self._ready[index], np.clip(last - begin, 0.0, sizes * ns_per_byte), 0.0)
        unacknowledged = np.divide(left_ns, sizes * ns_per_byte, out=np.zeros_like(left_ns), where=left_ns > 0)
        flying = (sizes * unacknowledged).sum(axis=0)
        queued = np.minimum(flying, np.maximum(self._drained[index] - begin, 0.0) / np.maximum(ns_per_byte, 1e-9))
        free = np.maximum(window - flying - (self._grown[:, each] * unacknowledged).sum(axis=0), 0.0)
        return Bursts(free, np.maximum(buffer_bytes - queued, 0.0), wait_ns, held_ns)

    def add(
        self,
        index: Ints,
        ready: Ints,
        drained: Floats,
        stall: Ints,
        rtt_ns: Ints,
        flying: Floats,
        grown: Floats,
        last_ns: Floats,
    ) -> None:
        """Set the last messages.

        Args:
            drained: when their bytes have left at the rate. stall: how much later they have.
            flying: the bytes that are on their way then. grown: what they add to the window.
            last_ns: how long the bytes that their last window lets go take at the rate.
        """
        sent = drained + stall
        begin, _, held_ns = self.behind(index, ready)
        entered = np.where(stall > held_ns, np.maximum(begin, sent - last_ns), begin)
        self._entered[index] = sent if self._paced else entered
        each = self._quick(index)
        self._ready[index] = ready
        self._drained[index], self._sent[index] = drained, sent
        for last, value in (
            (self._acknowledged, sent + rtt_ns),
            (self._flying, flying),
            (self._grown, np.maximum(grown, 0.0)),
        ):
            last[1:, each] = last[:-1, each]
            last[0, each] = value

    def unacknowledged(
        self, connection: int, ready: float, ns_per_byte: float
    ) -> tuple[list[tuple[float, float, float]], float]:
        """What is on its way at `ready`, and what it adds to the window.

        The oldest is the first: (bytes, when the first and the last of them are acknowledged).
        """
        found, grown = [], 0.0
        for number in reversed(range(_LAST)):
            last, nbytes = float(self._acknowledged[number, connection]), float(self._flying[number, connection])
            length = nbytes * ns_per_byte
            if last > ready and nbytes:
                left = min(last - ready, length) / length if length else 1.0
                found.append((nbytes * left, last - length * left, last))
                grown += float(self._grown[number, connection]) * left
        return found, grown

    def acknowledged_ns(self, index: Ints) -> Floats:
        """When all bytes of each connection's last messages are acknowledged."""
        return np.asarray(self._acknowledged[:, index].max(axis=0))

    def empty_ns(self, connection: int) -> float:
        """When the last byte leaves the queue."""
        return float(max(self._drained[connection], self._sent[connection]))

    def state(self, index: Ints, ready: Ints) -> list[Floats]:
        """What `unacknowledged` and `empty_ns` depend on. Connections with equal values are in equal state."""
        last, flying, grown = (values[:, index] for values in (self._acknowledged, self._flying, self._grown))
        values = np.concatenate([np.where(last > ready, each, 0.0) for each in (last, flying, grown)])
        empty_ns = np.maximum(self._drained[index], self._sent[index])
        return [empty_ns, *[column for column in values if column.any()]]

    def replace(self, index: Ints, left: Ints, rtt_ns: Ints) -> None:
        """The last messages, which were followed packet by packet, leave at `left`."""
        self._entered[index] = self._drained[index] = self._sent[index] = left
        self._acknowledged[0, index] = left + rtt_ns
        self._grown[0, index] = 0.0

    def _quick(self, index: Ints) -> Ints | slice:
        """The same index, which numpy follows faster if it is all connections in order."""
        whole = len(index) == len(self._every) and bool((index == self._every).all())
        return slice(None) if whole else index
