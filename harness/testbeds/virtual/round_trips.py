"""BBR measures the round trip without a queue, and holds up what it sends meanwhile.

* It remembers the shortest round trip. If none was shorter for ten seconds and bytes are on their way, it sends nothing
  until they have arrived, and then four segments at a time for 0.2 s or a round trip.
* If the ten seconds end in a silence, the next acknowledgement is a measurement, and nothing is held up.
* Round trips differ by some noise, so number n is the shortest yet with probability 1 / n. When the ten seconds begin
  is therefore drawn, by a random stream of each connection.

Source: `bbr_update_min_rtt` of Linux.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.testbeds.virtual.congestion import SEGMENT_BYTES
from wanbench.harness.testbeds.virtual.streams import Stream, key
from wanbench.harness.testbeds.virtual.tcp import Floats, Ints, Load

Bools = NDArray[np.bool_]

_VALID_NS = 10e9
_HOLD_NS = 200e6
_HELD_BYTES = 4.0 * SEGMENT_BYTES
_BURST_NS = 1e6  # the kernel paces by bursts of at least a segment, and an acknowledgement answers each


@dataclass(frozen=True, slots=True)
class Sent:
    """A message, and when its first and its last byte are sent."""

    begin_ns: float
    end_ns: float
    nbytes: float


class RoundTrips:
    """The measurements of each connection.

    Args:
        count: number of connections. seed, name: of the random streams.
    """

    def __init__(self, count: int, seed: int, name: Sequence[object]) -> None:
        self._seed, self._name = seed, name
        self._shortest = np.full(count, -np.inf)  # when the shortest round trip was seen
        self._hold, self._until = [_Hold()] * count, np.full(count, -np.inf)
        self._random: dict[int, Stream] = {}

    def last_ns(self, index: Ints, first: Floats, last: Floats, silent: Bools, load: Load) -> Floats:
        """When the last byte of each message leaves the queue.

        Args:
            index: the connection of each message, all different.
            first, last: when its first and its last byte would leave, did nothing hold it up.
            silent: whether all earlier bytes of its connection are acknowledged by then.
        """
        by_first = silent & (self._shortest[index] + _VALID_NS <= first + load.rtt_ns)
        last = last.copy()
        due = by_first | (self._shortest[index] + _VALID_NS <= last + load.rtt_ns) | (first < self._until[index])
        for i in np.flatnonzero(due & (load.rtt_ns > 0)).tolist():
            connection, rtt_ns = int(index[i]), float(load.rtt_ns[i])
            sent = Sent(float(first[i]), float(last[i]), float(load.flow_bytes[i]))
            if by_first[i]:
                self._measure(connection, sent.begin_ns + rtt_ns, 1.0, sent)
            last[i] = self._held(connection, sent, rtt_ns)
        return last

    def _held(self, connection: int, sent: Sent, rtt_ns: float) -> float:
        """When the last byte of a message leaves. Measure the round trip as often as it is due."""
        last_ns = self._hold[connection].last_ns(sent, rtt_ns)
        while (begin := float(self._shortest[connection]) + _VALID_NS) <= last_ns + rtt_ns:
            drained = min(begin, last_ns) + rtt_ns
            self._hold[connection] = hold = _Hold(begin, drained, drained + max(_HOLD_NS, rtt_ns))
            self._until[connection] = hold.until_ns
            self._measure(connection, hold.until_ns, max(1.0, _HOLD_NS / rtt_ns), sent)
            last_ns = hold.last_ns(replace(sent, end_ns=last_ns), rtt_ns)
        return last_ns

    def _measure(self, connection: int, at_ns: float, seen: float, sent: Sent) -> None:
        """Draw when the shortest round trip is seen for the next ten seconds.

        Args:
            seen: number of round trips that were seen until `at_ns`.
        """
        random = self._random.setdefault(connection, Stream(key(self._seed, *self._name, "round trips", connection)))
        every_ns = max(_BURST_NS, SEGMENT_BYTES * (sent.end_ns - sent.begin_ns) / max(sent.nbytes, 1.0))
        shortest = at_ns
        while True:
            until_shorter = (seen * every_ns + shortest - at_ns) * (1 / random.next() - 1)
            if until_shorter > _VALID_NS:
                break
            shortest += until_shorter
        self._shortest[connection] = shortest


@dataclass(frozen=True, slots=True)
class _Hold:
    """One measurement: nothing is sent until `drained_ns`, then four segments a round trip until `until_ns`."""

    begin_ns: float = -math.inf
    drained_ns: float = -math.inf
    until_ns: float = -math.inf

    def last_ns(self, sent: Sent, rtt_ns: float) -> float:
        """When the last byte of a message leaves the queue that would have left it at `sent.end_ns`."""
        since = max(sent.begin_ns, self.begin_ns)
        if since >= min(self.until_ns, sent.end_ns):
            return sent.end_ns
        left_ns = sent.end_ns - since
        left = sent.nbytes * left_ns / (sent.end_ns - sent.begin_ns)
        resumed = max(sent.begin_ns, self.drained_ns)
        rounds = math.ceil((self.until_ns - resumed) / rtt_ns)
        if left <= rounds * _HELD_BYTES:
            return max(sent.end_ns, resumed + (math.ceil(left / _HELD_BYTES) - 1) * rtt_ns)
        return max(sent.end_ns, self.until_ns + left_ns * (1 - rounds * _HELD_BYTES / left))
