"""The check of a path's rate. The queue itself is part of the emulators' models (`relay.switch`, `netem.plan`)."""

from __future__ import annotations

from wanbench.harness.emulators.impairments.base import Impairment, Observation

_SHARE = (0.90, 1.01)
_TRAIN_MS = 50.0


class Rate(Impairment):
    """The rate of one flow through all queues of its path."""

    is_simulated = True

    def judge(self, observation: Observation) -> list[str]:
        row = observation.row
        return [] if row.rate_mbit is None else rate_reasons(row.measured_rate_mbit, row.rate_mbit, row.jitter_ms)


def rate_reasons(measured_mbit: float | None, expected_mbit: float, jitter_ms: float) -> list[str]:
    """Return why a rate is out of tolerance: 90 to 101 %, widened on both sides by the jitter of a burst."""
    if measured_mbit is None:
        return ["too few packets arrived to measure the rate"]
    uncertain = 2 * jitter_ms / _TRAIN_MS
    low, high = _SHARE[0] - uncertain, _SHARE[1] + uncertain
    if low * expected_mbit <= measured_mbit <= high * expected_mbit:
        return []
    return [
        f"rate {four_digits(measured_mbit)} Mbit/s, configured {four_digits(expected_mbit)} Mbit/s,"
        f" allowed {100 * low:.0f} to {100 * high:.0f} %"
    ]


def four_digits(mbit: float) -> str:
    """Round to four digits, without an exponent: 12500, 97.31."""
    return f"{float(f'{mbit:.4g}'):.15g}"
