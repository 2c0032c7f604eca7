"""The one round trip and the one rate that represent a whole network in the step-time law, by collective.

Pure arithmetic on profiles: no arrays, so that planning starts fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wanbench.harness.plan.law import Collective, PredictError
from wanbench.netprofiles.path import SamePaths
from wanbench.netprofiles.profile import Profile
from wanbench.netprofiles.units import Rate


def effective_conditions(
    profile: Profile, placement: Sequence[str], workers: int, collective: Collective = "direct"
) -> tuple[float, float | None]:
    """Return (rtt_s, rate_bytes_per_s or None for unlimited), which represent a whole profile in the law.

    The worst latency and the lowest rate are chosen separately. If they belong to different paths, the law is
    pessimistic (`unlike`).

    Args:
        profile: sites and directed paths.
        placement: site of each rank, at least `workers` long; for `ring`, in the order of the ring.
        workers: N; the first N ranks take part.
        collective: `direct` uses every pair of workers, `hierarchical` one worker of each site, gloo and `ring` the
            neighbours of the ring (rank i to i+1).
    """
    ranks = list(placement[:workers])
    if len(ranks) != workers:
        raise PredictError(f"placement: expected a site for each of {workers} workers, got {len(ranks)}")
    if workers == 1:
        return 0.0, None
    if collective == "gloo":
        return _gloo_conditions(profile, ranks)
    if collective == "ring":
        return _ring_conditions(profile, ranks)
    if collective == "hierarchical":
        return _hierarchical_conditions(profile, ranks)
    return _direct_conditions(profile, ranks)


def _ring_conditions(profile: Profile, ring: Sequence[str]) -> tuple[float, float | None]:
    """Two mean hops: a worker behind a slow hop is late each time, and so the hops that follow seem shorter."""
    hops = Counter(zip(ring, [*ring[1:], ring[0]], strict=True))
    turn_s = sum(one_way_s(profile, a, b) * count for (a, b), count in hops.items())
    return 2 * turn_s / len(ring), _tightest(_shared(profile, hops))


@dataclass(frozen=True, slots=True)
class Unlike:
    """How much the hops of a collective differ.

    Attributes:
        rtts: the shortest round trip, as a share of the longest. rates: the highest rate per worker, as a multiple of
            the lowest.
    """

    rtts: float
    rates: float


def unlike(profile: Profile, ranks: Sequence[str], collective: Collective) -> Unlike | None:
    """How much the hops that a collective takes differ; None if they are alike. Hops inside sites have no rate.

    Args:
        ranks: the site of each rank.
    """
    counts = Counter(ranks)
    if collective == "hierarchical":
        counts = Counter(dict.fromkeys(counts, 1))
    if collective in ("gloo", "ring"):
        hops = set(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
    else:
        sites = _representatives(profile, counts)
        hops = {(a, b) for a in sites for b in sites if a != b}
    rtts = {one_way_s(profile, a, b) + one_way_s(profile, b, a) for a, b in hops}
    rates = {_tightest(_pair(profile, a, b, counts, counts.total())) for a, b in hops if a != b} - {None}
    inside = {a == b for a, b in hops}
    if max(len(rtts), len(rates), len(inside)) <= 1:
        return None
    known = [rate for rate in rates if rate is not None] or [1.0]
    return Unlike(min(rtts) / max(rtts) if max(rtts) else 1.0, max(known) / min(known))


def _pair(profile: Profile, src: str, dst: str, counts: Mapping[str, int], n: int) -> list[tuple[Rate | None, float]]:
    """The limits between two sites, each with its load if every worker sends to every other."""
    return [
        (profile.site(src).up, counts[src] * (n - counts[src]) / (n - 1)),
        (profile.path(src, dst).rate, counts[src] * counts[dst] / (n - 1)),
        (profile.site(dst).down, counts[dst] * (n - counts[dst]) / (n - 1)),
    ]


def _hierarchical_conditions(profile: Profile, ranks: Sequence[str]) -> tuple[float, float | None]:
    sites, n = list(dict.fromkeys(ranks)), len(ranks)
    counts = Counter(ranks)
    inside_s = max((profile.site(name).local_rtt.seconds for name in sites if counts[name] > 1), default=0.0)
    if len(sites) == 1:
        return inside_s, None
    rtt_s, rate = _direct_conditions(profile, sites)
    s = len(sites)  # each sends one vector, 2 (S-1)/S M; the law counts in units of 2 (N-1)/N M
    return inside_s + rtt_s, None if rate is None else rate * ((n - 1) / n) / ((s - 1) / s)


def _gloo_conditions(profile: Profile, ranks: Sequence[str]) -> tuple[float, float | None]:
    hops = Counter(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
    rtt_s = max(one_way_s(profile, a, b) + one_way_s(profile, b, a) for a, b in hops)
    return rtt_s, _tightest(_shared(profile, hops))


def _shared(profile: Profile, hops: Mapping[tuple[str, str], int]) -> list[tuple[Rate | None, float]]:
    """Every rate limit, with the number of hops that share it."""
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
    """Reduce-scatter, then all-gather: a chunk's owner receives from all, then sends to all. The slowest counts."""
    n = len(ranks)
    counts = Counter(ranks)
    sites = _representatives(profile, counts)
    rtt_s = 0.0
    shared: list[tuple[Rate | None, float]] = []
    for owner in sites:
        peers = [name for name in sites if name != owner or counts[name] > 1]
        slowest_in_s = max(one_way_s(profile, name, owner) for name in peers)
        slowest_out_s = max(one_way_s(profile, owner, name) for name in peers)
        rtt_s = max(rtt_s, slowest_in_s + slowest_out_s)
        carried = counts[owner] * (n - counts[owner]) / (n - 1)
        shared += [(profile.site(owner).up, carried), (profile.site(owner).down, carried)]
        shared += [
            (profile.path(owner, name).rate, counts[owner] * counts[name] / (n - 1)) for name in peers if name != owner
        ]
    return rtt_s, _tightest(shared)


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
