"""The one round trip and the one rate that represent a whole network in the step-time law, and where they do not.

Each reason why the law does not hold comes with two networks for which it does, one milder and one worse than the
cell's. If its step times on the two are close, the reason does not matter: the messages are hidden, or short, or losses
are rare. Pure arithmetic on profiles: no arrays, so that planning starts fast.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, permutations

from wanbench.harness.emulators.plan import payload_bytes
from wanbench.harness.plan.law import (
    GLOO_SEGMENT_BYTES,
    Collective,
    PredictInputs,
    predict,
    round_trips,
    sent_bytes,
)
from wanbench.netprofiles.path import SamePaths
from wanbench.netprofiles.profile import Profile
from wanbench.netprofiles.units import Rate

_CLOSE = 1.1
_INITIAL_WINDOW = 10  # packets
_TIMEOUT_S = 0.2  # in addition to a round trip
_MESSAGES_IN_A_REP = 60
# Simulated times of gloo on paths that differ are between these multiples of the law's.
_MILD, _WORSE = 0.5, 1.2


def effective_conditions(
    profile: Profile, ranks: Sequence[str], collective: Collective = "direct"
) -> tuple[float, float | None]:
    """Return (rtt_s, rate_bytes_per_s or None for unlimited), which represent a whole profile in the law.

    The worst latency and the lowest rate are chosen separately. If they belong to different paths, the law is
    pessimistic (`unlike`).

    Args:
        profile: sites and directed paths.
        ranks: the site of each rank; for `ring`, in the order of the ring.
        collective: `direct` uses every pair of workers, `hierarchical` one worker of each site, gloo and `ring` the
            neighbours of the ring (rank i to i+1).
    """
    if len(ranks) == 1:
        return 0.0, None
    if collective in ("gloo", "ring"):
        return _ring_conditions(profile, ranks, collective)
    if collective == "hierarchical":
        return _hierarchical_conditions(profile, ranks)
    return _direct_conditions(profile, ranks)


def _ring_conditions(profile: Profile, ring: Sequence[str], collective: Collective) -> tuple[float, float | None]:
    """Of gloo, the slowest round trip of neighbours. Of `ring`, two mean hops.

    In `ring`, a worker behind a slow hop is late each time, and so the hops that follow seem shorter.
    """
    hops = Counter(zip(ring, [*ring[1:], ring[0]], strict=True))
    if collective == "gloo":
        rtt_s = max(one_way_s(profile, a, b) + one_way_s(profile, b, a) for a, b in hops)
    else:
        rtt_s = 2 * sum(one_way_s(profile, a, b) * count for (a, b), count in hops.items()) / len(ring)
    return rtt_s, _tightest(_shared(profile, hops))


def unlike(profile: Profile, ranks: Sequence[str], collective: Collective) -> tuple[float, float] | None:
    """How much the hops that a collective takes differ; None if they are alike. Hops inside sites have no rate.

    Returns the shortest round trip as a share of the longest, and the highest rate per worker as a multiple of the
    lowest.

    Args:
        ranks: the site of each rank.
    """
    counts = Counter([*dict.fromkeys(ranks)] if collective == "hierarchical" else ranks)
    if collective in ("gloo", "ring"):
        hops = set(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
    else:
        hops = set(permutations(_representatives(profile, counts), 2))
    rtts = {one_way_s(profile, a, b) + one_way_s(profile, b, a) for a, b in hops}
    rates = {_tightest(_pair(profile, a, b, counts)) for a, b in hops if a != b} - {None}
    if max(len(rtts), len(rates), len({a == b for a, b in hops})) <= 1:
        return None
    limits = [rate for rate in rates if rate is not None] or [1.0]
    return min(rtts) / max(rtts) if max(rtts) else 1.0, max(limits) / min(limits)


def _pair(profile: Profile, src: str, dst: str, counts: Counter[str]) -> list[tuple[Rate | None, float]]:
    """The limits between two sites, each with its load if every worker sends to every other."""
    n = counts.total()
    return [
        (profile.site(src).up, counts[src] * (n - counts[src]) / (n - 1)),
        (profile.path(src, dst).rate, counts[src] * counts[dst] / (n - 1)),
        (profile.site(dst).down, counts[dst] * (n - counts[dst]) / (n - 1)),
    ]


def _hierarchical_conditions(profile: Profile, ranks: Sequence[str]) -> tuple[float, float | None]:
    counts, n = Counter(ranks), len(ranks)
    sites = list(counts)
    inside_s = max((profile.site(name).local_rtt.seconds for name in sites if counts[name] > 1), default=0.0)
    if len(sites) == 1:
        return inside_s, None
    rtt_s, rate = _direct_conditions(profile, sites)
    s = len(sites)  # each sends one vector, 2 (S-1)/S M; the law counts in units of 2 (N-1)/N M
    return inside_s + rtt_s, None if rate is None else rate * ((n - 1) / n) / ((s - 1) / s)


def _shared(profile: Profile, hops: Counter[tuple[str, str]]) -> list[tuple[Rate | None, float]]:
    """Every rate limit, with the number of hops that share it."""
    across = Counter(hop for hop in hops.elements() if hop[0] != hop[1])
    leaving, entering = Counter(src for src, _ in across.elements()), Counter(dst for _, dst in across.elements())
    return [
        *((profile.path(src, dst).rate, carried) for (src, dst), carried in across.items()),
        *((profile.site(name).up, carried) for name, carried in leaving.items()),
        *((profile.site(name).down, carried) for name, carried in entering.items()),
    ]


def _direct_conditions(profile: Profile, ranks: Sequence[str]) -> tuple[float, float | None]:
    """Reduce-scatter, then all-gather: a chunk's owner receives from all, then sends to all. The slowest counts."""
    counts = Counter(ranks)
    sites = _representatives(profile, counts)
    rtt_s = 0.0
    for owner in sites:
        peers = [name for name in sites if name != owner or counts[name] > 1]
        slowest_in_s = max(one_way_s(profile, name, owner) for name in peers)
        slowest_out_s = max(one_way_s(profile, owner, name) for name in peers)
        rtt_s = max(rtt_s, slowest_in_s + slowest_out_s)
    return rtt_s, _tightest([limit for a, b in permutations(sites, 2) for limit in _pair(profile, a, b, counts)])


