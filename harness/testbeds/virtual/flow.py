"""One message on a connection whose window limits it: slow start, congestion avoidance and losses, by Reno or CUBIC.

Times are floating-point nanoseconds, sizes bytes. `stall_ns` is what a message takes beyond its bytes at the rate.

A sender that is not paced sends its whole window at once. What the buffer of the narrowest queue cannot hold is lost,
and sent again after a round trip. If nothing follows the lost bytes, TCP first waits for a probe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

SEGMENT_BYTES = 1448
MAX_WINDOW = float(32 << 20)
_MIN_WINDOW = 2.0 * SEGMENT_BYTES
_PROBE_ROUND_TRIPS = 3  # two until the probe is sent, one until it is acknowledged


class Rules(Protocol):
    """How a congestion control opens a window in congestion avoidance, and closes it after a loss."""

    def after_loss(self, window: float) -> float:
        """The window after a loss."""

    def slow_start_ends(self, full: float, rtt_ns: float, ns_per_byte: float, *, paced: bool) -> float:
        """The window at which slow start ends without a loss. `full` fills the path."""

    def avoid(self, window: float, nbytes: float, full: float, rtt_ns: float) -> tuple[float, float, float]:
        """Send `nbytes`, more than the window. Return (the window, round trips in which it is too small, their bytes).

        Args:
            full: the window that fills the path.
        """


class Reno:
    """RFC 5681: half of the window after a loss, one segment more in each round trip."""

    def after_loss(self, window: float) -> float:
        """See `Rules`."""
        return max(window / 2, _MIN_WINDOW)

    def slow_start_ends(self, full: float, rtt_ns: float, ns_per_byte: float, *, paced: bool) -> float:
        """See `Rules`."""
        return math.inf

    def avoid(self, window: float, nbytes: float, full: float, rtt_ns: float) -> tuple[float, float, float]:
        """See `Rules`: n round trips carry n w + n^2 segment / 2 bytes; the sender waits for all but the last."""
        segment = float(SEGMENT_BYTES)
        rounds = (math.sqrt(window**2 + 2 * segment * nbytes) - window) / segment
        short = min(math.ceil(rounds) - 1.0, max(0.0, (full - window) / segment))
        return window + rounds * segment, short, short * window + short**2 * segment / 2


class Cubic:
    """RFC 9438 with HyStart, as in Linux. It has the state of one connection.

    The window follows C (t - K)^3 + W_max, with t the time spent sending since the last loss, but is at least that of
    a Reno with the same losses. Before the first loss it grows by at least 5 % in each round trip.
    """

    _BETA, _C = 0.7, 0.4  # C in segments per cubed second
    _HYSTART_SEGMENTS = 16
    _HYSTART_TRAIN_NS = 2e6  # packets that follow within this time are a train
    _HYSTART_DELAY_NS = (4e6, 16e6)

    def __init__(self) -> None:
        self._largest = 0.0  # W_max in segments
        self._seconds, self._k = 0.0, 0.0
        self._lost = False
        self._begin = 0.0  # the window at t = 0

    def after_loss(self, window: float) -> float:
        """See `Rules`. A connection that lost before it reached its last maximum leaves room for others."""
        segments = window / SEGMENT_BYTES
        self._largest = segments * (1 + self._BETA) / 2 if segments < self._largest else segments
        smaller = max(window * self._BETA, _MIN_WINDOW)
        self._begin, self._lost, self._seconds = smaller / SEGMENT_BYTES, True, 0.0
        self._k = math.cbrt(max(0.0, self._largest - self._begin) / self._C)
        return smaller

    def slow_start_ends(self, full: float, rtt_ns: float, ns_per_byte: float, *, paced: bool) -> float:
        """See `Rules`. HyStart: acknowledgements arrive for half a round trip, or later than at first."""
        if not ns_per_byte:
            return math.inf
        low, high = self._HYSTART_DELAY_NS
        ends = full + min(max(rtt_ns / 8, low), high) / ns_per_byte
        if 2 * SEGMENT_BYTES * ns_per_byte <= self._HYSTART_TRAIN_NS:
            ends = min(ends, full if paced else full / 2)
        return max(ends, self._HYSTART_SEGMENTS * float(SEGMENT_BYTES))

    def avoid(self, window: float, nbytes: float, full: float, rtt_ns: float) -> tuple[float, float, float]:
        """See `Rules`."""
        short = carried = sent = 0.0
        while nbytes - sent > window:
            if window < full:
                short, carried = short + 1, carried + window
            sent += window
            window = min(self._grown(window, rtt_ns), MAX_WINDOW)
            if window >= full and window >= MAX_WINDOW:
                break
        return window, short, carried

    def _grown(self, window: float, rtt_ns: float) -> float:
        """The window one round trip later."""
        if not self._largest:  # slow start has just ended without a loss
            self._largest = self._begin = window / SEGMENT_BYTES
        self._seconds += rtt_ns / 1e9
        cubic = self._C * (self._seconds - self._k) ** 3 + self._largest
        reno = self._begin + 3 * (1 - self._BETA) / (1 + self._BETA) * self._seconds / (rtt_ns / 1e9)
        segments = window / SEGMENT_BYTES
        least = segments if self._lost else 1.05 * segments
        return SEGMENT_BYTES * min(max(cubic, reno, least), 1.5 * segments)


@dataclass(frozen=True)
class Burst:
    """What a sender can send at once.

    Attributes:
        free: bytes of its window that earlier messages do not occupy.
        room: bytes that the buffer of the narrowest queue still holds; infinite for a sender that is paced.
        freed_ns: how long after the end of the backlog in this queue the first acknowledgement of earlier messages
            arrives.
    """

    free: float
    room: float
    freed_ns: float


class Flow:
    """One message on one connection.

    Args:
        window: of the connection. avoiding: whether it is in congestion avoidance.
        rtt_ns: round-trip time without queueing. ns_per_byte: of the narrowest queue, 0 if unlimited.
        rules: of its congestion control. paced: whether the sender keeps to its share of the rate.
    """

    def __init__(
        self, window: float, avoiding: bool, rtt_ns: float, ns_per_byte: float, rules: Rules, *, paced: bool = True
    ) -> None:
        self.window, self.avoiding, self.rules = window, avoiding, rules
        self.rtt_ns, self.ns_per_byte = rtt_ns, ns_per_byte
        self.paced, self.room = paced, math.inf
        self.full = min(rtt_ns / ns_per_byte if ns_per_byte else math.inf, MAX_WINDOW)
        self.stall_ns = self.lost_ns = 0.0  # in all, and for losses

    def carry(self, nbytes: float, losses: int, burst: Burst | None = None) -> None:
        """Send `nbytes`, with the losses spread evenly over them, behind earlier messages if `burst` is given."""
        if burst is not None:
            self.room = burst.room
            at_once = min(nbytes, burst.free)
            if at_once > self.room:
                self._overflow(last=nbytes <= burst.free)
                nbytes -= self.room
            elif burst.free < min(nbytes, self.window):
                self._wait_for_earlier(nbytes, burst)
        for part in range(losses + 1):
            self._send(nbytes / (losses + 1))
            if part < losses:
                self._lose()

    def _lose(self) -> None:
        self.stall_ns += self.rtt_ns
        self.lost_ns += self.rtt_ns
        self.window, self.avoiding = self.rules.after_loss(self.window), True

    def _wait_for_earlier(self, nbytes: float, burst: Burst) -> None:
        """Send what the window leaves, and the rest as earlier messages are acknowledged."""
        self.stall_ns += max(0.0, burst.freed_ns - burst.free * self.ns_per_byte)
        self.window = min(self.window + (SEGMENT_BYTES if self.avoiding else nbytes), MAX_WINDOW)

    def _overflow(self, *, last: bool) -> None:
        """Send again what did not fit into the buffer; `last`: nothing follows it."""
        self._lose()
        if last:
            probed_ns = _PROBE_ROUND_TRIPS * self.rtt_ns + self.room * self.ns_per_byte
            self.stall_ns += probed_ns
            self.lost_ns += probed_ns

    def _send(self, nbytes: float) -> None:
        """Send `nbytes` without a loss on the way."""
        if not self.avoiding:
            nbytes = self._slow_start(nbytes)
        if self.avoiding and nbytes > self.window:
            window, short, carried = self.rules.avoid(self.window, nbytes, self.full, self.rtt_ns)
            self.stall_ns += max(0.0, short * self.rtt_ns - carried * self.ns_per_byte)
            self.window = min(window, MAX_WINDOW)
            if self.window > self.full + self.room:
                self.window = self.full + self.room
                self._lose()

    def _slow_start(self, nbytes: float) -> float:
        """Double the window in each round trip until it fills the path. Return what is left in congestion avoidance."""
        ends = self.rules.slow_start_ends(self.full, self.rtt_ns, self.ns_per_byte, paced=self.paced)
        sent = 0.0
        while nbytes - sent > self.window and self.window < self.full:
            if self.window >= ends:
                self.avoiding = True
                return nbytes - sent
            sent += self.window
            self.stall_ns += max(0.0, self.rtt_ns - self.window * self.ns_per_byte)
            self.window = min(2 * self.window, MAX_WINDOW)
        left = nbytes - sent
        self._at_limit(left)
        self.window = min(max(self.window, 2 * left), MAX_WINDOW, self.window + left)
        if min(self.window, left) > self.full + self.room:
            self.window = self.full + self.room
            self._lose()
        return 0.0

    def _at_limit(self, nbytes: float) -> None:
        """Send `nbytes` with the largest window, if it is smaller than the capacity of the path."""
        if self.window >= MAX_WINDOW and nbytes > self.window:
            waits = math.ceil(nbytes / self.window) - 1
            self.stall_ns += waits * max(0.0, self.rtt_ns - self.window * self.ns_per_byte)
