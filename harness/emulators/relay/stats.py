"""The relay's counters: lateness, lag and drops, at a cost of nanoseconds per packet."""

from __future__ import annotations

import time
from itertools import accumulate
from typing import Any

from wanbench.harness.emulators.relay.segment import Segment
from wanbench.harness.emulators.relay.switch import Switch
from wanbench.workloads.process.heartbeat import PAUSED, Losses, Lost

_BIN_NS = 20_000
_BINS = 1000  # up to 20 ms; beyond that only the maximum is known
_OVERDUE_NS = 1e6


class Histogram:
    """Durations in bins of 20 us, and their exact maximum. Negative durations count as zero."""

    __slots__ = ("_bins", "max_ns")

    def __init__(self) -> None:
        self._bins = [0] * (_BINS + 1)
        self.max_ns = 0.0

    def add(self, ns: float, times: int = 1) -> None:
        """Count a duration."""
        if ns > self.max_ns:
            self.max_ns = ns
        index = int(ns) // _BIN_NS
        if index < 0:
            index = 0
        elif index > _BINS:
            index = _BINS
        self._bins[index] += times

    def quantile_ms(self, share: float) -> float | None:
        """The upper edge in ms of the bin at this quantile, or None if there are no durations."""
        total = sum(self._bins)
        if not total:
            return None
        index = next(i for i, seen in enumerate(accumulate(self._bins)) if seen >= share * total)
        if index == _BINS:
            return self.max_ns / 1e6
        return min((index + 1) * _BIN_NS, self.max_ns) / 1e6


class Meter:
    """Counters of the loop. The switch keeps its own."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self.reset()

    def reset(self) -> None:
        """Begin a new period."""
        self._since, self._cpu = time.monotonic(), time.process_time()
        self._lateness, self._lag, self._pauses = Histogram(), Histogram(), Losses()
        self._used_ns = time.process_time_ns()
        self._overdue_ns = self._overdue_until = 0.0
        self._segments = self._packets = self._bytes = 0
        self.refused = self.gone = 0
        self._switch.reset_counters()

    def delivered(self, segment: Segment, now: float) -> None:
        """Count a segment that was written to its worker."""
        due = segment.last
        self._segments += 1
        self._packets += segment.packets
        self._bytes += segment.nbytes
        self._lateness.add(now - due, segment.packets)
        if now - due > _OVERDUE_NS:
            self._overdue(due, now)

    def turn(self, began: float, ended: float) -> None:
        """Count one turn of the loop, during which nothing was read."""
        self._lag.add(ended - began)
        used_before, self._used_ns = self._used_ns, time.process_time_ns()
        if ended - began > _OVERDUE_NS:
            self._overdue(began, ended)
            self._paused(began + self._used_ns - used_before, ended)

    def slept(self, wake: float, woken: float) -> None:
        """Count a wake-up that was due at `wake`. The relay got no processor until `woken`."""
        if woken - wake > _OVERDUE_NS:
            self._paused(wake, woken)

    def overslept(self, wake: float, woken: float) -> None:
        """Count a wake-up that was due at `wake` and found packets, which can have waited since then."""
        if woken - wake > _OVERDUE_NS:
            self._lag.add(woken - wake)
            self._overdue(wake, woken)

    def _paused(self, begin: float, end: float) -> None:
        self._pauses.add(Lost(PAUSED, round(begin), round(end)))

    def _overdue(self, begin: float, end: float) -> None:
        # Packets leave in the order of their due times, so the end is enough to form the union of periods.
        self._overdue_ns += max(0.0, end - max(begin, self._overdue_until))
        self._overdue_until = max(end, self._overdue_until)

    def report(self, *, reset: bool) -> dict[str, Any]:
        """Return the fields of `base.EmulatorStats`."""
        switch = self._switch
        seconds, cpu_s = time.monotonic() - self._since, time.process_time() - self._cpu
        answer = {
            "emulator": "relay",
            "seconds": seconds,
            "sent_bytes": sum(port.sent for port in switch.ports.values()),
            "packets": self._packets,
            "segments": self._segments,
            "offload": all(port.segments for port in switch.ports.values()) if switch.ports else None,
            "bytes": self._bytes,
            "drops": switch.drops() | {"refused": self.refused, "gone": self.gone},
            "not_ipv4": switch.not_ipv4,
            "paths": switch.path_counters(),
            "sites": switch.site_counters(),
            "lateness_p50_ms": self._lateness.quantile_ms(0.5),
            "lateness_p99_ms": self._lateness.quantile_ms(0.99),
            "lateness_max_ms": self._lateness.max_ns / 1e6 if self._packets else None,
            "read_lag_p99_ms": self._lag.quantile_ms(0.99),
            "read_lag_max_ms": self._lag.max_ns / 1e6,
            "overdue_pct": self._overdue_ns / 1e9 / seconds * 100,
            "pauses": [(lost.begin_ns, lost.end_ns) for lost in self._pauses.all()],
            "cpu_s": cpu_s,
            "cpu_us_per_packet": cpu_s / self._packets * 1e6 if self._packets else None,
        }
        if reset:
            self.reset()
        return answer
