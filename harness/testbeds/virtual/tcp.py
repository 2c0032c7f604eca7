"""What TCP adds to the time of a message: a window that opens round trip by round trip, and what a loss costs.

The model, per connection (Reno, as the built-in experiments pin it):

* It begins with 10 segments of 1448 bytes and doubles the window each round trip (slow start) until its first loss;
  after that the window grows by one segment a round trip (congestion avoidance).
* While the window is smaller than what the path holds in a round trip, the sender waits for acknowledgements: a round
  trip is `window` bytes long, and the rest of it is stall.
* The window grows to at most twice what was last in flight, as in Linux, and to 32 MiB, half of the buffers that
  workers pin (tcp_rmem, tcp_wmem).
* With `slow_start_after_idle`, each retransmission timeout (RTT + 200 ms) of silence halves the window, down to 10
  segments.
* What an outage swallows is sent again by a probe after two round trips, and then after timeouts that begin at RTT +
  200 ms and double each time, as in Linux. What gets through after a timeout starts from a window of one segment.
* A loss costs one round trip (fast retransmit) and half of the window. If it hits the last packet, nothing follows
  that would reveal it: a probe is sent after two round trips, and after 200 ms more if the message was one packet.

Not modelled: losses because the sender overflows a queue's buffer, delayed acknowledgements, and the bytes of
acknowledgements on the way back.
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

NEVER = 1 << 60  # nanoseconds: what comes then does not come

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tcp:
    """What of TCP is modelled.

    Attributes:
        ramp: windows; without, a message is limited by the rates alone, and a loss costs its round trip only.
        slow_start_after_idle: as Linux's setting of that name.
    """

    ramp: bool = True
    slow_start_after_idle: bool = False


class Connections:
    """The windows of some connections that carry messages of one kind."""

    def __init__(self, tcp: Tcp, count: int) -> None:
        self._tcp = tcp
        self._window = np.full(count, INITIAL_WINDOW)
        self._avoiding = np.zeros(count, np.bool_)  # congestion avoidance: a loss has been seen
        self._last_sent = np.zeros(count, np.int64)
        self._last_arrival = np.zeros(count, np.int64)
        self._resumes: dict[int, int] = {}  # when a connection that an outage holds gets through again

    def stall_ns(self, index: Ints, ready: Ints, load: Load, losses: Ints | None, tail_lost: Ints | None) -> Ints:
        """How much longer messages take than their bytes at the rate of their path.

        Args:
            index: the connection of each message, all different.
            ready: when each begins. load: what they carry.
            losses: packets lost of each, and 1 in `tail_lost` where its last one is among them; None if none are.
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
            ns_per_byte = float(load.drain_ns[i]) / max(nbytes, 1.0)  # served beside the others of its round
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
        """When what an outage swallowed has got through, as if the rest of the message took no time; `NEVER` or later
        if it does not.

        Args:
            index: the connection. dark: until when nothing gets through at a time; None if something does.
        """
        known = self._resumes.get(index, 0)
        if known > lost.at_ns:  # it is being sent again already, and this is behind it
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
        """Nanoseconds that the window costs what is sent again."""
        if probe:  # nothing but the acknowledgement of the probe is waited for
            self._window[index] = max(self._window[index] / 2, 2.0 * SEGMENT_BYTES)
            self._avoiding[index] = True
            return lost.rtt_ns
        flow = _Flow(float(SEGMENT_BYTES), False, float(lost.rtt_ns), 0.0)
        flow.carry(lost.nbytes, 0, ramp=True)
        self._window[index], self._avoiding[index] = flow.window, False
        return round(flow.stall_ns)

    def in_order(self, index: Ints, arrival: Ints) -> Ints:
        """Arrival times such that nothing overtakes an earlier message of its connection."""
        arrival = np.maximum(arrival, self._last_arrival[index])
        self._last_arrival[index] = arrival
        return arrival


@dataclass(frozen=True)
class Lost:
    """What an outage swallowed of a message.

    Attributes:
        at_ns: when the first of it was lost. rtt_ns: of its connection, without queueing.
        smoothed_ns: the round-trip time that TCP knows, which is that of the end of a burst: behind the burst on the
            way there, and, as workers send at the same time, behind another one on the way back.
        packets: of the whole message. nbytes: of what was lost.
    """

    at_ns: int
    rtt_ns: int
    smoothed_ns: int
    packets: int
    nbytes: float


def attempts(lost: Lost) -> Iterator[tuple[int, bool]]:
    """When TCP sends again what it has no word of, as (time, whether it is a probe), without end.

    A probe (RFC 8985) goes out after two round trips, 200 ms later if one packet is all there is, and not after the
    timeout. The timeout then begins anew, as in Linux (`tcp_send_loss_probe`).
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
    """What the messages of a round put on their connections; arrays of shape (messages,).

    Attributes:
        flow_bytes: payload of each connection; a message to a site may stand for one to each of its workers.
        rtt_ns: there and back without queueing.
        drain_ns: how long the messages of the round keep the busiest queue that this one passes.
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
        """Send `nbytes` with losses spread evenly over them."""
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
        """Without a loss."""
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
            # n round trips carry n w + n^2 segment / 2. All but the last are waited for, until the path is full.
            segment = float(SEGMENT_BYTES)
            rounds = (math.sqrt(self.window**2 + 2 * segment * nbytes) - self.window) / segment
            short = min(math.ceil(rounds) - 1.0, max(0.0, (full - self.window) / segment))
            carried = short * self.window + short**2 * segment / 2
            self.stall_ns += max(0.0, short * self.rtt_ns - carried * self.ns_per_byte)
            self.window = min(self.window + rounds * segment, MAX_WINDOW)

    def _at_limit(self, nbytes: float) -> None:
        """The window cannot grow, and is still smaller than what the path holds."""
        if self.window >= MAX_WINDOW and nbytes > self.window:
            waits = math.ceil(nbytes / self.window) - 1
            self.stall_ns += waits * max(0.0, self.rtt_ns - self.window * self.ns_per_byte)
