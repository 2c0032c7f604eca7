"""The rate of a path. Its queue is part of the model (`relay.queues`, `netem.plan`); here is how it is judged."""

from __future__ import annotations

from wanbench.harness.emulators.impairments.base import Impairment, Seen

_SHARE = (0.90, 1.01)
_TRAIN_MS = 50.0


class Rate(Impairment):
    """Of one flow, through all queues on its way."""

    def judge(self, seen: Seen) -> list[str]:
        row = seen.row
        return [] if row.rate_mbit is None else rate_reasons(row.measured_rate_mbit, row.rate_mbit, row.jitter_ms)


def rate_reasons(measured_mbit: float | None, expected_mbit: float, jitter_ms: float) -> list[str]:
    """Why a rate is out of tolerance (90 to 101 %, and to both sides what jitter makes of a train), if it is."""
    if measured_mbit is None:
        return ["too few packets arrived to measure the rate"]
    uncertain = 2 * jitter_ms / _TRAIN_MS
    low, high = _SHARE[0] - uncertain, _SHARE[1] + uncertain
    if low * expected_mbit <= measured_mbit <= high * expected_mbit:
        return []
    return [
        f"rate {measured_mbit:.4g} Mbit/s, configured {expected_mbit:.4g} Mbit/s,"
        f" allowed {100 * low:.0f} to {100 * high:.0f} %"
    ]
