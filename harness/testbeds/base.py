"""The interface of a testbed: slots of workers joined by an emulated network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from wanbench.harness.emulators.base import EmulatorStats
from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.emulators.process import Emulator
from wanbench.harness.results.steps import Steps
from wanbench.harness.timeline.schedule import Schedule, Score
from wanbench.workloads.loop.job import Job


@dataclass(frozen=True)
class FolderMount:
    """A folder of the host in a container.

    Attributes:
        source: on the host, absolute. target: in the container, absolute. writable: else it can only be read.
    """

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True)
class Group:
    """The workers that a cell needs, and what surrounds them.

    Attributes:
        workers: how many.
        sites: where each rank sits, as far as anyone knows.
        tcp: settings of the workers' network namespaces, as `workloads.process.namespace.set_tcp` takes them.
        image: of containers; None is the default one.
        memory_bytes: limit of each container; None is none.
        cpuset: processors of each container by rank, repeated as often as needed, e.g. ("0", "1-2"); empty is all.
        mounts: folders of the host that every container sees.
        gpus: numbers of the GPUs of each container by rank, repeated as often as needed, e.g. ("0", "1,2"); empty is
            none.
    """

    workers: int
    sites: tuple[str, ...] = ()
    tcp: tuple[tuple[str, str | bool], ...] = ()
    image: str | None = None
    memory_bytes: int | None = None
    cpuset: tuple[str, ...] = ()
    mounts: tuple[FolderMount, ...] = ()
    gpus: tuple[str, ...] = ()

    def like(self, other: Group) -> bool:
        """True if at most the number of workers and their places differ."""
        return replace(self, workers=0, sites=()) == replace(other, workers=0, sites=())


@dataclass(frozen=True)
class Training:
    """What the workers of a slot train, and on what network.

    Attributes:
        jobs: by rank; equal but for the rank. group: the workers.
        network: what joins them. schedule: how it changes; None: it does not.
        patience_s: so long may all of them be silent before they count as hung.
        folder: takes what they print.
        warm: called when all begin their first step, where this host's load matters to them.
        tcp_ramp: whether TCP has a window that grows, where TCP is a model.
    """

    jobs: Sequence[Job]
    group: Group
    network: EmulatedNetwork
    schedule: Schedule | None
    patience_s: float
    folder: Path
    warm: Callable[[], None]
    tcp_ramp: bool = True


@dataclass(frozen=True)
class Event:
    """Something changed.

    Attributes:
        what: for people, such as "tokyo: cut off".
        asked_s: when it was due, since all workers began.
        actual_s: when the emulator, or the last worker, had done it; None if the repetition ended before.
        at_ns: the same on the clock that step rows have.
        with_step: workers do it when their next step begins, and only they know when that was (`rep.stragglers`).
    """

    what: str
    asked_s: float
    actual_s: float | None
    at_ns: int | None
    with_step: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def to_come(schedule: Score, played_ns: int) -> Iterator[Event]:
    """What is left of a schedule after this time since workers began."""
    while (due_ns := schedule.after(played_ns)) is not None:
        yield from (Event(what, due_ns / 1e9, None, None) for what in schedule.what(due_ns))
        played_ns = due_ns


@dataclass(frozen=True)
class Played:
    """What became of a schedule.

    Attributes:
        events: all, those too that were still to come.
        steps: when steps ended that somebody waited for, as of `Schedule.met`. begun_ns: when all workers began.
    """

    events: Sequence[Event]
    steps: Mapping[int, int]
    begun_ns: int


@dataclass
class Trained:
    """What came back from the workers.

    Attributes:
        steps: rows of all. finished: what each said at its end. tcp: what was in force.
        stats: of the emulator; None: nothing was emulated. played: what changed, None without a schedule.
        image: digest of the containers' image, if workers are containers.
    """

    steps: Steps = field(default_factory=Steps)
    finished: dict[int, dict[str, Any]] = field(default_factory=dict)
    tcp: dict[str, Any] = field(default_factory=dict)
    stats: EmulatorStats | None = None
    played: Played | None = None
    image: str | None = None


class WorkerHandle(Protocol):
    """One worker, as the controller sees it."""

    rank: int

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a command; the worker gets duplicates of `fds`. Raises: WorkerDied."""

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next message. Raises: WorkerDied (how it ended), TimeoutError."""


class Slot(Protocol):
    """Where one repetition at a time is made. Used from one thread."""

    def train(self, training: Training) -> Trained:
        """Let workers train. Raises: RepFailed: one died, hung, or reported an error; HostError: none can start."""


class EmulatedSlot(Slot, Protocol):
    """Workers that are processes, with one emulator, reused from cell to cell."""

    @property
    def emulator(self) -> Emulator:
        """What joins the workers; there is one after `prepare`, and a new one after `discard`."""

    @property
    def image(self) -> str | None:
        """Digest of the containers' image; None if workers are not containers."""

    def prepare(self, group: Group) -> Sequence[WorkerHandle]:
        """Idle workers 0..group.workers-1; what is missing is started. Raises: HostError, WorkerDied, EmulatorError."""

    def events(self, ranks: int, silence_s: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Messages of the first `ranks` workers as they come.

        Raises:
            WorkerDied: a worker ended or reported an error. EmulatorError: the emulator ended.
            TimeoutError: no worker has said anything for `silence_s`.
        """

    def diagnose(self, ranks: int) -> str | None:
        """Let hanging workers print into their logs where they are; returns what the host knows about them."""

    def discard(self) -> None:
        """Kill the workers and the emulator: after a failure they are not reused."""


class Testbed(Protocol):
    """Where slots come from."""

    def open_slot(self, emulator: str) -> Slot:
        """A new slot, without workers yet, joined by the emulator of this name. Raises: HostError."""

    def kill(self) -> None:
        """End all workers, while other threads wait for them: these get WorkerDied or HostError."""

    def close(self) -> None:
        """Remove everything this testbed made; no slot is in use any more."""


class WorkerDied(RuntimeError):
    """A worker ended or reported an error; the message says which and how.

    Attributes:
        rank: the worker. kind: class of the error that it reported, None if its process ended.
    """

    def __init__(self, rank: int, message: str, kind: str | None = None) -> None:
        super().__init__(f"worker {rank}{message}")
        self.rank = rank
        self.kind = kind
