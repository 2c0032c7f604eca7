"""One measured execution of a cell, resolved: what a testbed runs, what is judged, and what its row says beforehand.

A cell makes it once (`Cell.repetition`). Whatever comes after asks the repetition, and never the cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wanbench.harness.emulators.plan import EmulatedNetwork, payload_share, worker_address
from wanbench.harness.plan.host_tcp import HostTcp, host_tcp
from wanbench.harness.plan.law import all_reduce_time, predict
from wanbench.harness.plan.pacing import network_environments, paces
from wanbench.harness.spec import command as spec
from wanbench.harness.spec.launch_lines import Node
from wanbench.harness.spec.tables import ContainersTable, TcpTable, count
from wanbench.harness.timeline.changes import Change, has_endless_outage, planned_outage_s
from wanbench.harness.timeline.failures import Machine, failures
from wanbench.harness.timeline.schedule import Schedule
from wanbench.workloads.group.settings import REPLACES_GLOO
from wanbench.workloads.loop.job import Job

if TYPE_CHECKING:
    from wanbench.harness.plan.cell import Cell, CommandCell, TrainingCell

DEFAULT_WARMUP = count(spec.DEFAULT_WARMUP)
WARM_ROUNDS = 3  # all-reduces before training begins
GUESSED_STEP_S = 5.0  # one step of real compute
PATIENCE_S = 60.0  # allowed silence of workers on a busy host, in addition to the predicted times
_PATIENCE_STEPS = 10
_LONGEST_TIMEOUT_S = 120.0  # of TCP
_FAILING_SHARE = 20  # machines fail for so many times the predicted time of training, so that it always ends
_SETTLED_STEPS, _SETTLED_S = 30, 10.0  # after so many steps and seconds, a worker that returned has a model
_LEAST_DEADLINE_S, _ROUND_TRIPS = 1.0, 4  # of a deadline, for connections to be made on a busy host


@dataclass(frozen=True)
class Inputs:
    """What a repetition reads besides the code of wanbench.

    Attributes:
        folder: what paths of files are relative to: that of a command, or the working folder.
        testbed: where it is read.
        command: the arguments, some of which name files. workload: the `[workload]` table of what is trained.
        mounted: folders of this host that the workers read, which containers have to see.
    """

    folder: Path
    testbed: str
    command: tuple[str, ...] = ()
    workload: Mapping[str, Any] | None = None
    mounted: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """What all repetitions have.

    Attributes:
        name: unique in a run; files beside the workers are called by it. seed: of this repetition.
        columns: those of its row that are known before it is measured.
        sites: the site of each rank. tcp: of the hosts. host_tcp: the buffers that they get.
        network: between the workers.
        changes: of the timeline. schedule: they and random failures; None if nothing changes and no worker is lost.
        predicted_step_time_s: by the step-time law; None where it does not hold.
    """

    name: str
    seed: int
    columns: Mapping[str, Any]
    inputs: Inputs
    testbed: str
    containers: ContainersTable
    sites: tuple[str, ...]
    tcp: TcpTable
    host_tcp: HostTcp
    network: EmulatedNetwork
    changes: tuple[Change, ...]
    schedule: Schedule | None
    predicted_step_time_s: float | None

    @property
    def workers(self) -> int:
        return len(self.sites)


@dataclass(frozen=True, kw_only=True)
class TrainingRepetition(Repetition):
    """A training run in wanbench's own loop.

    Attributes:
        jobs: by rank, without the rendezvous, which is a file of this host.
        patience_s: silence of all workers after which they count as hung.
        step_times_s: mean time of a step of each worker; of real compute, 0. uneven: whether they differ.
        delay, period, own_pace: of the algorithm.
        target: accuracy to which the time is measured; None for none.
        loses_workers: whether some are killed. at_random: whether that is drawn, for longer than training takes.
        tcp_ramp: whether the simulated TCP has a growing window.
    """

    jobs: tuple[Job, ...]
    patience_s: float
    step_times_s: tuple[float, ...]
    uneven: bool
    delay: int
    period: int
    own_pace: bool
    target: float | None
    loses_workers: bool
    at_random: bool
    tcp_ramp: bool

    @property
    def steps(self) -> int:
        """Number of all steps."""
        return self.jobs[0].steps

    @property
    def window(self) -> int:
        """Number of measured steps."""
        return self.jobs[0].window_steps


@dataclass(frozen=True, kw_only=True)
class Command:
    """How a user's program is called and timed.

    Attributes:
        command: the arguments, with placeholders filled in. environment: variables that describe algorithm and axes.
        processes: processes per worker. warmup: first steps, not counted. hook: torch's optimizers report its steps.
        rendezvous: "network" if it crosses the emulated network, else "local".
        timeout_s: it is killed after this time; None for never.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1
    warmup: int = DEFAULT_WARMUP
    hook: bool = False
    rendezvous: str = "network"
    timeout_s: float | None = None

    def node(self, workers: int, worker: int = 0) -> Node:
        """The place of one of several workers. Rank 0 is at the local address of each if the rendezvous is local."""
        return Node(
            str(worker), workers, worker_address(0) if self.rendezvous == "network" else "127.0.0.1", self.processes
        )

    def settings(self) -> dict[str, Any]:
        """These fields, of a class that has others too."""
        return {setting.name: getattr(self, setting.name) for setting in fields(Command)}


