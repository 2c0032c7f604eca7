"""The order of workers in a ring: the one whose all-reduce is the fastest by the step-time law.

The workers of a site are neighbours, so each site has one hop in and one out. The order of sites is the best of all for
up to 9 sites. For more, it begins with the nearest site each time, and reverses parts as long as that helps (2-opt).

Pure arithmetic on profiles, standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise

from wanbench.harness.plan.conditions import RingConditions, one_way_s, ring_conditions, turns_s
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
    sites: _Order = tuple(range(len(names)))
    if len(names) > 2 and not isinstance(profile.paths, SamePaths):
        sites = _fastest(_rings_of(profile, placement, names, nbytes, alone=alone))
    by_site = tuple(rank for site in sites for rank in ranks if placement[rank] == names[site])
    new, old = (
        _cost(ring_conditions(profile, [placement[rank] for rank in ring]), len(ranks), nbytes, alone=alone)
        for ring in (by_site, ranks)
    )
    return by_site if new < old else tuple(ranks)


def _cost(ring: RingConditions, workers: int, nbytes: int, *, alone: bool) -> _Cost:
    """Nanoseconds of an all-reduce, then of its hops: of two that are equally fast, one with less latency is better."""
    wire_s = 2 * (workers - 1) / workers * nbytes / (ring.rate_bytes_per_s or math.inf)
    latency_s = ring.latency_s
    if alone and workers > 1:
        latency_s = ring_latency_s(workers, nbytes, latency_s, ring.slowest_hop_s, wire_s)
    return round((latency_s + wire_s) * 1e9), round(ring.latency_s * 1e9)


@dataclass(frozen=True)
class _Rings:
    """All rings through some sites, whose workers are neighbours.

    Attributes:
        across_s: one-way delay from each site to each other. rate: of the narrowest queue between them, in bytes/s.
        inside_s: by site, the delays of the hops between its workers.
        nbytes, alone: as in `ring_order`.
    """

    across_s: _Matrix
    rate: _Matrix
    inside_s: _Matrix
    nbytes: int
    alone: bool

    @property
    def workers(self) -> int:
        """The number of workers of all sites."""
        return sum(len(hops) + 1 for hops in self.inside_s)

    def cost(self, order: Sequence[int]) -> _Cost:
        """The cost of an order of all sites."""
        hops = list(zip(order, [*order[1:], order[0]], strict=True))
        hops_s = [hop_s for a, b in hops for hop_s in (*self.inside_s[a], self.across_s[a][b])]
        return self._cost(turns_s(hops_s), max(hops_s), min(self.rate[a][b] for a, b in hops))

    def least(self, begun: Sequence[int], rest: Sequence[int]) -> _Cost:
        """What each order costs at least that begins with some sites, and goes on with the rest."""
        hops = list(pairwise(begun))
        hops_s = [self.across_s[a][b] for a, b in hops]
        hops_s += [min(self.across_s[a][b] for b in (*rest, begun[0]) if a != b) for a in (begun[-1], *rest)]
        inside_s = sum(map(sum, self.inside_s))
        # Two turns, without two of N neighbouring hops, which take less than the mean.
        latency_s = 2 * (sum(hops_s) + inside_s) * (1 - 1 / self.workers)
        return self._cost(latency_s, max(hops_s), min((self.rate[a][b] for a, b in hops), default=math.inf))

    def _cost(self, latency_s: float, slowest_hop_s: float, rate: float) -> _Cost:
        return _cost(RingConditions(latency_s, slowest_hop_s, rate), self.workers, self.nbytes, alone=self.alone)


def _rings_of(profile: Profile, placement: Sequence[str], names: Sequence[str], nbytes: int, *, alone: bool) -> _Rings:
    def rate(src: str, dst: str) -> float:
        limits = profile.site(src).up, profile.path(src, dst).rate, profile.site(dst).down
        return min((limit.bytes_per_s for limit in limits if limit is not None), default=math.inf)

    return _Rings(
        across_s=tuple(tuple(one_way_s(profile, a, b) for b in names) for a in names),
        rate=tuple(tuple(math.inf if a == b else rate(a, b) for b in names) for a in names),
        inside_s=tuple((one_way_s(profile, a, a),) * (placement.count(a) - 1) for a in names),
        nbytes=nbytes,
        alone=alone,
    )


@lru_cache(maxsize=1024)
def _fastest(rings: _Rings) -> _Order:
    """The order of sites with the least cost, or one close to it if there are many."""
    order = _two_opt(rings, _nearest(rings))
    return _best_of_all(rings, order) if len(order) <= _ALL_ORDERS_OF else order


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


def _best_of_all(rings: _Rings, order: _Order) -> _Order:
    """Branch and bound: every order that begins with the first site, unless it cannot be better than the best."""
    best, cost = order, rings.cost(order)
    open_orders: list[_Order] = [order[:1]]
    while open_orders:
        begun = open_orders.pop()
        rest = [site for site in order if site not in begun]
        if not rest:
            new = rings.cost(begun)
            best, cost = (begun, new) if new < cost else (best, cost)
        elif rings.least(begun, rest) < cost:
            open_orders += [(*begun, site) for site in reversed(rest)]
    return best
