"""The interface of a testbed: slots of workers connected by an emulated network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from wanbench.harness.emulators.emulator import EmulatorStats
from wanbench.harness.plan.repetition import TrainingRepetition
from wanbench.harness.results.steps import Steps
from wanbench.harness.timeline.schedule import ResolvedSchedule
from wanbench.workloads.comm.blocks import MTU
from wanbench.workloads.process.configuration import Change
from wanbench.workloads.process.finished import FinishedJob


@dataclass(frozen=True)
class FolderMount:
    """A folder of the host that is mounted into a container.

    Attributes:
        source: absolute path on the host.
        target: absolute path in the container.
        writable: whether the container can write to it.
    """

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True)
class Group:
    """The workers that a cell needs, and their environment.

    Attributes:
        workers: number of workers.
        sites: site of each rank, if known.
        tcp: settings of the workers' network namespaces, as `workloads.process.namespace.set_tcp` takes them.
        congestion: TCP's congestion control, which a worker that makes its device sets on its route, whether or not it
            has peers yet; None leaves it to `tcp`.
        mtu: of the devices of workers.
        image: image of the containers; None is the default one.
        memory_bytes: memory limit of each container; None is unlimited.
        cpuset: processors of each container by rank, repeated as often as needed, e.g. ("0", "1-2"); empty is all.
        mounts: folders of the host that every container sees.
        gpus: numbers of the GPUs of each container by rank, repeated as often as needed, e.g. ("0", "1,2"); empty is
            none.
        hosts: host name of each worker, which all workers can look up; empty if nothing asks for it.
        private_tmp: folders that workers on this host see even if they are in /tmp, because each has its own /tmp;
            None: all have that of the host. Containers have their own.
    """

    workers: int
    sites: tuple[str, ...] = ()
    tcp: tuple[tuple[str, str | float], ...] = ()
    congestion: str | None = None
    mtu: int = MTU
    image: str | None = None
    memory_bytes: int | None = None
    cpuset: tuple[str, ...] = ()
    mounts: tuple[FolderMount, ...] = ()
    gpus: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    private_tmp: tuple[Path, ...] | None = None

    def like(self, other: Group) -> bool:
        """Whether both groups are equal except for the number of workers and their sites."""
        alike = replace(self, workers=0, sites=(), hosts=()) == replace(other, workers=0, sites=(), hosts=())
        return alike and self.is_fixed_like(other)

    def is_fixed_like(self, other: Group) -> bool:
        """Whether what is never changed is as in the other group: MTU, congestion control, and names if it has some."""
        return (self.mtu, self.congestion) == (other.mtu, other.congestion) and other.hosts in ((), self.hosts)


@dataclass(frozen=True)
class Training:
    """A training run in a slot.

    Attributes:
        repetition: what the workers train, and on which network.
        group: the workers.
        folder: folder for their output.
        warm: called when all workers begin their first step; not called if the testbed is simulated.
    """

    repetition: TrainingRepetition
    group: Group
    folder: Path
    warm: Callable[[], None]


@dataclass(frozen=True)
class Event:
    """A change of a timeline.

    Attributes:
        what: readable text, such as "tokyo: cut off".
        asked_s: when it was due, in seconds since all workers began.
        actual_s: when the emulator, or the last worker, had made it; None if the repetition ended before.
        at_ns: the same time on the clock of the step rows.
        with_step: workers make it when their next step begins, and report the time themselves
            (`rep.measure.straggler_events`).
    """

    what: str
    asked_s: float
    actual_s: float | None
    at_ns: int | None
    with_step: bool = False


def pending_events(schedule: ResolvedSchedule, done_ns: int) -> Iterator[Event]:
    """Yield the changes that are due later than `done_ns`, which is the time since all workers began."""
    while (due_ns := schedule.after(done_ns)) is not None:
        yield from (Event(what, due_ns / 1e9, None, None) for what in schedule.what(due_ns))
        done_ns = due_ns


@dataclass(frozen=True)
class TimelineRecord:
    """What happened of a schedule.

    Attributes:
        events: all changes, with those that were still pending.
        steps: when each awaited step ended, as `Schedule.resolved` takes them.
        begun_ns: when all workers had begun.
    """

    events: Sequence[Event]
    steps: Mapping[int, int]
    begun_ns: int


@dataclass
class Trained:
    """The results of a training run.

    Attributes:
        steps: step rows of all workers.
        finished: final message of each worker, without those that were lost.
        tcp: TCP settings in force.
        stats: statistics of the emulator; None if nothing was emulated.
        changed: for each worker, what has changed in its network although nothing was to change it, or None.
        timeline: what changed; None without a schedule.
        image: digest of the containers' image, if workers run in containers.
        done_ns: when a worker had obeyed a command of the timeline, by its rank and the due time.
    """

    steps: Steps = field(default_factory=Steps)
    finished: dict[int, FinishedJob] = field(default_factory=dict)
    tcp: dict[str, Any] = field(default_factory=dict)
    stats: EmulatorStats | None = None
    changed: dict[int, Change | None] = field(default_factory=dict)
    timeline: TimelineRecord | None = None
    image: str | None = None
    done_ns: dict[tuple[int, int], int] = field(default_factory=dict)


class Slot(Protocol):
    """Runs one repetition at a time. Used from one thread."""

    def train(self, training: Training) -> Trained:
        """Train. Raises: RepFailed, if a worker died, hung or reported an error; HostError, if none can start."""


class Testbed(Protocol):
    """Opens slots."""

    def open_slot(self, emulator: str) -> Slot:
        """Return a new slot, without workers yet, that uses the emulator of this name. Raises: HostError."""

    def kill(self) -> None:
        """End all workers. Threads that wait for them get WorkerDied or HostError."""

    def close(self) -> None:
        """Remove everything that this testbed made. No slot can be in use."""


class WorkerDied(RuntimeError):
    """A worker ended or reported an error. The message has its rank and the reason.

    Attributes:
        rank: the worker.
        kind: class of the error that it reported; None if its process ended.
    """

    def __init__(self, rank: int, message: str, kind: str | None = None) -> None:
        super().__init__(f"worker {rank}{message}")
        self.rank = rank
        self.kind = kind