@dataclass(frozen=True, kw_only=True)
class CommandRepetition(Repetition, Command):
    """A user's program. `group`: variables of each worker for the process group `wan`."""

    group: tuple[Mapping[str, str], ...]


def training(cell: TrainingCell, rep: int) -> TrainingRepetition:
    algorithm, shared = cell.algorithm(), _shared(cell, rep, changes_of(cell, rep))
    patience = patience_s(cell)
    return TrainingRepetition(
        **shared,
        jobs=_jobs(cell, shared["seed"], shared["network"], shared["schedule"], patience),
        patience_s=patience,
        step_times_s=cell.each_step_time_s,
        uneven=bool(cell.step_times),
        delay=algorithm.delay_steps,
        period=algorithm.period_steps,
        own_pace=algorithm.own_pace,
        target=cell.train.target,
        loses_workers=cell.loses_workers,
        at_random=cell.failures.mtbf != "none",
        tcp_ramp=cell.virtual.tcp_ramp,
    )


def command(cell: CommandCell, rep: int) -> CommandRepetition:
    shared = _shared(cell, rep, cell.changes)
    replaced = {} if cell.collective in (None, "gloo") else {REPLACES_GLOO: "1"}
    told = network_environments(
        cell.profile, cell.placement, cell.mtu, collective=cell.collective, processes=cell.processes
    )
    environment = {**spec.axis_environment(cell.axes), **cell.environment, "WANBENCH_SEED": str(shared["seed"])}
    called = cell.settings() | {"environment": environment}
    return CommandRepetition(**shared, **called, group=tuple({**variables, **replaced} for variables in told))


def _shared(cell: Cell, rep: int, changes: Sequence[Change]) -> dict[str, Any]:
    """The fields of `Repetition`."""
    network = cell.emulated_network
    scheduled = changes or cell.loses_workers
    return {
        "name": f"{cell.key}-{rep}",
        "seed": cell.seed + rep,
        "columns": cell.columns(rep),
        "inputs": cell.inputs,
        "testbed": cell.testbed,
        "containers": cell.containers,
        "sites": cell.placement,
        "tcp": cell.tcp,
        "host_tcp": host_tcp(cell.tcp, network.socket_buffer_bytes, cell.rate_scale),
        "network": network,
        "changes": cell.changes,
        "schedule": Schedule(changes, network, cell.profile, cell.rate_scale) if scheduled else None,
        "predicted_step_time_s": cell.predicted_step_time_s,
    }


def _jobs(
    cell: TrainingCell, seed: int, network: EmulatedNetwork, schedule: Schedule | None, patience: float
) -> tuple[Job, ...]:
    workload = cell.task.plain()
    workloads = [{**workload, "step_time": str(time)} for time in cell.step_times] or [workload] * cell.workers
    slow = [[]] * cell.workers if schedule is None else slowdowns(schedule)
    told_steps = _told_steps(cell.steps, schedule, packets_are_lost=cell.emulator is not None and network.loses)
    ring = cell.ring if cell.collective == "ring" else ()
    # A change can raise a rate, and connections keep their pace.
    steady = all(change.kind in ("kill", "slow") for change in cell.changes)
    paced = cell.collective != "gloo" and cell.testbed != "virtual" and steady
    ahead_s = 0.0  # how long the fastest worker waits at the end for the slowest, if no step waits
    if cell.step_times and cell.algorithm().promises.goes_on:
        ahead_s = cell.steps * (max(cell.step_times).seconds - min(cell.step_times).seconds)
    settings = {  # built once instead of for each of a thousand ranks
        **_settings(cell),
        "seed": seed,
        "timeout_s": 2 * patience + ahead_s,  # the controller reports a hang before the workers do
        "site_of": network.site_of,
        "ring": ring,
    }
    return tuple(
        Job(
            rank=rank,
            workload=workloads[rank],
            slow=slow[rank],
            told_steps=told_steps[min(rank, 1)],
            paces=paces(network, rank, leaders=cell.collective == "hierarchical", ring=ring) if paced else (),
            **settings,
        )
        for rank in range(cell.workers)
    )


