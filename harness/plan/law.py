"""The step-time law: predicts how long a training step takes on a network.

Per synchronisation period of p steps, with delay D, compute time Tc and one all-reduce of time t (bandwidth
part t_wire)::

    T_step = P / p
    P = max(t_wire,  t / (2k),  p Tc + max(0, t - D Tc) / (floor(D/p) + 1))

A message is issued before its step's wait, so floor(D/p)+1 waits share one shortfall: each wait also
postpones the deadlines behind it. The middle term applies to gloo only: it runs two operations on each of its k
channels, and further operations wait in a queue. (Measured at N = 4, 200 ms, k = 1: sparse-p20 0.367 s against 0.366 by
the law, dts-d20-p4 0.302 s against 0.300.)

Workers that differ step at the pace of the slowest, because every average needs all of them: Tc is its time.

Stragglers: a synchronous step takes as long as that of the slowest worker, E[max] (`expected_maximum`). With p > 1 or a
delay, a short simulation without a network tells how much of this remains (`mean_step_s`), unless it is too little to
matter: no formula is known for workers whose staleness is bounded. A worker's step begins when its previous one has
ended and the average that it needs has arrived, t after the last worker issued it, unless it queues for the wire or a
channel. So a delay lets a slow worker catch up for D steps, and no longer. Durations are drawn like those of emulated
compute (`workloads.compute.emulated`): lognormal, each tenth of the distribution once in ten steps. The draws are the
same in every call, so differences between cells are not random.

Where the buffers of hosts limit connections to w bytes in flight together, S bytes take S RTT / w of the wire; behind a
pause w of them leave at once, at the rate r of the link: S RTT / w - (RTT - w / r).

The law is an alpha-beta model of the steady state. It ignores jitter, loss, how TCP's window opens and the host's CPU.
Where they can matter, cells have no prediction (`conditions.why_unknown`).

Pure arithmetic: standard library only, so that planning and the command line start fast.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from random import Random
from typing import Any, Literal, get_args

from wanbench.workloads.comm.blocks import chunk_count
from wanbench.workloads.compute.emulated import STRATA

Collective = Literal["gloo", "direct", "ring", "hierarchical"]
COLLECTIVES: tuple[Collective, ...] = ("direct", "gloo", "hierarchical", "ring")
Bound = Literal["compute", "latency", "bandwidth", "channels"]

GLOO_SEGMENT_BYTES = 1 << 20
GLOO_OPERATIONS_PER_CHANNEL = 2
_ANY_BYTES = 1 << 40
# Where no rate is set, the host sets one: it computes and copies N/2 times as much.
_UNLIMITED_ONE_SHOT_BYTES = 256 << 10
# Where stragglers add less than this share of a step, formulas are within about 1 % of the simulation.
_STRAGGLERS_MATTER = 0.02
# About 30 ms for the first cell with its workers and cv, 8 ms for another, and 0.6 s for 4096 workers. Other draws
# change a step by this much (standard deviation): 0.3 % at cv 0.3 and 1.5 % at cv 0.8; with a thousand workers 2 % and
# 6 %.
_DRAWS = 20_000
_LEAST_PIPELINES = 3  # of D + p steps
_LEAST_STEPS = 100


class PredictError(ValueError):
    """The step-time law is not defined for these inputs."""


@dataclass(frozen=True, slots=True)
class PredictInputs:
    """Everything the law reads, as plain numbers.

    Attributes:
        workers: N.
        step_time_s: Tc, mean compute time of one step of one worker; of the slowest, if workers differ.
        step_times_s: that of each worker, by rank, if they differ; else ().
        rtt_s: effective round-trip time of the collective (`harness.plan.conditions`).
        rate_bytes_per_s: effective rate per worker, without packet headers; None is unlimited.
        message_bytes: bytes of one all-reduce; 0 if nothing is sent.
        messages: all-reduces in one synchronisation, issued back to back: 2 for dts with momentum and p > 1.
        delay: D in steps. period: p in steps.
        collective: how an all-reduce travels. channels: k, for gloo.
        buckets: (bytes, seconds from the step's start until they are ready), in order of readiness; only for
            synchronous SGD.
        step_cv: coefficient of variation of the compute time, drawn for each step and worker.
        one_shot_bytes: the largest vector that `direct` sends whole to every worker (`one_shot_bytes`).
        chunked: whether pieces travel in chunks, so that the halves or hops of an all-reduce overlap. Runs that were
            recorded before `direct` and `ring` did so lack it.
        windows_bytes: payload that the connections of a worker have in flight together at most, where that is less than
            fills its link; None elsewhere, and for gloo.

    Raises:
        PredictError: a value is outside its domain.
    """

    workers: int
    step_time_s: float
    rtt_s: float
    rate_bytes_per_s: float | None
    message_bytes: int
    messages: int = 1
    delay: int = 0
    period: int = 1
    collective: Collective = "direct"
    channels: int = 1
    buckets: tuple[tuple[int, float], ...] | None = None
    step_cv: float = 0.0
    one_shot_bytes: int = 0
    chunked: bool = False
    step_times_s: tuple[float, ...] = ()
    windows_bytes: float | None = None

    @property
    def base_step_time_s(self) -> float:
        """T(1), the unit of scalability: the harmonic mean of the workers' step times."""
        return statistics.harmonic_mean(self.step_times_s) if self.step_times_s else self.step_time_s

    @property
    def lead_s(self) -> float:
        """Half of what the second slowest worker needs less than the slowest from one synchronisation to the next.

        So much earlier than in a set of equal workers do messages reach the slowest, if all send to it directly.
        """
        *_, second, slowest = sorted(self.step_times_s) or (0.0, 0.0)
        return self.period * (slowest - second) / 2 if self.collective in ("direct", "hierarchical") else 0.0

    @property
    def slots(self) -> int | None:
        """The number of all-reduces that run at a time; None is any number."""
        return GLOO_OPERATIONS_PER_CHANNEL * self.channels if self.collective == "gloo" else None

    def slowest(self, cv: float) -> float:
        """E[max] of the workers' step times, if their coefficient of variation is `cv`, as a multiple of Tc."""
        return expected_maximum(self.workers, cv, tuple(time / self.step_time_s for time in self.step_times_s))

    def __post_init__(self) -> None:
        minimums = {"workers": 1, "delay": 0, "period": 1, "channels": 1, "message_bytes": 0, "messages": 1}
        for name, minimum in minimums.items():
            value = getattr(self, name)
            if value < minimum:
                raise PredictError(f"{name}: expected at least {minimum}, got {value}")
        for name in ("step_time_s", "rtt_s", "step_cv"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise PredictError(f"{name}: expected a finite number of at least 0, got {value}")
        if self.rate_bytes_per_s is not None and not self.rate_bytes_per_s > 0:
            raise PredictError(f"rate_bytes_per_s: expected more than 0 or None, got {self.rate_bytes_per_s}")
        if self.collective not in get_args(Collective):
            raise PredictError(
                f"collective: expected one of {', '.join(map(repr, get_args(Collective)))}, got {self.collective!r}"
            )
        if self.step_times_s and (len(self.step_times_s) != self.workers or max(self.step_times_s) != self.step_time_s):
            raise PredictError("step_times_s: expected one for each worker, and the largest as step_time_s")
        if self.buckets is not None and (self.delay, self.period) != (0, 1):
            raise PredictError(
                f"buckets: only a synchronous step (delay 0, period 1) is cut into buckets, "
                f"got delay {self.delay}, period {self.period}"
            )

    def to_json(self) -> dict[str, object]:
        """The fields as a JSON object."""
        fields = asdict(self)
        if self.buckets is not None:
            fields["buckets"] = [list(bucket) for bucket in self.buckets]
        given = {"step_times_s": list(fields.pop("step_times_s")), "windows_bytes": fields.pop("windows_bytes")}
        return fields | {name: value for name, value in given.items() if value}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> PredictInputs:
        """The inverse of `to_json`. Raises: PredictError for an unknown field or another type."""
        unknown = sorted(set(fields) - set(cls.__dataclass_fields__))
        if unknown:
            raise PredictError(f"law_inputs: unknown field {unknown[0]!r}")
        buckets = fields.get("buckets")
        try:
            pairs = None if buckets is None else tuple((int(size), float(ready_s)) for size, ready_s in buckets)
        except (TypeError, ValueError, OverflowError):
            raise PredictError(
                f"law_inputs: buckets: expected pairs of bytes and seconds, got {buckets!r:.80}"
            ) from None
        return cls(**{**fields, "buckets": pairs, "step_times_s": tuple(fields.get("step_times_s", ()))})


@dataclass(frozen=True, slots=True)
class Prediction:
    """The law's prediction.

    Attributes:
        step_time_s: T_step of the slowest worker, steady state.
        all_reduce_s: t, for all messages of one synchronisation.
        wire_s: t_wire, the bandwidth part of t.
        bound: the resource that limits the step time; "compute" means that communication is hidden.
    """

    step_time_s: float
    all_reduce_s: float
    wire_s: float
    bound: Bound


def predict(inputs: PredictInputs) -> Prediction:
    """Apply the step-time law to `inputs`."""
    latency_s, wire_s = all_reduce_time(inputs, inputs.message_bytes)
    wire_s *= inputs.messages
    if inputs.buckets is not None:
        step_time_s, bound = _bucketed_step(inputs, inputs.buckets)
    else:
        step_time_s, bound = _period_law(inputs, latency_s, wire_s)
    return Prediction(step_time_s, latency_s + wire_s, wire_s, bound)


def all_reduce_time(inputs: PredictInputs, nbytes: int) -> tuple[float, float]:
    """Return (latency part, bandwidth part) in seconds of one all-reduce of `nbytes`; their sum is t.

    The bandwidth part T is 2 (N-1)/N M / rate for every collective: each worker sends and receives N - 1 of the N
    pieces of its vector, twice. The latency part is `round_trips` RTT. The chunks of an all-reduce that
    has the links for itself hide part of its latency: t = max(T + RTT/2, T/2 + RTT), or see `ring_latency_s`. With a
    delay, they share the links with the chunks of the next ones, and t = T + RTT. One-shot, t = (N-1) M / rate + RTT/2.

    If workers differ, the messages to the slowest have left while it computed. Of a cycle slowest, next, slowest, each
    half takes p (T1 + T2)/2 + t, so the slowest waits `lead_s` = p (T1 - T2)/2 less, down to what its own pieces need:
    T/2 + RTT for their way out and back; nothing if one-shot.
    """
    n, rtt_s = inputs.workers, inputs.rtt_s
    if n == 1 or nbytes == 0:
        return 0.0, 0.0
    wire_s, alone_s = _wire_s(inputs, nbytes)
    latency_s = round_trips(inputs.collective, n, nbytes) * rtt_s
    if nbytes <= inputs.one_shot_bytes:
        latency_s = max(rtt_s / 2 - inputs.lead_s, -alone_s)
    elif inputs.chunked and inputs.collective == "ring" and not inputs.delay:
        latency_s = ring_latency_s(n, nbytes, rtt_s, alone_s)
    elif inputs.chunked:
        overlapped_s = 0.0 if inputs.delay else rtt_s / 2
        latency_s = max(latency_s - alone_s / 2, latency_s - overlapped_s - inputs.lead_s)
    return latency_s + alone_s - wire_s, wire_s


def _wire_s(inputs: PredictInputs, nbytes: int) -> tuple[float, float]:
    """The bandwidth part of an all-reduce of `nbytes` in seconds, behind others and behind a pause."""
    sent, rate = sent_bytes(inputs, nbytes), inputs.rate_bytes_per_s or math.inf
    if inputs.windows_bytes is None:
        return sent / rate, sent / rate
    windows_s = sent * inputs.rtt_s / inputs.windows_bytes
    return max(sent / rate, windows_s), max(sent / rate, windows_s - inputs.rtt_s + inputs.windows_bytes / rate)


def ring_latency_s(workers: int, nbytes: int, rtt_s: float, wire_s: float) -> float:
    """The latency part of a ring that sends chunks on while later ones arrive, in seconds.

    A link that is always full ends after T, and its last byte travels one hop, RTT/2. Otherwise the first chunk pays
    all hops, and the rest of its piece follows: t = max(T + RTT/2, H RTT/2 + T/H + (H-1)/C T/H), with C chunks of a
    piece and H = 2(N-1) hops.
    """
    hops, chunks = 2 * (workers - 1), chunk_count(nbytes // workers)
    return max(rtt_s / 2, hops * rtt_s / 2 - wire_s * (1 - 1 / hops) * (1 - 1 / chunks))


def sent_bytes(inputs: PredictInputs, nbytes: int) -> float:
    """The payload that each worker sends in one all-reduce of `nbytes`."""
    n = inputs.workers
    return (n - 1) * nbytes * (1 if nbytes <= inputs.one_shot_bytes else 2 / n)


def one_shot_bytes(inputs: PredictInputs) -> int:
    """The largest vector that `direct` should send whole to every worker; 0 if none.

    One-shot saves half a round trip and sends N/2 times the bytes, so it is faster below RTT/2 rate N / (N-1)^2, where
    windows may limit the rate. It is not used where its bytes make the step longer, as they can behind other messages.
    """
    if inputs.workers == 1 or inputs.collective != "direct" or not inputs.rtt_s:
        return 0
    rate = inputs.rate_bytes_per_s
    if inputs.windows_bytes is not None:
        rate = min(rate or math.inf, inputs.windows_bytes / inputs.rtt_s)
    limit = one_shot_limit(inputs.workers, inputs.rtt_s, rate)
    whole, pieces = (predict(replace(inputs, one_shot_bytes=nbytes)).step_time_s for nbytes in (limit, 0))
    return limit if whole < pieces else 0


def one_shot_limit(workers: int, rtt_s: float, rate_bytes_per_s: float | None) -> int:
    """The largest vector for which one-shot is faster, if nothing else is on the links."""
    if workers == 2:
        return _ANY_BYTES  # the bytes are the same
    if rate_bytes_per_s is None:
        return _UNLIMITED_ONE_SHOT_BYTES
    return int(rtt_s / 2 * rate_bytes_per_s * workers / (workers - 1) ** 2)


def round_trips(collective: Collective, workers: int, nbytes: int) -> int:
    """The number of round trips that one all-reduce takes, one after another.

    gloo: R = S - S/N; with t = R (RTT + 2 min(1 MiB, M/S) / rate) and S >= M/MiB, the minimum is M/S. direct,
    hierarchical: at most one round trip, at any N. ring: 2(N-1) one-way hops.
    """
    if collective == "gloo":
        return gloo_rounds(workers, nbytes)
    return workers - 1 if collective == "ring" else 1


def gloo_rounds(workers: int, nbytes: int) -> int:
    """R = S - S/N, the round trips of gloo's ring. S segments of at most 1 MiB: at least 2N, a multiple of N.

    Each hop waits until the receiver reports that it is ready, so it costs a round trip and not one way
    (gloo/allreduce.cc).
    """
    segments = round_up(max(math.ceil(nbytes / GLOO_SEGMENT_BYTES), 2 * workers), workers)
    return segments - segments // workers


def _period_law(inputs: PredictInputs, latency_s: float, wire_s: float) -> tuple[float, Bound]:
    t = latency_s + wire_s
    p, d = inputs.period, inputs.delay
    compute_s = p * inputs.step_time_s
    exposed_s = max(0.0, t - d * inputs.step_time_s) / (d // p + 1)
    longest = inputs.slowest(inputs.step_cv / math.sqrt(p)) if inputs.message_bytes else 1.0
    # With a delay, the formula lets every worker catch up.
    slowest = longest if d == 0 else 1.0
    terms: list[tuple[float, Bound]] = [
        (compute_s * slowest + exposed_s, _exposed_bound(exposed_s, latency_s, wire_s)),
        (wire_s, "bandwidth"),
    ]
    if inputs.slots is not None:
        terms.append((inputs.messages * (latency_s + wire_s / inputs.messages) / inputs.slots, "channels"))
    # max() keeps the first of equal terms, so a tie with compute reads as hidden communication.
    period_s, bound = max(terms, key=lambda term: term[0])
    added_s = (longest - 1) * compute_s / (d // p + 1)
    if (d, p) == (0, 1) or added_s < _STRAGGLERS_MATTER * period_s:
        return period_s / p, bound
    # A long pipeline hides a full wire for longer than the simulation lasts.
    simulated_s = mean_step_s(inputs, latency_s, wire_s / inputs.messages, inputs.slots)
    return max(simulated_s, *(term_s / p for term_s, _ in terms[1:])), bound


def _exposed_bound(exposed_s: float, latency_s: float, wire_s: float) -> Bound:
    if exposed_s <= 0:
        return "compute"
    return "bandwidth" if wire_s > latency_s else "latency"


def _bucketed_step(inputs: PredictInputs, schedule: Sequence[tuple[int, float]]) -> tuple[float, Bound]:
    """Synchronous SGD in buckets: T = max(Tc, end of the last all-reduce).

    If no bucket waits in a queue, this is Tc + t(last bucket).
    """
    slowest = inputs.slowest(inputs.step_cv)
    compute_s = inputs.step_time_s * slowest
    buckets = [(nbytes, ready_s * slowest) for nbytes, ready_s in schedule]
    unlimited = _last_completion(inputs, buckets, None)[0]
    completion, latency_s, wire_s = _last_completion(inputs, buckets, inputs.slots)
    if completion <= compute_s:
        return compute_s, "compute"
    if completion - unlimited > (completion - compute_s) / 2:
        return completion, "channels"
    return completion, _exposed_bound(completion - compute_s, latency_s, wire_s)


def _last_completion(
    inputs: PredictInputs, buckets: Sequence[tuple[int, float]], slots: int | None
) -> tuple[float, float, float]:
    """Return the end of the last all-reduce, its latency, and its time waiting for and on the wire."""
    link, last = Link(slots), (0.0, 0.0, 0.0)
    for nbytes, ready_s in buckets:
        latency_s, wire_s = all_reduce_time(inputs, nbytes)
        end_s, wire_s = link.send(ready_s, latency_s, wire_s)
        last = max(last, (end_s, latency_s, wire_s))
    return last


def window_steps(delay: int, period: int, at_least: int = 20) -> int:
    """The number of measured steps of a rep: at least max(`at_least`, 20, 3 (D + p)), in whole stall cycles.

    A worker stalls once per floor(D/p)+1 messages, so a window that is not a multiple of that cycle (and of p) is
    biased.
    """
    return round_up(max(at_least, 20, 3 * (delay + period)), period * (delay // period + 1))


def fill_steps(delay: int, period: int) -> int:
    """The number of steps before the window, a multiple of p: until the first average arrives and TCP is warm."""
    return round_up(max(delay + period, 3), period)


def rep_duration_s(inputs: PredictInputs, window: int) -> float:
    """The predicted seconds of one rep: fill the pipeline, run the window, drain the pipeline."""
    prediction = predict(inputs)
    return (fill_steps(inputs.delay, inputs.period) + window) * prediction.step_time_s + prediction.all_reduce_s


# ---------------------------------------------------------------- workers that vary


@lru_cache(maxsize=1024)
def expected_maximum(workers: int, cv: float, means: tuple[float, ...] = ()) -> float:
    """E[max] of `workers` independent lognormal step times with coefficient of variation `cv`.

    Stragglers lengthen a synchronous step by this factor. With X = exp(s z - s^2/2), s^2 = ln(1 + cv^2), it is the
    integral over z of X(z) dF(z), computed with Simpson's rule; F is the product of Phi(z - ln(m) / s) over the means
    m, which is Phi(z)^N if all are 1. A sum of p steps has cv / sqrt(p) and is also nearly lognormal.

    `means`: by worker, the largest is 1; () if all are 1.
    """
    if workers == 1 or cv == 0:
        return 1.0
    sigma = math.sqrt(math.log1p(cv * cv))
    alike = {math.log(mean) / sigma: count for mean, count in Counter(means or {1.0: workers}).items()}
    intervals = 800
    low, high = -9.0, 9.0 + sigma
    h = (high - low) / intervals
    total = 0.0
    for i in range(intervals + 1):
        z = low + i * h
        below, rise = 1.0, 0.0  # F, and its derivative over F
        for shift, count in alike.items():
            density = math.exp(-((z - shift) ** 2) / 2) / math.sqrt(2 * math.pi)
            phi = 0.5 * math.erfc((shift - z) / math.sqrt(2))
            below *= phi**count
            rise += count * density / phi
        value = math.exp(sigma * z - sigma * sigma / 2) * below * rise
        total += value * (1 if i in (0, intervals) else 4 if i % 2 else 2)
    return total * h / 3


@lru_cache(maxsize=4096)
def mean_step_s(inputs: PredictInputs, latency_s: float, wire_s: float, slots: int | None) -> float:
    """The mean time of a step of the slowest worker, in seconds, in the steady state.

    Args:
        latency_s, wire_s: of one all-reduce. slots: as in `Link`.
    """
    link, times_s = Link(slots), inputs.step_times_s or (inputs.step_time_s,) * inputs.workers
    pipeline, cycle = inputs.delay + inputs.period, inputs.period * (inputs.delay // inputs.period + 1)
    fill = round_up(max(pipeline, STRATA), cycle)
    steps = round_up(max(_DRAWS // inputs.workers, _LEAST_PIPELINES * pipeline, _LEAST_STEPS), cycle)
    draws = _draws(inputs.workers, inputs.step_cv, fill + steps)
    clocks, began_s = [0.0] * inputs.workers, 0.0
    arrivals: dict[int, float] = {}
    for step, factors in enumerate(draws[: fill + steps], 1):
        clocks = [clock + mean_s * factor for clock, mean_s, factor in zip(clocks, times_s, factors, strict=True)]
        if step % inputs.period == 0:
            issued_s = max(clocks)
            arrivals[step] = [link.send(issued_s, latency_s, wire_s)[0] for _ in range(inputs.messages)][-1]
        due = arrivals.pop(step - inputs.delay, 0.0)
        clocks = [max(clock, due) for clock in clocks]
        if step == fill:
            began_s = max(clocks)
    return (max(clocks) - began_s) / steps


class Link:
    """Carries all-reduces: one at a time on the wire, and `slots` at a time in all; None is any number."""

    def __init__(self, slots: int | None) -> None:
        self._wire_free_s = 0.0
        self._slots_free_s = None if slots is None else [0.0] * slots

    def send(self, issued_s: float, latency_s: float, wire_s: float) -> tuple[float, float]:
        """When an all-reduce ends that is issued at `issued_s`, and how long it waits for the wire and uses it."""
        free = self._slots_free_s
        begin_s = issued_s if free is None else max(issued_s, heapq.heappop(free))
        self._wire_free_s = max(begin_s, self._wire_free_s) + wire_s
        end_s = self._wire_free_s + latency_s
        if free is not None:
            heapq.heappush(free, end_s)
        return end_s, self._wire_free_s - begin_s


@lru_cache(maxsize=16)
def _draws(workers: int, cv: float, steps: int) -> list[tuple[float, ...]]:
    """Durations of steps of mean 1: for each step, one of each worker."""
    random, normal = Random(0), statistics.NormalDist()
    sigma = math.sqrt(math.log1p(cv * cv))

    def ten_steps() -> list[float]:
        order = random.sample(range(STRATA), STRATA)
        quantiles = (max((stratum + random.random()) / STRATA, 1e-12) for stratum in order)
        return [math.exp(sigma * normal.inv_cdf(quantile) - sigma * sigma / 2) for quantile in quantiles]

    blocks = (list(zip(*(ten_steps() for _ in range(workers)), strict=True)) for _ in range(-(-steps // STRATA)))
    return [step for block in blocks for step in block]


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
