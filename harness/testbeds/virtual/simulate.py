"""All workers of a repetition on one simulated clock, and a network that changes by the schedule of an emulated one."""

from __future__ import annotations

import random
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.pacing import paces
from wanbench.harness.results.steps import Steps
from wanbench.harness.testbeds.base import Event, TimelineRecord, Trained, WorkerDied, pending_events
from wanbench.harness.testbeds.virtual.fabric import SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation, Stopped
from wanbench.harness.testbeds.virtual.membership import EpochFabric, Epochs, VirtualMembership
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.harness.timeline.edits import TimelineError
from wanbench.harness.timeline.schedule import Schedule, WorkerCommand
from wanbench.workloads import imported
from wanbench.workloads.comm.base import Comm
from wanbench.workloads.comm.clock import VirtualClock
from wanbench.workloads.comm.membership import Alone, Minority
from wanbench.workloads.comm.memory import MemoryComm, MemoryGroup
from wanbench.workloads.loop.job import Job, Outcome, StepRow
from wanbench.workloads.loop.train import Emit, Hooks, run
from wanbench.workloads.process.finished import Counters, FinishedJob
from wanbench.workloads.seeding import torch_seed

_NS = 1e9
_CHANGE = 6  # at equal times changes come after all messages
_LOG_TAIL_LINES = 12
_NOTHING = Counters({}, {}, 0, None)
_States = tuple[Any, ...]


def simulated(
    jobs: Sequence[Job],
    network: EmulatedNetwork,
    schedule: Schedule | None,
    tcp: Tcp,
    stopped: threading.Event | None = None,
) -> Trained:
    """Simulate a training run. Arguments are those of `simulate`, with the schedule of the changes.

    Raises:
        RepFailed: a worker raised an error, or waits forever for a message.
    """
    changing = ChangingNetwork(schedule) if schedule is not None else None
    try:
        done = simulate(jobs, network, tcp, stopped=stopped, changing=changing)
    except WorkerDied as error:
        lines = "".join(traceback.format_exception(error.__cause__ or error)).splitlines()
        reason = "; ".join(filter(None, [str(error), changing.cut_off() if changing else ""]))
        raise RepFailed(reason, tuple(lines[-_LOG_TAIL_LINES:])) from error
    except TimelineError as error:
        raise RepFailed(str(error)) from None
    except Stopped:
        raise RepFailed("stopped") from None
    imports = imported.noted()
    finished = {
        rank: FinishedJob(outcome=outcome, imports=imports, lost=[], counters_before=_NOTHING, counters_after=_NOTHING)
        for rank, outcome in done.outcomes.items()
    }
    return Trained(done.steps, finished, vars(tcp), timeline=changing.record() if changing else None)


def serve_forked(sock: socket.socket, _: dict[str, Any]) -> None:
    """Answer arguments of `simulated` with what was `Trained`, or with `RepFailed`, until end of file."""
    connection = Connection(sock.detach())
    while True:
        try:
            arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Trained | RepFailed = simulated(*arguments)
        except RepFailed as error:
            answer = error
        sys.stdout.flush()  # what a user's code printed appears with its repetition
        sys.stderr.flush()
        connection.send(answer)


def simulate(
    jobs: Sequence[Job],
    network: EmulatedNetwork,
    tcp: Tcp,
    *,
    shuffle: int | None = None,
    stopped: threading.Event | None = None,
    changing: ChangingNetwork | None = None,
) -> Workers:
    """Run the jobs of all ranks on one simulated clock. Return the workers, with what they did.

    Args:
        jobs: by rank, equal except for the rank. network: between the workers. tcp: the modelled features of TCP.
        shuffle, stopped: see `Simulation`.
        changing: changes of the network during training.

    Raises:
        WorkerDied: a worker raised an error.
        Stopped: `stopped` was set.
    """
    random_states = _RandomStates(jobs[0].seed)
    enter = random_states.of if "model" in jobs[0].workload else nullcontext
    simulation = Simulation(shuffle=shuffle, stopped=stopped, enter=enter)
    virtual = VirtualNetwork(network, seed=jobs[0].seed, tcp=tcp, ring=jobs[0].ring)
    workers = Workers(jobs, simulation, virtual, network, changing)
    if changing is not None:
        changing.follow(simulation, virtual, workers.obey)
    for job in jobs:
        workers.start(job)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker process, because sums depend on it
    try:
        simulation.run()
    finally:
        torch.set_num_threads(threads)
        random_states.restore()
    if not workers.outcomes:
        raise WorkerDied(0, ": no worker with a model was left")
    workers.outcomes = dict(sorted(workers.outcomes.items()))
    return workers


