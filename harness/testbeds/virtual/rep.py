"""One repetition of one cell on the simulated clock."""

from __future__ import annotations

import random
import threading
import traceback
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wanbench.harness.emulators.plan import Network
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.cell import Cell
from wanbench.harness.rep.train import jobs, network_of, schedule_of, stragglers_of, write_events, write_messages
from wanbench.harness.results.row import Measured, describe, trained
from wanbench.harness.results.store import write_json
from wanbench.harness.testbeds.virtual.changing import Changing
from wanbench.harness.testbeds.virtual.fabric import SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation, SimulationError, Stopped
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.harness.timeline.edits import TimelineError
from wanbench.workloads.comm.clock import VirtualClock
from wanbench.workloads.comm.memory import MemoryComm, MemoryGroup
from wanbench.workloads.loop import session
from wanbench.workloads.loop.job import Job
from wanbench.workloads.loop.train import Outcome
from wanbench.workloads.seeding import torch_seed

_LOG_TAIL_LINES = 12


class Steps:
    """The rows of all workers in columns: a million of dicts would take a gigabyte."""

    _INTEGERS = ("rank", "step", "end_ns", "payload_bytes", "messages_sent")

    def __init__(self) -> None:
        self._columns: dict[str, array[Any]] = {}
        self.first_rank: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        """One row of `workloads.loop.train`."""
        if not self._columns:
            self._columns = {name: array("q" if name in self._INTEGERS else "d") for name in row}
        for name, value in row.items():
            self._columns[name].append(float("nan") if value is None else value)
        if row["rank"] == 0:
            self.first_rank.append(row)

    def write(self, path: Path) -> None:
        """One row per rank and step, as Parquet; the same file as on other testbeds."""
        import pandas as pd

        columns = {name: np.frombuffer(values, values.typecode) for name, values in self._columns.items()}
        order = np.lexsort((columns["step"], columns["rank"]))
        data = {
            name: None if values.dtype == np.float64 and np.isnan(values).all() else values[order]
            for name, values in columns.items()
        }
        pd.DataFrame(data, index=range(len(order))).to_parquet(path, index=False)


@dataclass(frozen=True)
class Simulated:
    """What came out of a simulation: the outcome of every rank, and all rows."""

    outcomes: Sequence[Outcome]
    steps: Steps


def measure_virtual(cell: Cell, rep: int, folder: Path, stopped: threading.Event) -> dict[str, Any]:
    """Simulate the repetition and return its row.

    Args:
        folder: takes the step rows and the network's values.
        stopped: ends the simulation when set.

    Raises:
        RepFailed: a worker raised an error, or waits for what never comes.
    """
    network = network_of(cell)
    settings = cell.config["network"]["tcp"]
    tcp = Tcp(cell.config["virtual"]["tcp_ramp"], settings["slow_start_after_idle"])
    changing = Changing(schedule_of(cell)) if cell.changes else None
    try:
        simulated = simulate(jobs(cell, rep, ""), network, tcp, stopped=stopped, changing=changing)
    except SimulationError as error:
        lines = "".join(traceback.format_exception(error.__cause__ or error)).splitlines()
        reason = "; ".join(filter(None, [f"worker {error.rank}: {error}", changing.cut_off() if changing else ""]))
        raise RepFailed(reason, tuple(lines[-_LOG_TAIL_LINES:])) from error
    except TimelineError as error:
        raise RepFailed(str(error)) from None
    except Stopped:
        raise RepFailed("stopped") from None
    simulated.steps.write(folder / "steps.parquet")
    write_messages(folder / "messages.parquet", simulated.outcomes[0].messages)
    write_json(folder / "network.json", {"configured": network.to_json(), "probe": None, "tcp": vars(tcp)})
    finished = {rank: {"outcome": vars(outcome)} for rank, outcome in enumerate(simulated.outcomes)}
    measured = Measured(rows=simulated.steps.first_rank, finished=finished)
    row = describe(cell, rep) | trained(cell, measured) | {"status": "ok"}
    if changing is not None:
        row["events"] = write_events(folder, changing.as_told(stragglers_of(cell, measured)))
    return row


def simulate(
    todo: Sequence[Job],
    network: Network,
    tcp: Tcp,
    *,
    shuffle: int | None = None,
    stopped: threading.Event | None = None,
    changing: Changing | None = None,
) -> Simulated:
    """Run the jobs of all ranks on one simulated clock.

    Args:
        todo: by rank; equal but for the rank. network: what joins them.
        tcp: what of TCP is modelled. shuffle: see `Simulation`, as `stopped`.
        changing: how the network changes meanwhile.

    Raises:
        SimulationError: a worker raised. Stopped: `stopped` was set.
    """
    own = _RandomStates(todo[0].seed) if "model" in todo[0].workload else None
    simulation = Simulation(shuffle=shuffle, stopped=stopped, own=own)
    joined = VirtualNetwork(network, seed=todo[0].seed, tcp=tcp)
    fabric = SimulatedFabric(simulation, joined, todo[0].collective, todo[0].channels)
    group = MemoryGroup(len(todo), fabric)
    if changing is not None:
        changing.follow(simulation, joined)
    steps = Steps()
    outcomes: dict[int, Outcome] = {}
    for job in todo:
        simulation.spawn(job.rank, _worker(job, group, steps, outcomes, changing))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker process; sums depend on it
    try:
        simulation.run()
    finally:
        torch.set_num_threads(threads)
        if own is not None:
            own.restore()
    return Simulated([outcomes[job.rank] for job in todo], steps)


def _worker(
    job: Job, group: MemoryGroup, steps: Steps, outcomes: dict[int, Outcome], changing: Changing | None
) -> Callable[[], None]:
    """What a worker process does with a job, on the simulated clock."""

    def body() -> None:
        clock = VirtualClock(group.fabric, job.rank)
        comm = MemoryComm(group, job.rank)
        if changing is None:
            outcomes[job.rank] = session.run(job, comm, clock, steps.add, phantom=True)
        else:
            emit = changing.heard(job, steps.add)
            warm = partial(changing.began, job.world_size)
            outcomes[job.rank] = session.run(job, comm, clock, emit, warm=warm, phantom=True)

    return body


class _RandomStates:
    """Swaps the global random states, so that a user's model draws as if its worker had the process to itself."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: dict[int, _States] = {}
        self._before = _random_states()

    def __call__(self, rank: int) -> Callable[[], None]:
        if rank in self._states:
            _set_random_states(self._states[rank])
        else:
            own = torch_seed(self._seed, "global random states", rank)
            torch.manual_seed(own)
            random.seed(own)
            np.random.seed(own % 2**32)

        def leave() -> None:
            self._states[rank] = _random_states()

        return leave

    def restore(self) -> None:
        """As before the simulation."""
        _set_random_states(self._before)


_States = tuple[Any, ...]


def _random_states() -> _States:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _set_random_states(states: _States) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
