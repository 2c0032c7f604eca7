"""How fast each worker sends to each other worker, so that no queue of the network overflows.

In a collective, every worker sends to all others at once. If each connection sends as fast as TCP lets it, N-1 senders
fill the receiver's buffer together, and lose packets. A connection therefore gets its fair share of the narrowest queue
on its way. A message to one peer gets the whole rate of its path; if a worker sends to several at once, TCP shares it.
"""

from __future__ import annotations

from collections import Counter

from wanbench.harness.emulators.plan import MTU, TCP_HEADER_BYTES, EmulatedNetwork, slowest

# Payload in a packet, and room for acknowledgements of the traffic in the other direction.
_PAYLOAD_SHARE = (MTU - TCP_HEADER_BYTES) / MTU
_ROOM = 0.98


def paces(network: EmulatedNetwork, rank: int, *, leaders: bool = False) -> list[list[float | None]]:
    """Return [rate of a collective, rate of a message] of a worker to every rank, in payload bytes/s.

    None is unlimited: to itself, inside a site, and where no queue has a rate.

    Args:
        leaders: whether only one worker of each site takes part in collectives, as in `hierarchical`.
    """
    workers = Counter(set(network.site_of) if leaders else network.site_of)
    here, everyone = network.site_of[rank], workers.total()
    by_site: dict[int, list[float | None]] = {here: [None, None]}
    for there in workers:
        if there == here:
            continue
        shared = (
            (network.up[here], workers[here] * (everyone - workers[here])),
            (network.links[here, there].queue, workers[here] * workers[there]),
            (network.down[there], workers[there] * (everyone - workers[there])),
        )
        rates = [queue.rate_bytes_per_s / flows for queue, flows in shared if queue.rate_bytes_per_s is not None]
        alone = slowest(*(queue for queue, _ in shared))
        by_site[there] = [_payload(min(rates, default=None)), _payload(alone)]
    return [by_site[site] for site in network.site_of]


def _payload(rate: float | None) -> float | None:
    return None if rate is None else rate * _PAYLOAD_SHARE * _ROOM
