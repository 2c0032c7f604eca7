"""Reno and CUBIC: how a window opens with every acknowledgement, and closes after a loss, as in Linux.

Times are floating-point nanoseconds. TCP counts segments, and windows and messages are measured here in a unit of which
a segment has SEGMENT_BYTES: the byte, at the usual MTU of 1500 bytes. `in_units` converts bytes on other networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SEGMENT_BYTES = 1448
MIN_WINDOW = 2.0 * SEGMENT_BYTES
BURST_BYTES = 2.0 * SEGMENT_BYTES
BURST_NS = 1e6
"""A sender that is paced sends as much at once as takes so long at its rate, and at least BURST_BYTES."""
SLOW_START_GAIN, GAIN = 2.0, 1.2
"""A sender that is paced sends a window in a round trip divided by this, or by GAIN when slow start is half done."""


class Reno:
    """RFC 5681: half of the window after a loss, one segment more in each round trip."""

    def after_loss(self, window: float) -> float:
        """The window after a loss."""
        return max(window / 2, MIN_WINDOW)

    def avoid(self, window: float, acked: float, now: float, rtt_ns: float) -> float:
        """The window after acknowledgements of `acked` bytes, which took `rtt_ns`, in congestion avoidance.

        Linux counts whole segments.
        """
        return window + acked / max(1.0, window // SEGMENT_BYTES)

    def slow_start_ends(self, window: float, acked: float, now: float, rtt_ns: float, *, paced: bool) -> bool:
        """Whether an acknowledgement in slow start, which took `rtt_ns`, ends it without a loss."""
        return False

    def resumed(self, idle_ns: float) -> None:
        """The connection sends again after it had nothing to send and nothing on its way for `idle_ns`."""

    def copy(self) -> Reno:
        """An independent copy."""
        return self


_BETA, _C = 0.7, 0.4  # C in segments per cubed second
_FRIENDLY = (1 + _BETA) / 3 / (1 - _BETA)  # windows that Reno with CUBIC's losses acknowledges to grow by a segment
_HYSTART_SEGMENTS, _HYSTART_SAMPLES = 16, 8
_HYSTART_TRAIN_NS = 2e6  # packets that follow within this time are a train
_HYSTART_DELAY_NS = (4e6, 16e6)


@dataclass
class Cubic:
    """RFC 9438 with HyStart. It has the state of one connection.

    The window follows C (t - K)^3 + W_max, with t the time since the first acknowledgement after the last loss, without
    idle time, but is at least that of a Reno with the same losses. Before the first loss it grows by at least 5 % in
    each round trip.
    """

    largest: float = 0.0  # W_max in segments
    origin: float = 0.0
    k_s: float = 0.0
    begun: float | None = None  # when t = 0
    friendly: float = 0.0  # Reno's window in segments
    shortest_ns: float = math.inf  # the shortest round trip
    round_ends: float = 0.0  # of HyStart
    round_begun: float = 0.0
    train_ns: float = 0.0
    sampled_ns: float = math.inf
    samples: int = 0

    def after_loss(self, window: float) -> float:
        """A connection that lost before it reached its last maximum leaves room for others."""
        segments = window / SEGMENT_BYTES
        self.largest = segments * (1 + _BETA) / 2 if segments < self.largest else segments
        self.begun = None
        return max(window * _BETA, MIN_WINDOW)

    def avoid(self, window: float, acked: float, now: float, rtt_ns: float) -> float:
        segments, self.shortest_ns = window / SEGMENT_BYTES, min(self.shortest_ns, rtt_ns)
        if self.begun is None:
            self.begun, self.friendly, self.origin = now, segments, max(self.largest, segments)
            self.k_s = math.cbrt((self.origin - segments) / _C)
        after_s = (now - self.begun + self.shortest_ns) / 1e9
        target = self.origin + _C * (after_s - self.k_s) ** 3
        self.friendly += acked / SEGMENT_BYTES / (segments * _FRIENDLY)
        goal = max(target, self.friendly, segments + 0.01 if self.largest else 1.05 * segments)
        return window + acked * min((goal - segments) / segments, 0.5)

    def slow_start_ends(self, window: float, acked: float, now: float, rtt_ns: float, *, paced: bool) -> bool:
        """HyStart: acknowledgements arrive for half a round trip, or later than at first."""
        self.shortest_ns = min(self.shortest_ns, rtt_ns)
        if now >= self.round_ends:
            self.round_begun, self.round_ends, self.train_ns = now, now + rtt_ns, now
            self.sampled_ns, self.samples = math.inf, 0
        if window < _HYSTART_SEGMENTS * SEGMENT_BYTES:
            return False
        self.samples += 1
        if now - self.train_ns <= _HYSTART_TRAIN_NS * max(1.0, acked / SEGMENT_BYTES):
            self.train_ns = now
            if now - self.round_begun > self.shortest_ns / (1 if paced else 2):
                return True
        if self.samples <= _HYSTART_SAMPLES:
            self.sampled_ns = min(self.sampled_ns, rtt_ns)
        low, high = _HYSTART_DELAY_NS
        return self.samples >= _HYSTART_SAMPLES and self.sampled_ns >= self.shortest_ns + min(
            max(self.shortest_ns / 8, low), high
        )

    def resumed(self, idle_ns: float) -> None:
        if self.begun is not None:
            self.begun += idle_ns

    def copy(self) -> Cubic:
        return Cubic(**vars(self))


Rules = Reno | Cubic
"""The congestion control of one connection."""


def whole(window: float) -> float:
    """The bytes of the whole segments that fit into a window."""
    return window // SEGMENT_BYTES * SEGMENT_BYTES


_STEPS = 4  # of a round trip


def pass_rounds(
    rules: Rules | None, window: float, limits: tuple[float, float], nbytes: float, now: float, rtt_ns: float
) -> tuple[float, int, float]:
    """Let round trips of congestion avoidance pass. Return (the window, their number, the bytes that they sent).

    Args:
        rules: None keeps the window as it is. window: at `now`.
        limits: of the windows of these round trips, and of every window.
        nbytes: at most so many are sent.
    """
    number, sent = 0, 0.0
    most, largest = limits
    if window < SEGMENT_BYTES:  # it sends nothing
        return window, 0, 0.0
    while 1.5 * window <= most and sent + 1.5 * window <= nbytes:  # no window grows by more in a round trip
        acked = whole(window)
        for step in range(_STEPS):
            at_ns = now + (number + step / _STEPS) * rtt_ns
            window = window if rules is None else min(rules.avoid(window, acked / _STEPS, at_ns, rtt_ns), largest)
        number, sent = number + 1, sent + whole(window)
    return window, number, sent
