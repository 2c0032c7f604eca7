"""Where the step-time law does not hold for a network, and why.

Each reason comes with two networks for which the law does hold, one milder and one worse than the cell's. If the law's
step times on the two are close, the reason does not matter: the messages are hidden, or short, or losses are rare.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wanbench.harness.emulators.plan import buffer_that_holds
from wanbench.harness.plan.conditions import unlike
from wanbench.harness.plan.law import GLOO_SEGMENT_BYTES, PredictInputs, predict, round_trips, sent_bytes
from wanbench.netprofiles.path import SamePaths
from wanbench.netprofiles.profile import Profile

_CLOSE = 1.1
_SEGMENT_BYTES = 1448  # TCP payload of a packet
_INITIAL_WINDOW = 10 * _SEGMENT_BYTES
_TIMEOUT_S = 0.2  # in addition to a round trip
_MESSAGES_IN_A_REP = 60
# Simulated times of gloo on paths that differ are between these multiples of the law's.
_MILD, _WORSE = 0.5, 1.2


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason to distrust the law, and the inputs between which the truth lies."""

    reason: str
    mild: PredictInputs
    worse: PredictInputs


def why_unknown(
    inputs: PredictInputs, profile: Profile, ranks: Sequence[str], *, slow_start_after_idle: bool
) -> str | None:
    """Why the law does not predict a step on this network within about 10 %; None if it does.

    Args:
        inputs: of the law. profile: sites and directed paths. ranks: the site of each.
        slow_start_after_idle: the setting of TCP.
    """
    if inputs.workers == 1 or not inputs.message_bytes:
        return None
    return next(
        (
            doubt.reason
            for doubt in _doubts(inputs, profile, ranks, slow_start_after_idle=slow_start_after_idle)
            if predict(doubt.worse).step_time_s > _CLOSE * predict(doubt.mild).step_time_s
        ),
        None,
    )


def _doubts(
    inputs: PredictInputs, profile: Profile, ranks: Sequence[str], *, slow_start_after_idle: bool
) -> Iterator[Doubt]:
    loss = _worst_loss(profile, ranks)
    if loss:
        yield Doubt("packet loss", inputs, _with_losses(inputs, loss))
    if inputs.rtt_s and _flying_bytes(inputs) > (window := _largest_window(inputs)):
        yield Doubt("TCP's window", inputs, _capped(inputs, window))
    if slow_start_after_idle:
        yield Doubt("TCP's slow start after a pause", inputs, _from_slow_start(inputs))
    if inputs.step_times_s and inputs.collective not in ("direct", "hierarchical"):
        yield Doubt("machines differ", _times(inputs, _MILD), inputs)  # what the others sent has already arrived
    apart = unlike(profile, ranks, inputs.collective)
    if inputs.collective in ("direct", "hierarchical"):
        # The inputs join the longest round trip and the lowest rate. In truth a step takes at least as long as by one.
        if apart is not None:
            shorter, faster = replace(inputs, rtt_s=inputs.rtt_s * apart.rtts), _faster(inputs, apart.rates)
            yield Doubt("paths differ", max(shorter, faster, key=lambda mild: predict(mild).step_time_s), inputs)
    elif inputs.collective == "gloo" and apart is not None:  # a ring's hops are added up
        yield Doubt("paths differ", _times(inputs, _MILD), _times(inputs, _WORSE))


def _times(inputs: PredictInputs, factor: float) -> PredictInputs:
    """With messages that take `factor` times as long."""
    return replace(_faster(inputs, 1 / factor), rtt_s=inputs.rtt_s * factor)


def _faster(inputs: PredictInputs, factor: float) -> PredictInputs:
    rate = inputs.rate_bytes_per_s
    return inputs if rate is None else replace(inputs, rate_bytes_per_s=rate * factor)


def _largest_window(inputs: PredictInputs) -> float:
    """Half of the socket buffers that workers pin on a path of this rate and round trip."""
    return buffer_that_holds((inputs.rate_bytes_per_s or 0.0) * inputs.rtt_s) / 2


def _piece_bytes(inputs: PredictInputs) -> float:
    """The largest part of a vector, or of a bucket of it, that a connection carries at a time."""
    nbytes = max((size for size, _ in inputs.buckets or ()), default=inputs.message_bytes)
    if inputs.collective == "gloo":
        return min(nbytes / 2 / inputs.workers, GLOO_SEGMENT_BYTES)
    return nbytes if nbytes <= inputs.one_shot_bytes else nbytes / inputs.workers


def _flying_bytes(inputs: PredictInputs) -> float:
    """The bytes of the messages that a connection has in flight."""
    return _piece_bytes(inputs) * (inputs.delay // inputs.period + 1)


def _connections(inputs: PredictInputs) -> int:
    """The number of connections to which a worker sends at a time."""
    return inputs.workers - 1 if inputs.collective in ("direct", "hierarchical") else 1


def _capped(inputs: PredictInputs, window_bytes: float) -> PredictInputs:
    """With connections that send one window in a round trip."""
    limit = _connections(inputs) * window_bytes / inputs.rtt_s
    rate = inputs.rate_bytes_per_s
    return replace(inputs, rate_bytes_per_s=limit if rate is None else min(rate, limit))


def _from_slow_start(inputs: PredictInputs) -> PredictInputs:
    """With windows that double from what a pause between messages has left."""
    law = predict(inputs)
    pause_s = max(0.0, law.step_time_s * inputs.period * inputs.channels - law.wire_s)  # each channel has its own
    left = 2 * _piece_bytes(inputs) / 2 ** min(60, pause_s // (inputs.rtt_s + _TIMEOUT_S))
    short = max(0.0, math.log2(_piece_bytes(inputs) / max(left, _INITIAL_WINDOW)))
    return replace(inputs, rtt_s=inputs.rtt_s * (1 + math.ceil(short)))


def _with_losses(inputs: PredictInputs, loss: float) -> PredictInputs:
    """With a retransmission in every round that loses a packet, and the window of Mathis et al. (1997)."""
    pieces = max(1.0, _piece_bytes(inputs) / _SEGMENT_BYTES)
    rounds = 2 * round_trips(inputs.collective, inputs.workers, inputs.message_bytes)
    sent = max(_connections(inputs), sent_bytes(inputs, inputs.message_bytes) / _SEGMENT_BYTES / rounds)
    notes = 1 if inputs.collective == "gloo" else 0  # the receiver's, in packets of their own
    some_lost = 1 - (1 - loss) ** (inputs.workers * (sent + notes))
    each_s = inputs.rtt_s + (_TIMEOUT_S if pieces <= 1 or notes else 0.0)
    slower = replace(inputs, rtt_s=inputs.rtt_s + 2 * (some_lost + loss * pieces) * each_s)
    if not inputs.rtt_s or loss * pieces * _MESSAGES_IN_A_REP < 0.5:
        return slower
    return _capped(slower, math.sqrt(1.5 / loss) * _SEGMENT_BYTES * slower.rtt_s / inputs.rtt_s)


def _worst_loss(profile: Profile, ranks: Sequence[str]) -> float:
    """The largest loss of a path between two workers."""
    sites = list(dict.fromkeys(ranks))
    if isinstance(profile.paths, SamePaths):
        sites = sites[:2]
    return max((profile.path(a, b).loss.value for a in sites for b in sites if a != b), default=0.0)
