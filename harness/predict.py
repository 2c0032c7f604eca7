"""The step-time law: how long a training step takes on a network, without running it.

Per synchronisation period of p steps, with delay D, compute time Tc and one all-reduce of time t (bandwidth
part t_wire)::

    T_step = P / p
    P = max(t_wire,  t / (2k),  p Tc + max(0, t - D Tc) / (floor(D/p) + 1))

A message is issued before its step's wait, so floor(D/p)+1 waits share one shortfall: each wait also
postpones the deadlines behind it. The middle term is gloo's alone: it runs two operations on each of its k
channels, and more in flight only queue. (Measured at N = 4, 200 ms, k = 1: sparse-p20 0.367 s against 0.366 by
the law, dts-d20-p4 0.302 s against 0.300.)

The law is an alpha-beta model of the steady state. It knows neither jitter, loss, TCP's window nor the host's
CPU, so a measurement well above it names one of those.

Pure arithmetic: standard library only, so that planning and the command line start fast.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from netprofiles.path import SamePaths
from netprofiles.profile import Profile
from netprofiles.units import Rate

Collective = Literal["gloo", "direct", "ring", "halving-doubling", "hierarchical"]
Bound = Literal["compute", "latency", "bandwidth", "channels"]

GLOO_SEGMENT_BYTES = 1 << 20
GLOO_OPERATIONS_PER_CHANNEL = 2


class PredictError(ValueError):
    """Inputs that the step-time law is not defined for."""


@dataclass(frozen=True, slots=True)
class PredictInputs:
    """Everything the law reads, as plain numbers.

    Attributes:
        workers: N.
        step_time_s: Tc, mean compute time of one step of one worker.
        rtt_s: effective round-trip time of the collective (`effective_conditions`).
        rate_bytes_per_s: effective rate per worker; None is unlimited.
        message_bytes: bytes of one all-reduce; 0 means that nothing is sent.
        messages: all-reduces of one synchronisation, issued back to back: 2 for dts with momentum and p > 1.
        delay: D in steps. period: p in steps.
        collective: how an all-reduce travels. channels: k, of gloo.
        buckets: (bytes, seconds after the step's start at which they are ready), in order of readiness; of
            synchronous SGD alone.
        step_cv: coefficient of variation of the compute time, drawn anew at each step and worker.

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

    def __post_init__(self) -> None:
        lowest = {"workers": 1, "delay": 0, "period": 1, "channels": 1, "message_bytes": 0, "messages": 1}
        for name, least in lowest.items():
            value = getattr(self, name)
            if value < least:
                raise PredictError(f"{name}: expected at least {least}, got {value}")
        for name in ("step_time_s", "rtt_s", "step_cv"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise PredictError(f"{name}: expected a finite number of at least 0, got {value}")
        if self.rate_bytes_per_s is not None and not self.rate_bytes_per_s > 0:
            raise PredictError(f"rate_bytes_per_s: expected more than 0 or None, got {self.rate_bytes_per_s}")
        if self.collective not in get_args(Collective):
            known = ", ".join(map(repr, get_args(Collective)))
            raise PredictError(f"collective: expected one of {known}, got {self.collective!r}")
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
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> PredictInputs:
        """Inverse of `to_json`. Raises PredictError for a field the law does not have."""
        unknown = sorted(set(fields) - set(cls.__dataclass_fields__))
        if unknown:
            raise PredictError(f"law_inputs: unknown field {unknown[0]!r}")
        buckets = fields.get("buckets")
        pairs = None if buckets is None else tuple((int(size), float(ready_s)) for size, ready_s in buckets)
        return cls(**{**fields, "buckets": pairs})


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the law says.

    Attributes:
        step_time_s: T_step of the slowest worker, steady state.
        all_reduce_s: t, of all messages of one synchronisation.
        wire_s: t_wire, the bandwidth part of t.
        bound: what sets the step time; "compute" means that communication is hidden.
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
    """(latency part, bandwidth part) in seconds of one all-reduce of `nbytes`; their sum is t.

    The bandwidth part is 2 (N-1)/N M / rate for all: each vector leaves and comes once in N - 1 pieces of N, twice.
    The latency part is `round_trips` RTT.
    """
    n = inputs.workers
    if n == 1 or nbytes == 0:
        return 0.0, 0.0
    rate = math.inf if inputs.rate_bytes_per_s is None else inputs.rate_bytes_per_s
    return round_trips(inputs.collective, n, nbytes) * inputs.rtt_s, 2 * (n - 1) / n * nbytes / rate


def round_trips(collective: Collective, workers: int, nbytes: int) -> int:
    """Round trips that follow each other in one all-reduce.

    gloo: R = S - S/N; with t = R (RTT + 2 min(1 MiB, M/S) / rate) and S >= M/MiB, the minimum is M/S. direct,
    hierarchical: there and back, at any N. ring: 2(N-1) hops one way. halving-doubling: log2 N exchanges, twice, and
    one more there and back where N is no power of two.
    """
    if collective == "gloo":
        return gloo_rounds(workers, nbytes)
    if collective == "ring":
        return workers - 1
    if collective == "halving-doubling":
        return (workers - 1).bit_length()
    return 1


def gloo_rounds(workers: int, nbytes: int) -> int:
    """R = S - S/N, the round trips of gloo's ring: S segments of at most 1 MiB, at least 2N, a multiple of N.

    Each hop waits for the receiver's "ready" note, hence a round trip and not one way (gloo/allreduce.cc).
    """
    at_least = max(math.ceil(nbytes / GLOO_SEGMENT_BYTES), 2 * workers)
    segments = _round_up(at_least, workers)
    return segments - segments // workers


def _period_law(inputs: PredictInputs, latency_s: float, wire_s: float) -> tuple[float, Bound]:
    t = latency_s + wire_s
    p, d = inputs.period, inputs.delay
    compute_s = p * inputs.step_time_s
    exposed_s = max(0.0, t - d * inputs.step_time_s) / (d // p + 1)
    # A delayed method lets a slow step be late; a synchronous one waits for the slowest of N each time.
    waits = d == 0 and inputs.message_bytes > 0
    slowest = expected_maximum(inputs.workers, inputs.step_cv / math.sqrt(p)) if waits else 1.0
    terms: list[tuple[float, Bound]] = [
        (compute_s * slowest + exposed_s, _exposed_bound(exposed_s, latency_s, wire_s)),
        (wire_s, "bandwidth"),
    ]
    if inputs.collective == "gloo":
        one_s = latency_s + wire_s / inputs.messages
        terms.append((inputs.messages * one_s / (GLOO_OPERATIONS_PER_CHANNEL * inputs.channels), "channels"))
    # max() keeps the first of equal terms, so a tie with compute reads as hidden communication.
    period_s, bound = max(terms, key=lambda term: term[0])
    return period_s / p, bound


def _exposed_bound(exposed_s: float, latency_s: float, wire_s: float) -> Bound:
    if exposed_s <= 0:
        return "compute"
    return "bandwidth" if wire_s > latency_s else "latency"


def _bucketed_step(inputs: PredictInputs, schedule: Sequence[tuple[int, float]]) -> tuple[float, Bound]:
    """Synchronous SGD in buckets: T = max(Tc, end of the last all-reduce).

    Where no bucket has to queue that is Tc + t(last bucket).
    """
    slowest = expected_maximum(inputs.workers, inputs.step_cv)
    compute_s = inputs.step_time_s * slowest
    buckets = [(nbytes, ready_s * slowest) for nbytes, ready_s in schedule]
    unlimited, latency_s, wire_s = _last_completion(inputs, buckets, slots=len(buckets) or 1)
    if inputs.collective != "gloo":
        completion = unlimited
    else:
        slots = GLOO_OPERATIONS_PER_CHANNEL * inputs.channels
        completion, latency_s, wire_s = _last_completion(inputs, buckets, slots)
    if completion <= compute_s:
        return compute_s, "compute"
    if completion - unlimited > (completion - compute_s) / 2:
        return completion, "channels"
    return completion, _exposed_bound(completion - compute_s, latency_s, wire_s)


def _last_completion(
    inputs: PredictInputs, buckets: Sequence[tuple[int, float]], slots: int
) -> tuple[float, float, float]:
    """(end of the last all-reduce, its latency, its wait for and time on the wire).

    The wire carries one bucket at a time; the latency of up to `slots` overlaps.
    """
    wire_free_s = 0.0
    slot_free_s = [0.0] * slots
    last = (0.0, 0.0, 0.0)
    for nbytes, ready_s in buckets:
        latency_s, wire_s = all_reduce_time(inputs, nbytes)
        slot = min(range(slots), key=slot_free_s.__getitem__)
        begin_s = max(ready_s, slot_free_s[slot])
        wire_free_s = max(begin_s, wire_free_s) + wire_s
        slot_free_s[slot] = wire_free_s + latency_s
        last = max(last, (slot_free_s[slot], latency_s, wire_free_s - begin_s))
    return last


@lru_cache(maxsize=1024)
def expected_maximum(workers: int, cv: float) -> float:
    """E[max] of `workers` independent lognormal step times of mean 1 and coefficient of variation `cv`.

    The factor a synchronous step pays for stragglers. With X = exp(s z - s^2/2), s^2 = ln(1 + cv^2), it is
    the integral over z of X(z) N phi(z) Phi(z)^(N-1), taken by Simpson's rule. A sum of p steps has cv /
    sqrt(p) and is again nearly lognormal.
    """
    if workers == 1 or cv == 0:
        return 1.0
    sigma = math.sqrt(math.log1p(cv * cv))
    intervals = 800
    low, high = -9.0, 9.0 + sigma
    h = (high - low) / intervals
    total = 0.0
    for i in range(intervals + 1):
        z = low + i * h
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        below = 0.5 * math.erfc(-z / math.sqrt(2))
        value = math.exp(sigma * z - sigma * sigma / 2) * workers * density * below ** (workers - 1)
        total += value * (1 if i in (0, intervals) else 4 if i % 2 else 2)
    return total * h / 3


def window_steps(delay: int, period: int, at_least: int = 20) -> int:
    """Measured steps of a rep: at least max(`at_least`, 20, 3 (D + p)), in whole stall cycles.

    Stalls come once per floor(D/p)+1 messages, so a window that is not a multiple of that cycle (and of p) is
    biased.
    """
    cycle = period * (delay // period + 1)
    return _round_up(max(at_least, 20, 3 * (delay + period)), cycle)


def fill_steps(delay: int, period: int) -> int:
    """Steps before the window, a multiple of p: the first average is back, and TCP is warm (3 steps)."""
    return _round_up(max(delay + period, 3), period)


def rep_duration_s(inputs: PredictInputs, window: int) -> float:
    """Predicted seconds of one rep: filling the pipeline, the window, and draining the pipeline."""
    prediction = predict(inputs)
    steps = fill_steps(inputs.delay, inputs.period) + window
    return steps * prediction.step_time_s + prediction.all_reduce_s


def effective_conditions(
    profile: Profile, placement: Sequence[str], workers: int, collective: Collective = "direct"
) -> tuple[float, float | None]:
    """(rtt_s, rate_bytes_per_s or None for unlimited) that stand for a whole profile in the law.

    The worst latency and the tightest rate are taken separately; where they belong to different paths the law
    is pessimistic.

    Args:
        profile: sites and directed paths.
        placement: site of each rank, at least `workers` long.
        workers: N; the first N ranks take part.
        collective: `direct` uses every pair of workers, `hierarchical` one worker of each site, gloo and `ring` the
            neighbours of the ring (rank i to i+1), `halving-doubling` ranks that differ in one bit. Where rounds
            differ, the RTT is their mean, and the rate that of all bytes together.
    """
    ranks = list(placement[:workers])
    if len(ranks) != workers:
        raise PredictError(f"placement: expected a site for each of {workers} workers, got {len(ranks)}")
    if workers == 1:
        return 0.0, None
    if collective == "gloo":
        return _ring_conditions(profile, ranks)
    if collective == "ring":
        return _hops_s(profile, ranks) / (workers - 1), _ring_conditions(profile, ranks)[1]
    if collective == "halving-doubling":
        return _halving_conditions(profile, ranks)
    if collective == "hierarchical":
        return _hierarchical_conditions(profile, ranks)
    return _direct_conditions(profile, ranks)


def _hops_s(profile: Profile, ranks: Sequence[str]) -> float:
    """The longest way of 2(N-1) hops along the ring: two turns without two neighbouring hops."""
    hops = [_one_way_s(profile, a, b) for a, b in zip(ranks, [*ranks[1:], ranks[0]], strict=True)]
    left_out = min(a + b for a, b in zip(hops, [*hops[1:], hops[0]], strict=True))
    return 2 * sum(hops) - left_out


def _halving_conditions(profile: Profile, ranks: Sequence[str]) -> tuple[float, float | None]:
    n = len(ranks)
    core = 1 << (n.bit_length() - 1)
    rounds = [(0.5 / (1 << k), [(r, r ^ (1 << k)) for r in range(core)]) for k in range(core.bit_length() - 1)]
    rounds += rounds[::-1]
    if n > core:
        fold = [(core + i, i) for i in range(n - core)]
        rounds = [(1.0, fold), *rounds, (1.0, [(b, a) for a, b in fold])]
    latency_s = seconds_per_byte = 0.0
    for part, pairs in rounds:
        hops = Counter((ranks[a], ranks[b]) for a, b in pairs)
        latency_s += max(_one_way_s(profile, a, b) for a, b in hops)
        rate = _tightest(_shared(profile, hops))
        seconds_per_byte += 0.0 if rate is None else part / rate
    rtt_s = latency_s / round_trips("halving-doubling", n, 1)
    return rtt_s, 2 * (n - 1) / n / seconds_per_byte if seconds_per_byte else None


def _hierarchical_conditions(profile: Profile, ranks: Sequence[str]) -> tuple[float, float | None]:
    sites, n = list(dict.fromkeys(ranks)), len(ranks)
    counts = Counter(ranks)
    inside_s = max((profile.site(name).local_rtt.seconds for name in sites if counts[name] > 1), default=0.0)
    if len(sites) == 1:
        return inside_s, None
    rtt_s, rate = _direct_conditions(profile, sites)
    s = len(sites)  # of which one vector each crosses: 2 (S-1)/S M, said in units of 2 (N-1)/N M
    return inside_s + rtt_s, None if rate is None else rate * ((n - 1) / n) / ((s - 1) / s)


def _ring_conditions(profile: Profile, ranks: Sequence[str]) -> tuple[float, float | None]:
    hops = Counter(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
    rtt_s = max(_one_way_s(profile, a, b) + _one_way_s(profile, b, a) for a, b in hops)
    return rtt_s, _tightest(_shared(profile, hops))


def _shared(profile: Profile, hops: Mapping[tuple[str, str], int]) -> list[tuple[Rate | None, float]]:
    """Every limit with the number of these hops that share it."""
    shared: list[tuple[Rate | None, float]] = []
    leaving: Counter[str] = Counter()
    entering: Counter[str] = Counter()
    for (src, dst), carried in hops.items():
        if src != dst:
            shared.append((profile.path(src, dst).rate, carried))
            leaving[src] += carried
            entering[dst] += carried
    shared += [(profile.site(name).up, carried) for name, carried in leaving.items()]
    shared += [(profile.site(name).down, carried) for name, carried in entering.items()]
    return shared


def _direct_conditions(profile: Profile, ranks: Sequence[str]) -> tuple[float, float | None]:
    """Reduce-scatter, then all-gather: a chunk's owner hears from all, then tells all. The slowest counts."""
    n = len(ranks)
    counts = Counter(ranks)
    sites = _representatives(profile, counts)
    rtt_s = 0.0
    shared: list[tuple[Rate | None, float]] = []
    for owner in sites:
        peers = [name for name in sites if name != owner or counts[name] > 1]
        slowest_in_s = max(_one_way_s(profile, name, owner) for name in peers)
        slowest_out_s = max(_one_way_s(profile, owner, name) for name in peers)
        rtt_s = max(rtt_s, slowest_in_s + slowest_out_s)
        carried = counts[owner] * (n - counts[owner]) / (n - 1)
        shared += [(profile.site(owner).up, carried), (profile.site(owner).down, carried)]
        shared += [
            (profile.path(owner, name).rate, counts[owner] * counts[name] / (n - 1)) for name in peers if name != owner
        ]
    return rtt_s, _tightest(shared)


def _representatives(profile: Profile, counts: Mapping[str, int]) -> list[str]:
    """The sites that decide. Where all paths are alike, two of each kind of site stand for a thousand."""
    if not isinstance(profile.paths, SamePaths):
        return list(counts)
    kinds: dict[object, list[str]] = {}
    for name, count in counts.items():
        site = profile.site(name)
        kinds.setdefault((site.up, site.down, site.local_rtt, count), []).append(name)
    return [name for alike in kinds.values() for name in alike[:2]]


def _tightest(shared: Sequence[tuple[Rate | None, float]]) -> float | None:
    """Lowest rate per worker; `shared` pairs a limit with its load in units of one worker's traffic."""
    rates = [limit.bytes_per_s / carried for limit, carried in shared if limit is not None and carried > 0]
    return min(rates, default=None)


def _one_way_s(profile: Profile, src: str, dst: str) -> float:
    if src == dst:
        return profile.site(src).local_rtt.seconds / 2
    return profile.path(src, dst).delay.seconds


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
