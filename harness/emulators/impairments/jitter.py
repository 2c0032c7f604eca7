"""Jitter: each packet's deviation is drawn from a normal distribution. The delay is never below zero."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING

from wanbench.harness.emulators.impairments.base import Impairment, Observation
from wanbench.harness.emulators.impairments.delay import us

if TYPE_CHECKING:
    from wanbench.harness.emulators.plan import Link

_SHARE = 0.5
_NOISE_MS = 0.3  # added by the wake-up of a process
_SAMPLES = 30
_NORMAL = NormalDist()
_SMALLEST, _LARGEST = 1e-300, 1 - 2**-53  # inv_cdf needs a number between 0 and 1


class Jitter(Impairment):
    """A standard deviation in nanoseconds."""

    is_random = is_simulated = True

    def delayed(self, value: float, random: Random, delay_ns: float, packets: int, span_ns: float) -> float:
        # Packets keep their order, so the last one waits for the slowest of those sent shortly before it.
        close = min(packets, 0.5 * packets * value / span_ns) if span_ns else packets
        if close <= 1:
            return max(0.0, random.gauss(delay_ns, value))
        slowest = max(random.random(), _SMALLEST) ** (1 / close)
        return max(0.0, delay_ns + value * _NORMAL.inv_cdf(min(slowest, _LARGEST)))

    def netem(self, link: Link) -> Mapping[str, int]:
        return {"jitter_ns": link.jitter_ns}

    def tc(self, link: Link) -> str:
        return f" {us(link.jitter_ns)} distribution normal"

    def judge(self, observation: Observation) -> list[str]:
        row, measured = observation.row, observation.row.measured_jitter_ms
        if measured is None or not row.jitter_ms or observation.samples < _SAMPLES:
            return []
        if abs(measured - row.jitter_ms) <= _SHARE * row.jitter_ms + _NOISE_MS:
            return []
        return [f"jitter {measured:.2f} ms, configured {row.jitter_ms:.2f} ms"]
