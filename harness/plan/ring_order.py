"""The order of workers in a ring: the one whose all-reduce is the fastest by the step-time law.

The workers of a site are neighbours, so each site has one hop in and one out. The order of sites is the best of all for
up to 9 sites. For more, it begins with the nearest site each time, and reverses parts as long as that helps (2-opt).

Pure arithmetic on profiles, standard library only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise, permutations

from wanbench.harness.plan.conditions import effective_conditions, one_way_s
from wanbench.harness.plan.law import ring_latency_s
from wanbench.netprofiles.path import SamePaths
from wanbench.netprofiles.profile import Profile

_ALL_ORDERS_OF = 9  # sites
_Cost = tuple[int, int]
_Order = tuple[int, ...]
_Matrix = tuple[tuple[float, ...], ...]


def ring_order(profile: Profile, placement: Sequence[str], nbytes: int, *, alone: bool) -> _Order:
    """Return the ranks in the order of the fastest ring, or in their own order if none is faster.

    Args:
        profile: sites and directed paths.
        placement: site of each rank.
        nbytes: size of the vector.
        alone: whether an all-reduce has the links for itself.
    """
    names, ranks = list(dict.fromkeys(placement)), range(len(placement))
    if len(ranks) < 3:
        return tuple(ranks)
    sites: _Order = tuple(range(len(names)))
    if len(names) > 2 and not isinstance(profile.paths, SamePaths):
        sites = _fastest(_rings_of(profile, placement, names, nbytes, alone=alone))
    by_site = tuple(rank for site in sites for rank in ranks if placement[rank] == names[site])

    def cost(ring: Sequence[int]) -> _Cost:
        sites = [placement[rank] for rank in ring]
        rtt_s, rate = effective_conditions(profile, sites, "ring")
        return _cost(rtt_s, rate or math.inf, len(sites), nbytes, alone=alone)

    return by_site if cost(by_site) < cost(ranks) else tuple(ranks)


def _cost(rtt_s: float, rate: float, workers: int, nbytes: int, *, alone: bool) -> _Cost:
    """Nanoseconds of an all-reduce, then of a hop: of two that are equally fast, one with less latency is better."""
    wire_s = 2 * (workers - 1) / workers * nbytes / rate
    latency_s = ring_latency_s(workers, nbytes, rtt_s, wire_s) if alone else (workers - 1) * rtt_s
    return round((latency_s + wire_s) * 1e9), round(rtt_s / 2 * 1e9)


@dataclass(frozen=True)
class _Rings:
    """All rings through some sites, whose workers are neighbours.

    Attributes:
        across_s: one-way delay from each site to each other. rate: of the narrowest queue between them, in bytes/s.
        inside_s: delay of all hops inside sites. workers: the number of workers.
        nbytes, alone: as in `ring_order`.
    """

    across_s: _Matrix
    rate: _Matrix
    inside_s: float
    workers: int
    nbytes: int
    alone: bool

    def cost(self, order: Sequence[int]) -> _Cost:
        hops = [*pairwise(order), (order[-1], order[0])]
        turn_s = sum(self.across_s[a][b] for a, b in hops) + self.inside_s
        rate = min(self.rate[a][b] for a, b in hops)
        return _cost(2 * turn_s / self.workers, rate, self.workers, self.nbytes, alone=self.alone)


def _rings_of(profile: Profile, placement: Sequence[str], names: Sequence[str], nbytes: int, *, alone: bool) -> _Rings:
    def rate(src: str, dst: str) -> float:
        limits = profile.site(src).up, profile.path(src, dst).rate, profile.site(dst).down
        return min((limit.bytes_per_s for limit in limits if limit is not None), default=math.inf)

    return _Rings(
        across_s=tuple(tuple(one_way_s(profile, a, b) for b in names) for a in names),
        rate=tuple(tuple(math.inf if a == b else rate(a, b) for b in names) for a in names),
        inside_s=sum(one_way_s(profile, site, site) for site in placement)
        - sum(one_way_s(profile, name, name) for name in names),
        workers=len(placement),
        nbytes=nbytes,
        alone=alone,
    )


@lru_cache(maxsize=1024)
def _fastest(rings: _Rings) -> _Order:
    """The order of sites with the least cost, or one close to it if there are many."""
    order = _two_opt(rings, _nearest(rings))
    if len(order) > _ALL_ORDERS_OF:
        return order
    return min(((order[0], *rest) for rest in permutations(order[1:])), key=rings.cost)


def _nearest(rings: _Rings) -> _Order:
    """From the first site always to the nearest one that is left."""
    order, rest = [0], set(range(1, len(rings.across_s)))
    while rest:
        order.append(min(rest, key=lambda site: (rings.across_s[order[-1]][site], site)))
        rest.remove(order[-1])
    return tuple(order)


def _two_opt(rings: _Rings, order: _Order) -> _Order:
    """Reverse parts of the ring until no reversal makes it faster."""
    cost, improved = rings.cost(order), True
    while improved:
        improved = False
        for begin, end in combinations(range(1, len(order) + 1), 2):
            other = (*order[:begin], *reversed(order[begin:end]), *order[end:])
            other_cost = rings.cost(other)
            if other_cost < cost:
                order, cost, improved = other, other_cost, True
    return order
