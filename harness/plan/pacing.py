"""How fast each worker sends to each other worker, so that no queue of the network overflows.

In a collective, every worker sends to all others at once. If each connection sends as fast as TCP lets it, N-1 senders
fill the receiver's buffer together, and lose packets. A connection therefore gets its fair share of the narrowest queue
on its way. Messages to single peers, as in gossip, leave all workers of a site at once and share its link; if a worker
sends to several, TCP shares its part. In a ring, a queue is shared only by the neighbours between whom it lies.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from wanbench.harness.emulators.plan import EmulatedNetwork, Queue, build, payload_share
from wanbench.harness.plan.conditions import effective_conditions
from wanbench.harness.plan.law import one_shot_limit
from wanbench.harness.plan.ring_order import ring_order
from wanbench.netprofiles import Profile
from wanbench.workloads.group.settings import COLLECTIVE, ONE_SHOT, PACES, RING, SITES

_BUCKET_BYTES = 25 << 20  # of DDP
_ACKNOWLEDGEMENT_BYTES = 30  # for each packet, with some to spare

# The connections of a collective from one site to another, at its up, path and down queue.
_Flows = Callable[[int, int], tuple[int, int, int]]


def room(mtu: int) -> float:
    """The share of a rate that data take: 0.98 at 1500 bytes.

    The rest is for acknowledgements of the traffic in the other direction: of 52 bytes, for every two packets.
    """
    return 1 - _ACKNOWLEDGEMENT_BYTES / mtu


def paces(
    network: EmulatedNetwork, rank: int, *, leaders: bool = False, ring: Sequence[int] = ()
) -> list[list[float | None]]:
    """Return [rate of a collective, rate of a message] of a worker to every rank, in payload bytes/s.

    None is unlimited: to itself, inside a site, and where no queue has a rate.

    Args:
        leaders: whether only one worker of each site takes part in collectives, as in `hierarchical`.
        ring: all ranks in their order, if each sends collectives to the next one only, as in `ring`. Rates to others
            than the next have no meaning.
    """
    here = network.site_of[rank]
    flows = (
        _around(network.site_of, ring) if ring else _between_all(set(network.site_of) if leaders else network.site_of)
    )
    workers = Counter(network.site_of)
    by_site: dict[int, list[float | None]] = {here: [None, None]}
    for there in {*network.site_of} - {here}:
        queues = network.up[here], network.links[here, there].queue, network.down[there]
        messages = workers[here], workers[here], workers[there]
        by_site[there] = [_share(queues, flows(here, there), network.mtu), _share(queues, messages, network.mtu)]
    return [by_site[site] for site in network.site_of]


def network_environments(
    profile: Profile,
    sites: Sequence[str],
    mtu: int,
    *,
    collective: str | None,
    processes: int = 1,
    ring: Sequence[int] | None = None,
) -> tuple[dict[str, str], ...]:
    """Return what the process group `wan` of each worker is told about the network: variables of its environment.

    Args:
        sites: the site of each worker.
        collective: in `hierarchical` one process of each site sends to other sites, in `ring` one of each worker to the
            next one. None: `gloo` may be used too.
        processes: of a worker. They share its links, so each gets a part of their rate.
        ring: the workers in the order of `ring`; by default that which suits messages of DDP's buckets.
    """
    network = build(profile, sites, mtu)
    by_site = collective == "hierarchical"
    order = (ring or ring_order(profile, sites, _BUCKET_BYTES, alone=True)) if collective == "ring" else ()
    sending = 1 if by_site or order else processes
    ranks = len(set(sites)) if by_site else len(sites) * processes
    rtt_s, rate = effective_conditions(profile, sites)
    common = {
        SITES: json.dumps([site for site in sites for _ in range(processes)]),
        **({} if collective in (None, "gloo") else {COLLECTIVE: collective}),
        **({RING: ",".join(str(w * processes + p) for w in order for p in range(processes))} if order else {}),
        ONE_SHOT: str(one_shot_limit(ranks, rtt_s, rate and rate / sending) if ranks > 1 else 0),
    }
    environments = []
    for worker in range(len(sites)):
        rates = [
            [rate and round(rate / share) for rate, share in zip(pair, (sending * sending, processes), strict=True)]
            for pair in paces(network, worker, leaders=by_site, ring=order)
            for _ in range(processes)
        ]
        environments.append({**common, PACES: json.dumps(rates)})
    return tuple(environments)


def _share(queues: Sequence[Queue], flows: Sequence[int], mtu: int) -> float | None:
    """The payload rate of each of so many flows through these queues; None is unlimited."""
    rates = [
        queue.rate_bytes_per_s / sharing
        for queue, sharing in zip(queues, flows, strict=True)
        if queue.rate_bytes_per_s is not None and sharing
    ]
    return min(rates) * payload_share(mtu) * room(mtu) if rates else None


def _between_all(sites: Iterable[int]) -> _Flows:
    """Each worker of these sites sends to all others."""
    workers = Counter(sites)
    flows = {site: count * (workers.total() - count) for site, count in workers.items()}
    return lambda here, there: (flows[here], workers[here] * workers[there], flows[there])


def _around(site_of: Sequence[int], ring: Sequence[int]) -> _Flows:
    """Each worker sends to the next one in the ring."""
    sites = [site_of[rank] for rank in ring]
    hops = Counter(hop for hop in zip(sites, [*sites[1:], sites[0]], strict=True) if hop[0] != hop[1])
    leaving, entering = Counter(src for src, _ in hops.elements()), Counter(dst for _, dst in hops.elements())
    return lambda here, there: (leaving[here], hops[here, there], entering[there])