def _settings(cell: TrainingCell) -> dict[str, Any]:
    """The fields of `Job` that all ranks share and that follow from the cell alone."""
    law, algorithm = cell.law_inputs, cell.algorithm()
    rate = law.rate_bytes_per_s
    return {
        "world_size": cell.workers,
        "train": cell.train.plain(),
        "kind": cell.kind,
        "params": cell.params,
        "collective": cell.collective,
        "channels": cell.channels,
        "bucket_bytes": cell.comm.buckets.bytes,
        "steps": cell.steps,
        "window_begin": cell.window_begin,
        "window_steps": cell.window,
        "eval_every": cell.train.eval_every,
        # Datagrams have no window to open, and TCP is very slow on a path with high loss.
        "warm_rounds": 0 if cell.workers == 1 or algorithm.datagrams else WARM_ROUNDS,
        "warm_in_flight": cell.warm_in_flight,
        "warm_numel": max(cell.workers, cell.message_bytes // 4),
        "warm_spacing_s": all_reduce_time(law, law.message_bytes)[1],
        "rendezvous": "",
        "deadline_s": deadline_s(cell),
        "one_shot_bytes": 0 if algorithm.datagrams else law.one_shot_bytes,
        "datagram_bytes_per_s": rate / payload_share(cell.mtu) if rate is not None and algorithm.datagrams else None,
    }


def _told_steps(
    steps: int, schedule: Schedule | None, *, packets_are_lost: bool
) -> tuple[Sequence[int], Sequence[int]]:
    """The steps whose end is reported at once: by rank 0, and by the other ranks."""
    if schedule is None:
        last = (steps,) if packets_are_lost else ()
        return last, last
    return (*schedule.awaited_steps, steps), (steps,)


def slowdowns(schedule: Schedule) -> list[list[dict[str, Any]]]:
    """The fields of `workloads.compute.emulated.Slowdown` for each rank."""
    by_rank: list[list[dict[str, Any]]] = [[] for _ in range(schedule.network.workers)]
    for index, change in enumerate(schedule.changes):
        if change.kind == "slow":
            for rank in schedule.ranks(index):
                by_rank[rank] += [
                    {
                        "factor": float(change.value),
                        "at_step": change.at_step,
                        "begin_ns": (change.at_ns or 0) + span.begin_ns,
                        "end_ns": None if span.end_ns is None else (change.at_ns or 0) + span.end_ns,
                    }
                    for span in change.spans()
                ]
    return by_rank


def patience_s(cell: TrainingCell) -> float:
    """The allowed silence of a cell's workers before they count as hung. They report about every second."""
    law = predict(cell.law_inputs)
    step_time_s = GUESSED_STEP_S if cell.workload.step_time_s is None else law.step_time_s
    slowest: float = max([1.0, *(change.value for change in cell.changes if change.kind == "slow")])
    # TCP doubles its timeout with each retransmission, so a stall can be twice as long as the outage.
    outage_s = 2 * planned_outage_s(cell.changes)
    if has_endless_outage(cell.changes):  # it ends with training
        outage_s += min(_LONGEST_TIMEOUT_S, 2 * cell.steps * step_time_s)
    return PATIENCE_S + outage_s + _PATIENCE_STEPS * (slowest * step_time_s + law.all_reduce_s)


def deadline_s(cell: TrainingCell) -> float | None:
    """The time after which workers go on without one that cannot be reached; None if they wait for it."""
    if not cell.loses_workers:
        return None
    law = predict(cell.law_inputs)
    return count(cell.comm.deadline) * law.step_time_s + _LEAST_DEADLINE_S + _ROUND_TRIPS * cell.law_inputs.rtt_s


def changes_of(cell: TrainingCell, rep: int) -> tuple[Change, ...]:
    """The changes of a cell's timeline, and the random failures of one repetition."""
    if cell.failures.mtbf == "none":
        return cell.changes
    mtbf_s, mttr_s = cell.failures.mtbf.seconds, cell.failures.mttr.seconds
    machines: dict[Machine, list[int]] = {}
    for rank, site in enumerate(cell.placement):
        machines.setdefault(rank if cell.failures.by == "worker" else site, []).append(rank)
    until_s = _FAILING_SHARE * cell.steps * predict(cell.law_inputs).step_time_s
    # When a worker that returned is sure to have a model: the same for every algorithm.
    settled_s = _SETTLED_STEPS * cell.law_inputs.step_time_s + _SETTLED_S
    return (
        *cell.changes,
        *failures(mtbf_s, mttr_s, machines, seed=cell.seed + rep, until_s=until_s, settled_s=settled_s),
    )
