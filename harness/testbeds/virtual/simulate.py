"""All workers of a repetition on one simulated clock."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.plan.pacing import paces
from wanbench.harness.results.steps import Steps
from wanbench.harness.testbeds.virtual.changing import ChangingNetwork
from wanbench.harness.testbeds.virtual.fabric import SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.workloads.comm.clock import VirtualClock
from wanbench.workloads.comm.memory import MemoryComm, MemoryGroup
from wanbench.workloads.loop import session
from wanbench.workloads.loop.job import Job
from wanbench.workloads.loop.train import Outcome
from wanbench.workloads.seeding import torch_seed


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation: the outcome of every rank, and all step rows."""

    outcomes: Sequence[Outcome]
    steps: Steps


def simulate(
    jobs: Sequence[Job],
    network: EmulatedNetwork,
    tcp: Tcp,
    *,
    shuffle: int | None = None,
    stopped: threading.Event | None = None,
    changing: ChangingNetwork | None = None,
) -> Simulated:
    """Run the jobs of all ranks on one simulated clock.

    Args:
        jobs: jobs by rank, equal except for the rank.
        network: the network between the workers.
        tcp: the modelled features of TCP.
        shuffle, stopped: see `Simulation`.
        changing: changes of the network during training.

    Raises:
        SimulationError: a worker raised an error.
        Stopped: `stopped` was set.
    """
    random_states = _RandomStates(jobs[0].seed) if "model" in jobs[0].workload else None
    simulation = Simulation(shuffle=shuffle, stopped=stopped, enter=random_states)
    first = jobs[0]
    virtual = VirtualNetwork(network, seed=first.seed, tcp=tcp, ring=first.ring)
    paced = first.collective != "gloo" and changing is None  # as on real sockets
    fabric = SimulatedFabric(
        simulation,
        virtual,
        first.collective,
        first.channels,
        one_shot_bytes=first.one_shot_bytes,
        paces=lru_cache(maxsize=None)(partial(paces, network)) if paced else None,
    )
    group = MemoryGroup(len(jobs), fabric)
    if changing is not None:
        changing.follow(simulation, virtual)
    steps = Steps()
    outcomes: dict[int, Outcome] = {}
    for job in jobs:
        simulation.spawn(job.rank, _worker(job, group, steps, outcomes, changing))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker process, because sums depend on it
    try:
        simulation.run()
    finally:
        torch.set_num_threads(threads)
        if random_states is not None:
            random_states.restore()
    return Simulated([outcomes[job.rank] for job in jobs], steps)


def _worker(
    job: Job, group: MemoryGroup, steps: Steps, outcomes: dict[int, Outcome], changing: ChangingNetwork | None
) -> Callable[[], None]:
    """Return a function that runs a job as a worker process does, on the simulated clock."""

    def body() -> None:
        clock = VirtualClock(group.fabric, job.rank)
        comm = MemoryComm(group, job.rank)
        if changing is None:
            outcomes[job.rank] = session.run(job, comm, clock, steps.add, phantom=True)
        else:
            emit = changing.watch_steps(job, steps.add)
            warm = partial(changing.worker_began, job.world_size)
            outcomes[job.rank] = session.run(job, comm, clock, emit, warm=warm, phantom=True)

    return body


class _RandomStates:
    """Swaps the global random states, so that a user's model draws as if its worker were alone in the process."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: dict[int, _States] = {}
        self._before = _random_states()

    def __call__(self, rank: int) -> Callable[[], None]:
        if rank in self._states:
            _set_random_states(self._states[rank])
        else:
            seed = torch_seed(self._seed, "global random states", rank)
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)

        def leave() -> None:
            self._states[rank] = _random_states()

        return leave

    def restore(self) -> None:
        """Restore the states from before the simulation."""
        _set_random_states(self._before)


_States = tuple[Any, ...]


def _random_states() -> _States:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _set_random_states(states: _States) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
