"""Small simulated networks, and workers that only communicate."""

from __future__ import annotations

from collections.abc import Sequence

from wanbench.harness.emulators.plan import TCP_HEADER_BYTES, UNLIMITED, EmulatedNetwork, Link, Queue
from wanbench.harness.testbeds.virtual.fabric import SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import SEGMENT_BYTES, Tcp

MS = 1_000_000
NO_RAMP = Tcp(ramp=False)


def star(
    workers: Sequence[int],
    rtt_ms: float = 100.0,
    rate: float | None = None,
    *,
    jitter_ms: float = 0.0,
    loss: float = 0.0,
    local_ms: float = 0.0,
    delays_ms: dict[tuple[int, int], float] | None = None,
) -> EmulatedNetwork:
    """Return sites with `workers[i]` workers each, all `rtt_ms` apart; `rate` is each site's up and down in bytes/s."""
    sites = len(workers)
    queue = UNLIMITED if rate is None else Queue(rate, 1 << 40)
    one_way = {(a, b): rtt_ms / 2 for a in range(sites) for b in range(sites) if a != b} | (delays_ms or {})
    return EmulatedNetwork(
        sites=tuple(f"s{i}" for i in range(sites)),
        site_of=tuple(site for site, count in enumerate(workers) for _ in range(count)),
        up=(queue,) * sites,
        down=(queue,) * sites,
        local_delay_ns=(round(local_ms * MS),) * sites,
        links={pair: Link(round(ms * MS), round(jitter_ms * MS), loss, UNLIMITED) for pair, ms in one_way.items()},
    )


def ends(
    network: EmulatedNetwork,
    collective: str,
    nbytes: int,
    joins: Sequence[Sequence[float]] = ((0.0,),),
    *,
    channels: int = 1,
    tcp: Tcp = NO_RAMP,
    shuffle: int | None = None,
    seed: int = 0,
) -> list[list[float]]:
    """Return when each all-reduce ends on each rank, in s; rank r joins operation i at `joins[i][r]` (or `[0]`)."""
    simulation = Simulation(shuffle=shuffle)
    fabric = SimulatedFabric(simulation, VirtualNetwork(network, tcp=tcp, seed=seed), collective, channels)
    found = [[0.0] * network.workers for _ in joins]

    def worker(rank: int) -> None:
        flights = []
        for sequence, times in enumerate(joins):
            at = round(times[rank if len(times) > 1 else 0] * 1e9)
            fabric.sleep(rank, at - simulation.now)
            flights.append(fabric.collective(rank, sequence, nbytes, gathers=False))
        for sequence, flight in enumerate(flights):
            fabric.wait(flight, rank)
            found[sequence][rank] = flight.end_for(rank) / 1e9

    for rank in range(network.workers):
        simulation.spawn(rank, lambda rank=rank: worker(rank))
    simulation.run()
    return found


def on_the_wire(payload: int) -> int:
    """Return the bytes on the wire, with headers."""
    return payload + TCP_HEADER_BYTES * -(-payload // SEGMENT_BYTES)


def delivered(route, ready, connections):
    """Return when each message of a route has fully arrived."""
    return route.land(route.depart(ready, connections), connections)
