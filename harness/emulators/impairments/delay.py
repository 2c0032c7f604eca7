"""The one-way delay. Every emulator adds it to every packet by its own means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from wanbench.harness.emulators.impairments.base import Impairment, Observation

if TYPE_CHECKING:
    from wanbench.harness.emulators.plan import Link


class Delay(Impairment):
    """A one-way delay in nanoseconds."""

    is_simulated = True

    def netem(self, link: Link) -> Mapping[str, int]:
        return {"delay_ns": link.delay_ns}

    def judge(self, observation: Observation) -> list[str]:
        row = observation.row
        if row.measured_one_way_ms is None or row.measured_jitter_ms is None:
            return [f"only {observation.samples} of the single packets arrived, too few to measure the delay"]
        # The median of few samples is itself uncertain: its standard error is 1.25 sigma / sqrt(n).
        allowed = max(observation.tolerance.absolute_ms, observation.tolerance.share * row.one_way_ms)
        allowed += 4 * row.jitter_ms / math.sqrt(observation.samples)
        if abs(row.measured_one_way_ms - row.one_way_ms) <= allowed:
            return []
        measured, configured = f"{row.measured_one_way_ms:.2f} ms", f"{row.one_way_ms:.2f} ms"
        return [f"one-way delay {measured}, configured {configured}, allowed +-{allowed:.2f} ms"]


def us(ns: int) -> str:
    """Return a time as tc writes it."""
    return f"{ns / 1000:.12g}us"