class Workers:
    """The workers of a simulation, which run their jobs as worker processes do.

    Attributes:
        outcomes: by rank, without those that were killed for good. steps: the rows of all.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        simulation: Simulation,
        virtual: VirtualNetwork,
        network: EmulatedNetwork,
        changing: ChangingNetwork | None,
    ) -> None:
        self._jobs, self._simulation, self._changing = jobs, simulation, changing
        self.outcomes: dict[int, Outcome] = {}
        self.steps = Steps()
        first = jobs[0]
        paced = first.collective != "gloo" and (changing is None or first.deadline_s is not None)  # as on real sockets
        settings: dict[str, Any] = {
            "one_shot_bytes": first.one_shot_bytes,
            "paces": lru_cache(maxsize=None)(partial(paces, network)) if paced else None,
        }
        if first.deadline_s is None:
            self._epochs = None
            fabric = SimulatedFabric(simulation, virtual, first.collective, first.channels, **settings)
            self._group = MemoryGroup(len(jobs), fabric)
        else:
            make = partial(EpochFabric, simulation, virtual, first.channels, settings)
            self._epochs = Epochs(simulation, virtual, len(jobs), make)
            self._group = self._epochs.epoch.group

    def start(self, job: Job) -> None:
        """Let a worker begin."""
        self._simulation.spawn(job.rank, partial(self._run, job))

    def obey(self, command: WorkerCommand) -> None:
        """Kill workers, or start killed ones again."""
        assert self._epochs is not None, "the plan gives jobs a deadline if workers are killed"
        for rank in command.ranks:
            if command.message["cmd"] == "kill":
                killed = rank not in self.outcomes and self._epochs.kill(rank)
                if killed and not command.message["again"] and self._changing is not None:
                    self._changing.worker_lost()
            elif rank not in self.outcomes and self._epochs.revive(rank):
                self.start(replace(self._jobs[rank], returned=True))

    def _run(self, job: Job) -> None:
        hooks = Hooks(self.steps.add)
        if self._changing is not None:
            emit = self._changing.watch_steps(job, self.steps.add)
            hooks = Hooks(emit) if job.returned else Hooks(emit, partial(self._changing.worker_began, job.world_size))
        membership = None if self._epochs is None else VirtualMembership(self._epochs, job.rank)
        comm: Comm = Alone() if job.returned else MemoryComm(self._group, job.rank)
        clock = VirtualClock(self._group.fabric, job.rank)
        try:
            self.outcomes[job.rank] = run(job, comm, clock, hooks, phantom=True, membership=membership)
        except Minority:  # it has returned after the others had ended
            if self._changing is not None:
                self._changing.worker_lost()


class ChangingNetwork:
    """Updates a `VirtualNetwork` when its changes are due."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._steps: dict[int, int] = {}
        self._done = -1
        self._warm = self._trained = 0
        self._origin: int  # when all have begun
        self._past: list[Event] = []
        self._present = schedule.network

    def follow(self, simulation: Simulation, network: VirtualNetwork, obey: Callable[[WorkerCommand], None]) -> None:
        """Set the simulation, its network, and what kills and starts workers, before it runs."""
        self._simulation, self._network, self._obey = simulation, network, obey

    def worker_began(self, workers: int) -> None:
        """Note that one worker begins its first step. The timeline starts when the last of them does."""
        self._warm += 1
        if self._warm == workers:
            self._origin = self._simulation.now
            self._reschedule()

    def worker_lost(self) -> None:
        """Note that one worker will not end its training."""
        self._warm -= 1
        self._note_end()

    def watch_steps(self, job: Job, emit: Emit) -> Emit:
        """Return an `emit` that also notes the ends of awaited steps, and of the last one.

        When all workers have trained, the network returns to its original values, and messages that an endless cut
        holds back arrive after all.
        """

        def emit_and_note(row: StepRow) -> None:
            emit(row)
            ended = row.step + 1
            if ended == job.steps:
                self._trained += 1
                self._note_end()
            elif ended in job.told_steps:
                self._steps[ended] = max(self._now, self._done + 1)
                self._reschedule()

        return emit_and_note

    def _note_end(self) -> None:
        if self._trained == self._warm:
            self._simulation.goes_past_never = True
            self._network.update(self._schedule.network)
            self._network.outages.expect(self._network.dead)

    def record(self) -> TimelineRecord:
        """Return what happened: the past changes in order, then the pending ones. Call it at the end."""
        pending = pending_events(self._schedule.resolved(self._steps), self._done)
        return TimelineRecord([*self._past, *pending], self._steps, self._origin)

    def cut_off(self) -> str:
        """Describe what is cut off at the end; "" if nothing is."""
        return self._schedule.resolved(self._steps).cut_off(self._done)

    @property
    def _now(self) -> int:
        return self._simulation.now - self._origin

    def _reschedule(self) -> None:
        """Schedule the known changes again, because more of them have become known."""
        resolved, origin, sites = self._schedule.resolved(self._steps), self._origin, self._network.sites
        self._network.outages.expect(
            {
                src * sites + dst: [(origin + begin, None if end is None else origin + end) for begin, end in spans]
                for (src, dst), spans in resolved.outages().items()
            }
        )
        self._wait(resolved.after(self._done))

    def _wait(self, due: int | None) -> None:
        if due is not None:
            self._simulation.at(self._origin + due, (_CHANGE,), lambda: self._change(due))

    def _change(self, due: int) -> None:
        if due <= self._done or self._trained == self._warm:  # scheduled twice after an awaited step, or too late
            return
        resolved = self._schedule.resolved(self._steps)
        moment = resolved.moment(due)
        if moment.network != self._present:
            self._network.update(moment.network)
            self._present = moment.network
        for command in moment.commands:
            self._obey(command)
        self._done = due
        now = self._simulation.now
        self._past += [Event(what, due / _NS, self._now / _NS, now) for what in moment.what]
        self._wait(resolved.after(due))


class _RandomStates:
    """Swaps the global random states, so that a user's model draws as if its worker were alone in the process."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: dict[int, _States] = {}
        self._before = _random_states()

    @contextmanager
    def of(self, rank: int) -> Iterator[None]:
        if rank in self._states:
            _set_random_states(self._states[rank])
        else:
            seed = torch_seed(self._seed, "global random states", rank)
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)

        yield
        self._states[rank] = _random_states()

    def restore(self) -> None:
        """Restore the states from before the simulation."""
        _set_random_states(self._before)


def _random_states() -> _States:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _set_random_states(states: _States) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