def _representatives(profile: Profile, counts: Mapping[str, int]) -> list[str]:
    """The sites to examine. If all paths are the same, two of each kind of site represent any number."""
    if not isinstance(profile.paths, SamePaths):
        return list(counts)
    kinds: dict[object, list[str]] = {}
    for name, count in counts.items():
        site = profile.site(name)
        kinds.setdefault((site.up, site.down, site.local_rtt, count), []).append(name)
    return [name for alike in kinds.values() for name in alike[:2]]


def _tightest(shared: Sequence[tuple[Rate | None, float]]) -> float | None:
    """The lowest rate per worker; `shared` pairs a limit with its load in units of one worker's traffic."""
    rates = [limit.bytes_per_s / carried for limit, carried in shared if limit is not None and carried > 0]
    return min(rates, default=None)


def one_way_s(profile: Profile, src: str, dst: str) -> float:
    """One-way delay from one worker to another, at these sites."""
    if src == dst:
        return profile.site(src).local_rtt.seconds / 2
    return profile.path(src, dst).delay.seconds


def windows_bytes(inputs: PredictInputs, profile: Profile, ranks: Sequence[str], window_bytes: float) -> float | None:
    """What the connections of a worker have in flight together at most; None where this limits nothing.

    Of `ring`, the longest hop limits all, but the round trip of the law is that of mean hops.

    Args:
        inputs: of the law, without windows. profile: sites and directed paths. ranks: the site of each, as they send.
        window_bytes: what a connection has in flight at most.
    """
    if inputs.workers == 1 or inputs.collective == "gloo":  # gloo waits after each segment
        return None
    together = connections_of(inputs, ranks) * window_bytes
    if inputs.collective == "hierarchical":  # 2 (S-1)/S of a vector over S - 1 connections; the law counts 2 (N-1)/N
        together = (inputs.workers - 1) / inputs.workers * len(set(ranks)) * window_bytes
    if inputs.collective == "ring" and inputs.rtt_s:
        hops = zip(ranks, [*ranks[1:], ranks[0]], strict=True)
        together *= inputs.rtt_s / max(one_way_s(profile, a, b) + one_way_s(profile, b, a) for a, b in hops)
    fills = _flying_bytes(inputs, ranks) > window_bytes
    return together if fills and (inputs.rate_bytes_per_s or math.inf) * inputs.rtt_s > together else None


