"""Connections under BBR, version 1 as in Linux: a sender paced at a multiple of the rate that it has measured.

* It begins with 10 segments per round trip, and sends at 2.885 times the measured rate until the rate stops growing.
  Then it sends at that rate.
* A message that ends within a round trip shows a lower rate than the path has: its bytes arrive within its time of
  sending and a round trip. Such a sample never lowers the estimate, and does not end the start. So a connection that
  carries only small messages spreads each over up to half a round trip.
* A loss costs its round trip. It changes neither rate nor window.
* A later message that lasts longer than a round trip raises the rate by up to a quarter, if the path has more.
* Every ten seconds or more it measures the round trip, and sends almost nothing meanwhile (`virtual.round_trips`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wanbench.harness.testbeds.virtual.round_trips import RoundTrips
from wanbench.harness.testbeds.virtual.tcp import INITIAL_WINDOW, Connections, Floats, Ints, Load, Stall, Tcp

_STARTUP_GAIN = 2 / math.log(2)
_PROBE_GAIN = 1.25


class BbrConnections(Connections):
    """See the module."""

    def __init__(self, tcp: Tcp, count: int, *, paced: bool = True, seed: int = 0, name: Sequence[object] = ()) -> None:
        super().__init__(tcp, count, paced=paced, seed=seed, name=name)
        self._rate = np.zeros(count)  # measured, in bytes/ns; 0 before the first message
        self._filled = np.zeros(count, np.bool_)  # the start has ended
        # The messages of the last round trip: when the first began, and their bytes.
        self._begun, self._recent = np.zeros(count), np.zeros(count)
        self._round_trips = RoundTrips(count, seed, name)

    def stall(self, index: Ints, ready: Ints, load: Load, losses: Ints | None, tail_lost: Ints | None) -> Stall:
        """See `Connections.stall`."""
        load = self._at_pace(load)
        path = _rates(load)
        begin, wait_ns, held_ns = self._earlier.behind(index, ready)
        stall = np.rint(held_ns).astype(np.int64)
        since = begin - self._begun[index]
        before = np.where(since < load.rtt_ns, self._recent[index], 0.0)
        known = self._rate[index] * np.where(self._filled[index], 1.0, _STARTUP_GAIN)
        slow = (load.flow_bytes > 0) & (known < path) & (load.rtt_ns > 0)
        for i in np.flatnonzero(slow).tolist():
            recent = (float(before[i]), float(since[i])) if before[i] else (0.0, 0.0)
            nbytes, rtt_ns = float(load.flow_bytes[i]), float(load.rtt_ns[i])
            stall[i] += self._start(int(index[i]), nbytes, rtt_ns, float(path[i]), recent)
        again = np.zeros(len(index), np.int64) if losses is None else losses * load.rtt_ns
        if tail_lost is not None:
            again = again + np.where(tail_lost > 0, self.probe_ns(load), 0)
        drained = np.asarray(ready + wait_ns + load.drain_ns, np.float64)
        last = self._round_trips.last_ns(index, ready + wait_ns + held_ns, drained + stall, load)
        stall = np.rint(last - drained).astype(np.int64) + again
        self._earlier.add(index, ready, drained, stall, load.rtt_ns, load.flow_bytes, *[np.zeros(len(index))] * 2)
        self._begun[index] = np.where(before > 0, self._begun[index], begin)
        self._recent[index] = before + load.flow_bytes
        return Stall(again, np.rint(drained + stall).astype(np.int64))

    def _start(self, connection: int, nbytes: float, rtt_ns: float, path: float, recent: tuple[float, float]) -> int:
        """Send a message faster and faster, at most at the rate of the path. Return how much longer it takes.

        Args:
            path: its rate in bytes/ns.
            recent: bytes of the messages that began less than a round trip ago, and how long ago they did.
        """
        rate = float(self._rate[connection]) or INITIAL_WINDOW / rtt_ns
        left, took_ns = nbytes, 0.0
        while True:
            pace = min(rate * (1.0 if self._filled[connection] else _STARTUP_GAIN), path)
            if left <= pace * rtt_ns:
                took_ns += left / pace
                rate = max(rate, min((left + recent[0]) / (left / pace + recent[1] + rtt_ns), path))
                break
            took_ns, left, rate = took_ns + rtt_ns, left - pace * rtt_ns, max(rate, pace)
            if pace >= path or self._filled[connection]:
                if self._filled[connection]:
                    rate = max(rate, min(path, _PROBE_GAIN * pace))
                self._filled[connection] = True
                took_ns += left / pace
                break
        self._rate[connection] = rate
        return max(0, round(took_ns - nbytes / path))


def _rates(load: Load) -> Floats:
    """The share of each message in the narrowest queue, in bytes/ns."""
    rates = np.full(len(load.flow_bytes), np.inf)
    np.divide(load.flow_bytes, load.drain_ns, out=rates, where=load.drain_ns > 0)
    return rates
