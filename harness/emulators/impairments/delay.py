"""The one-way delay. Emulators add it themselves, to every packet."""

from __future__ import annotations

import math

from wanbench.harness.emulators.impairments.base import Impairment, Seen


class Delay(Impairment):
    """In nanoseconds."""

    def judge(self, seen: Seen) -> list[str]:
        row = seen.row
        if row.measured_one_way_ms is None or row.measured_jitter_ms is None:
            return [f"{seen.samples} of the single packets arrived, too few to measure the delay"]
        # The median of few samples is itself uncertain: its standard error is 1.25 sigma / sqrt(n).
        allowed = max(seen.tolerance.absolute_ms, seen.tolerance.share * row.one_way_ms)
        allowed += 4 * row.jitter_ms / math.sqrt(seen.samples)
        if abs(row.measured_one_way_ms - row.one_way_ms) <= allowed:
            return []
        measured, configured = f"{row.measured_one_way_ms:.2f} ms", f"{row.one_way_ms:.2f} ms"
        return [f"one-way delay {measured}, configured {configured}, allowed +-{allowed:.2f} ms"]


def us(ns: int) -> str:
    """As tc writes a time."""
    return f"{ns / 1000:.12g}us"