def why_unknown(
    inputs: PredictInputs,
    profile: Profile,
    ranks: Sequence[str],
    mtu: int,
    *,
    window_bytes: float,
    congestion: str,
    slow_start_after_idle: bool,
) -> str | None:
    """Why the law does not predict a step on this network within about 10 %; None if it does.

    Args:
        inputs: of the law. profile: sites and directed paths. ranks: the site of each. mtu: bytes of a packet.
        window_bytes: what a connection has in flight at most. congestion, slow_start_after_idle: the settings of TCP.
    """
    if inputs.workers == 1 or not inputs.message_bytes:
        return None
    doubts = _doubts(inputs, profile, ranks, mtu, window_bytes, idle=slow_start_after_idle)
    if inputs.windows_bytes is not None and (congestion == "bbr" or inputs.channels > 1):
        # Behind a pause, BBR sends no window at once. Connections share what a collective sends, or take turns.
        doubts = chain([("TCP's window", replace(inputs, windows_bytes=None), inputs)], doubts)
    for reason, mild, worse in doubts:
        if predict(worse).step_time_s > _CLOSE * predict(mild).step_time_s:
            return reason
    return None


def _doubts(
    inputs: PredictInputs, profile: Profile, ranks: Sequence[str], mtu: int, window_bytes: float, *, idle: bool
) -> Iterator[tuple[str, PredictInputs, PredictInputs]]:
    """Reasons to distrust the law, each with the inputs between which the truth lies: milder and worse ones."""
    loss = _worst_loss(profile, ranks)
    if loss:
        yield "packet loss", inputs, _with_losses(inputs, ranks, loss, payload_bytes(mtu))
    if inputs.collective == "gloo" and inputs.rtt_s and _flying_bytes(inputs, ranks) > window_bytes:
        yield "TCP's window", inputs, _capped(inputs, ranks, window_bytes)
    if idle:
        yield "TCP's slow start after a pause", inputs, _from_slow_start(inputs, payload_bytes(mtu), window_bytes)
    if inputs.step_times_s and inputs.collective not in ("direct", "hierarchical"):
        yield "machines differ", _times(inputs, _MILD), inputs  # what the others sent has already arrived
    apart = unlike(profile, ranks, inputs.collective)
    if inputs.collective in ("direct", "hierarchical"):
        # The inputs join the longest round trip and the lowest rate. In truth a step takes at least as long as by one.
        if apart is not None:
            shorter, faster = replace(inputs, rtt_s=inputs.rtt_s * apart[0]), _faster(inputs, apart[1])
            yield "paths differ", max(shorter, faster, key=lambda mild: predict(mild).step_time_s), inputs
    elif inputs.collective == "gloo" and apart is not None:  # a ring's hops are added up
        yield "paths differ", _times(inputs, _MILD), _times(inputs, _WORSE)


def _times(inputs: PredictInputs, factor: float) -> PredictInputs:
    """With messages that take `factor` times as long."""
    return replace(_faster(inputs, 1 / factor), rtt_s=inputs.rtt_s * factor)


def _faster(inputs: PredictInputs, factor: float) -> PredictInputs:
    rate = inputs.rate_bytes_per_s
    return inputs if rate is None else replace(inputs, rate_bytes_per_s=rate * factor)


def _pieces(inputs: PredictInputs) -> Iterator[float]:
    """The part of each bucket of a vector that a connection carries."""
    for nbytes in [size for size, _ in inputs.buckets or ()] or [inputs.message_bytes]:
        if inputs.collective == "gloo":
            yield min(nbytes / 2 / inputs.workers, GLOO_SEGMENT_BYTES)
        else:
            yield nbytes if nbytes <= inputs.one_shot_bytes else nbytes / inputs.workers


