"""Replicas in float64 on the simulated clock, each with its own time per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from trained import PLAIN, START
from virtual_world import NO_RAMP, star

from wanbench.harness.testbeds.virtual.fabric import SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.workloads.algorithms.base import Algorithm, Replica
from wanbench.workloads.comm.clock import VirtualClock
from wanbench.workloads.comm.memory import MemoryComm, MemoryGroup
from wanbench.workloads.compute.optim import make as make_optimizer


def pull(rank: int, w: torch.Tensor) -> torch.Tensor:
    """The gradient of a quadratic loss with a minimum of its own on each rank."""
    return (w - (rank + 1)) * torch.linspace(0.5, 1.5, w.numel(), dtype=torch.float64)


def on_the_clock(
    make: Callable[[], Algorithm],
    step_s: Sequence[float],
    *,
    steps: int | Sequence[int],
    sites: Sequence[int] | None = None,
    rtt_ms: float = 0.0,
    drain_after: Sequence[int] = (),
    shuffle: int | None = None,
) -> list[list[tuple[float, torch.Tensor]]]:
    """Train; return for each rank (time in seconds, w) after each step, and at last after `finish`.

    Args:
        step_s: time per step of each rank.
        sites: number of workers of each site; by default one site.
    """
    world = len(step_s)
    network = star(sites or [world], rtt_ms)
    simulation = Simulation(shuffle=shuffle)
    fabric = SimulatedFabric(simulation, VirtualNetwork(network, tcp=NO_RAMP), "direct", 1)
    group = MemoryGroup(world, fabric)
    found: list[list[tuple[float, torch.Tensor]]] = [[] for _ in range(world)]

    def worker(rank: int) -> None:
        clock, w = VirtualClock(fabric, rank), START.clone()
        replica = Replica(w, torch.zeros_like(w), make_optimizer(PLAIN), MemoryComm(group, rank))
        replica.site_of = network.site_of
        algorithm = make()
        algorithm.start(replica)
        for step in range(steps if isinstance(steps, int) else steps[rank]):
            clock.sleep(step_s[rank])
            replica.step = step
            replica.optimizer.advance(step)
            replica.optimizer.step(w, replica.m, algorithm.gradient(pull(rank, w)))
            algorithm.stepped()
            found[rank].append((clock.now() / 1e9, w.clone()))
            if step in drain_after:
                algorithm.finish()
        algorithm.finish()
        found[rank].append((clock.now() / 1e9, w.clone()))

    for rank in range(world):
        simulation.spawn(rank, lambda rank=rank: worker(rank))
    simulation.run()
    return found
