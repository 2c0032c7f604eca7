"""The time that TCP adds to a message: a window that opens over several round trips, and retransmissions.

The model of each connection (Reno, as the built-in experiments pin it):

* It begins with 10 segments of 1448 bytes and doubles the window each round trip (slow start) until its first loss.
  After that the window grows by one segment per round trip (congestion avoidance).
* While the window is smaller than the capacity of the path, the sender waits for acknowledgements: it sends `window`
  bytes per round trip, and stalls for the rest of it.
* The window grows to at most twice the bytes last in flight, as in Linux, and to at most 32 MiB, half of the buffers
  that workers pin (tcp_rmem, tcp_wmem).
* With `slow_start_after_idle`, each retransmission timeout (RTT + 200 ms) of silence halves the window, down to 10
  segments.
* Packets lost in an outage are sent again by a probe after two round trips, and then after timeouts that begin at RTT +
  200 ms and double each time, as in Linux. After a timeout the window restarts at one segment.
* A loss costs one round trip (fast retransmit) and half of the window. If the last packet is lost, no later packet
  reveals it: a probe is sent after two round trips, and 200 ms later if the message had only one packet.

Not modelled: losses because the sender overflows a queue's buffer, delayed acknowledgements, and the bytes of
acknowledgements in the opposite direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SEGMENT_BYTES = 1448
INITIAL_WINDOW = 10.0 * SEGMENT_BYTES
MAX_WINDOW = float(32 << 20)
MIN_TIMEOUT_NS = 200_000_000
MAX_TIMEOUT_NS = 120_000_000_000

NEVER = 1 << 60  # nanoseconds: an event at this time does not happen

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tcp:
    """The modelled features of TCP.

    Attributes:
        ramp: windows. Without them only rates limit a message, and a loss costs only its round trip.
        slow_start_after_idle: the Linux setting of that name.
    """

    ramp: bool = True
    slow_start_after_idle: bool = False


class Connections:
    """The windows of connections that carry messages of one kind."""

    def __init__(self, tcp: Tcp, count: int) -> None:
        self._tcp = tcp
        self._window = np.full(count, INITIAL_WINDOW)
        self._avoiding = np.zeros(count, np.bool_)  # congestion avoidance: a loss has been seen
        self._last_sent = np.zeros(count, np.int64)
        self._last_arrival = np.zeros(count, np.int64)
        self._resumes: dict[int, int] = {}  # when a connection held by an outage gets through again

    def stall_ns(self, index: Ints, ready: Ints, load: Load, losses: Ints | None, tail_lost: Ints | None) -> Ints:
        """How much longer messages take than their bytes at the rate of their path.

        Args:
            index: the connection of each message, all different.
            ready: when each message begins.
            load: their load.
            losses: number of lost packets of each message; None if no packet is lost.
            tail_lost: 1 for each message that loses its last packet; None if no packet is lost.
        """
        window = self._window[index]
        if self._tcp.ramp and self._tcp.slow_start_after_idle:
            timeouts = np.clip((ready - self._last_sent[index]) // (load.rtt_ns + MIN_TIMEOUT_NS), 0, 60)
            window = np.maximum(window * 0.5**timeouts, np.minimum(window, INITIAL_WINDOW))
        stall = np.zeros(len(index), np.int64)
        slow = load.flow_bytes > window if self._tcp.ramp else np.zeros(len(index), np.bool_)
        if losses is not None:
            slow = slow | (losses > 0)
        grown = np.minimum(np.maximum(window, 2 * load.flow_bytes), window + load.flow_bytes)
        avoiding = self._avoiding[index]
        after = np.where(avoiding, window, np.minimum(grown, MAX_WINDOW))
        for i in np.flatnonzero(slow).tolist():
            lost, nbytes = 0 if losses is None else int(losses[i]), float(load.flow_bytes[i])
            ns_per_byte = float(load.drain_ns[i]) / max(nbytes, 1.0)  # shared with the others of its round
            flow = _Flow(float(window[i]), bool(avoiding[i]), float(load.rtt_ns[i]), ns_per_byte)
            flow.carry(nbytes, lost, ramp=self._tcp.ramp)
            if tail_lost is not None and tail_lost[i]:
                flow.stall_ns += flow.rtt_ns + (MIN_TIMEOUT_NS if nbytes <= SEGMENT_BYTES else 0)
            stall[i] = round(flow.stall_ns)
            after[i], self._avoiding[index[i]] = flow.window, flow.avoiding
        self._window[index] = after
        self._last_sent[index] = ready + load.drain_ns
        return stall

    def resume_ns(self, index: int, lost: Lost, dark: Callable[[int], int | None]) -> int:
        """When the packets lost in an outage arrive, without the rest of the message; `NEVER` or later if they do not.

        Args:
            index: the connection.
            lost: the lost packets.
            dark: returns the end of the outage at a time, or None if there is none.
        """
        known = self._resumes.get(index, 0)
        if known > lost.at_ns:  # the connection already retransmits, and this message is behind
            return known
        for time, probe in attempts(lost):
            healed = dark(time)
            if healed is not None and healed >= NEVER:
                return NEVER
            if healed is None:
                self._resumes[index] = time
                return time + (0 if not self._tcp.ramp else self._restart(index, lost, probe=probe))
        raise AssertionError("attempts never end")

    def _restart(self, index: int, lost: Lost, *, probe: bool) -> int:
        """The nanoseconds that the window adds to a retransmission."""
        if probe:  # it only waits for the acknowledgement of the probe
            self._window[index] = max(self._window[index] / 2, 2.0 * SEGMENT_BYTES)
            self._avoiding[index] = True
            return lost.rtt_ns
        flow = _Flow(float(SEGMENT_BYTES), False, float(lost.rtt_ns), 0.0)
        flow.carry(lost.nbytes, 0, ramp=True)
        self._window[index], self._avoiding[index] = flow.window, False
        return round(flow.stall_ns)

    def in_order(self, index: Ints, arrival: Ints) -> Ints:
        """Return arrival times such that no message overtakes an earlier one of its connection."""
        arrival = np.maximum(arrival, self._last_arrival[index])
        self._last_arrival[index] = arrival
        return arrival


@dataclass(frozen=True)
class Lost:
    """The part of a message that is lost in an outage.

    Attributes:
        at_ns: when its first packet was lost.
        rtt_ns: round-trip time of the connection without queueing.
        smoothed_ns: round-trip time that TCP measured at the end of a burst: it includes the queue of that burst in
            one direction and, as workers send at the same time, of another burst in the other.
        packets: number of packets of the whole message.
        nbytes: number of lost bytes.
    """

    at_ns: int
    rtt_ns: int
    smoothed_ns: int
    packets: int
    nbytes: float


def attempts(lost: Lost) -> Iterator[tuple[int, bool]]:
    """Yield the retransmissions of unacknowledged data as (time, whether it is a probe), without end.

    A probe (RFC 8985) is sent after two round trips, 200 ms later if the message has only one packet, but never later
    than the timeout. The timeout then restarts, as in Linux (`tcp_send_loss_probe`).
    """
    timeout = lost.smoothed_ns + MIN_TIMEOUT_NS
    time = lost.at_ns + min(2 * lost.smoothed_ns + (MIN_TIMEOUT_NS if lost.packets <= 1 else 0), timeout)
    yield time, True
    while True:
        time += timeout
        yield time, False
        timeout = min(2 * timeout, MAX_TIMEOUT_NS)


@dataclass(frozen=True)
class Load:
    """The load of a round's messages on their connections. Arrays have the shape (messages,).

    Attributes:
        flow_bytes: payload per connection; a message to a site can stand for one to each of its workers.
        rtt_ns: round-trip time without queueing.
        drain_ns: time that the round occupies the busiest queue of each message.
    """

    flow_bytes: Floats
    rtt_ns: Ints
    drain_ns: Ints


class _Flow:
    """One message on one connection, in floating-point nanoseconds and bytes."""

    def __init__(self, window: float, avoiding: bool, rtt_ns: float, ns_per_byte: float) -> None:
        self.window, self.avoiding = window, avoiding
        self.rtt_ns, self.ns_per_byte = rtt_ns, ns_per_byte
        self.stall_ns = 0.0

    def carry(self, nbytes: float, losses: int, *, ramp: bool) -> None:
        """Send `nbytes`, with the losses spread evenly over them."""
        if not ramp:
            self.stall_ns += self.rtt_ns if losses else 0.0
            return
        for part in range(losses + 1):
            self._send(nbytes / (losses + 1))
            if part < losses:
                self.stall_ns += self.rtt_ns
                self.window = max(self.window / 2, 2.0 * SEGMENT_BYTES)
                self.avoiding = True

    def _send(self, nbytes: float) -> None:
        """Send `nbytes` without a loss."""
        full = min(self.rtt_ns / self.ns_per_byte if self.ns_per_byte else math.inf, MAX_WINDOW)
        if not self.avoiding:
            sent = 0.0
            while nbytes - sent > self.window and self.window < full:
                sent += self.window
                self.stall_ns += max(0.0, self.rtt_ns - self.window * self.ns_per_byte)
                self.window = min(2 * self.window, MAX_WINDOW)
            self._at_limit(nbytes - sent)
            self.window = min(max(self.window, 2 * (nbytes - sent)), MAX_WINDOW, self.window + nbytes - sent)
        elif nbytes > self.window:
            # n round trips carry n w + n^2 segment / 2 bytes. The sender waits for all but the last, until the path
            # is full.
            segment = float(SEGMENT_BYTES)
            rounds = (math.sqrt(self.window**2 + 2 * segment * nbytes) - self.window) / segment
            short = min(math.ceil(rounds) - 1.0, max(0.0, (full - self.window) / segment))
            carried = short * self.window + short**2 * segment / 2
            self.stall_ns += max(0.0, short * self.rtt_ns - carried * self.ns_per_byte)
            self.window = min(self.window + rounds * segment, MAX_WINDOW)

    def _at_limit(self, nbytes: float) -> None:
        """Send `nbytes` with the largest window, if it is smaller than the capacity of the path."""
        if self.window >= MAX_WINDOW and nbytes > self.window:
            waits = math.ceil(nbytes / self.window) - 1
            self.stall_ns += waits * max(0.0, self.rtt_ns - self.window * self.ns_per_byte)