def _flying_bytes(inputs: PredictInputs, ranks: Sequence[str]) -> float:
    """The bytes of the messages that are on a connection at a time. gloo sends one after another."""
    piece = max(_pieces(inputs)) if inputs.collective == "gloo" else sum(_pieces(inputs))
    if inputs.collective == "hierarchical":
        piece *= inputs.workers / len(set(ranks))
    return piece * (inputs.delay // inputs.period + 1)


def connections_of(inputs: PredictInputs, ranks: Sequence[str]) -> int:
    """The number of connections to which a worker sends at a time. `ranks`: the site of each."""
    if inputs.collective == "hierarchical":
        return len(set(ranks)) - 1
    return inputs.workers - 1 if inputs.collective == "direct" else 1


def _capped(inputs: PredictInputs, ranks: Sequence[str], window_bytes: float) -> PredictInputs:
    """With connections that send one window in a round trip."""
    limit = connections_of(inputs, ranks) * window_bytes / inputs.rtt_s
    return replace(inputs, rate_bytes_per_s=min(inputs.rate_bytes_per_s or math.inf, limit))


def _from_slow_start(inputs: PredictInputs, packet_bytes: int, window_bytes: float) -> PredictInputs:
    """With windows that double from what a pause between messages has left."""
    law = predict(inputs)
    pause_s = max(0.0, law.step_time_s * inputs.period * inputs.channels - law.wire_s)  # each channel has its own
    most = min(max(_pieces(inputs)), window_bytes)
    window = 2 * most / 2 ** min(60, pause_s // (inputs.rtt_s + _TIMEOUT_S))
    short = math.ceil(max(0.0, math.log2(most / max(window, _INITIAL_WINDOW * packet_bytes))))
    if inputs.windows_bytes is None:
        return _farther(inputs, 1 + short)
    rounds = law.wire_s / inputs.rtt_s
    return replace(inputs, windows_bytes=inputs.windows_bytes * rounds / (rounds + short))


def _farther(inputs: PredictInputs, factor: float) -> PredictInputs:
    """With round trips so many times as long, and windows that carry as much as before."""
    windows = None if inputs.windows_bytes is None else inputs.windows_bytes * factor
    return replace(inputs, rtt_s=inputs.rtt_s * factor, windows_bytes=windows)


def _with_losses(inputs: PredictInputs, ranks: Sequence[str], loss: float, packet_bytes: int) -> PredictInputs:
    """With a retransmission in every round that loses a packet, and the window of Mathis et al. (1997)."""
    pieces = max(1.0, max(_pieces(inputs)) / packet_bytes)
    rounds = 2 * round_trips(inputs.collective, inputs.workers, inputs.message_bytes)
    sent = max(connections_of(inputs, ranks), sent_bytes(inputs, inputs.message_bytes) / packet_bytes / rounds)
    notes = 1 if inputs.collective == "gloo" else 0  # the receiver's, in packets of their own
    lossy_share = 1 - (1 - loss) ** (inputs.workers * (sent + notes))
    repair_s = inputs.rtt_s + (_TIMEOUT_S if pieces <= 1 or notes else 0.0)
    again_s = 2 * (lossy_share + loss * pieces) * repair_s
    slower = _farther(inputs, 1 + again_s / inputs.rtt_s) if inputs.rtt_s else replace(inputs, rtt_s=again_s)
    if not inputs.rtt_s or loss * pieces * _MESSAGES_IN_A_REP < 0.5:
        return slower
    return _capped(slower, ranks, math.sqrt(1.5 / loss) * packet_bytes * slower.rtt_s / inputs.rtt_s)


def _worst_loss(profile: Profile, ranks: Sequence[str]) -> float:
    """The largest loss of a path between two workers."""
    sites = list(dict.fromkeys(ranks))[: 2 if isinstance(profile.paths, SamePaths) else None]
    return max((profile.path(a, b).loss.value for a in sites for b in sites if a != b), default=0.0)
