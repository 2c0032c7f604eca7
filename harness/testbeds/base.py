"""The interface of a testbed: slots of workers joined by an emulated network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from wanbench.harness.emulators.process import Emulator


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


class WorkerHandle(Protocol):
    """One worker, as the controller sees it."""

    rank: int

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a command; the worker gets duplicates of `fds`. Raises: WorkerDied."""
        ...

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next message. Raises: WorkerDied (how it ended), TimeoutError."""
        ...


class Slot(Protocol):
    """Workers with one emulator, reused from cell to cell. Used from one thread."""

    @property
    def emulator(self) -> Emulator:
        """What joins the workers; there is one after `prepare`, and a new one after `discard`."""
        ...

    @property
    def image(self) -> str | None:
        """Digest of the containers' image; None if workers are not containers."""
        ...

    def prepare(self, group: Group) -> Sequence[WorkerHandle]:
        """Idle workers 0..group.workers-1; what is missing is started. Raises: HostError, WorkerDied, EmulatorError."""
        ...

    def events(self, ranks: int, silence_s: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Messages of the first `ranks` workers as they come.

        Raises:
            WorkerDied: a worker ended or reported an error. EmulatorError: the emulator ended.
            TimeoutError: no worker has said anything for `silence_s`.
        """
        ...

    def diagnose(self, ranks: int) -> str | None:
        """Let hanging workers print into their logs where they are; returns what the host knows about them."""
        ...

    def discard(self) -> None:
        """Kill the workers and the emulator: after a failure they are not reused."""
        ...


class Testbed(Protocol):
    """Where slots come from."""

    name: str

    def open_slot(self, emulator: str) -> Slot:
        """A new slot, without workers yet, joined by the emulator of this name. Raises: HostError."""
        ...

    def kill(self) -> None:
        """End all workers, while other threads wait for them: these get WorkerDied or HostError."""
        ...

    def close(self) -> None:
        """Remove everything this testbed made; no slot is in use any more."""
        ...


class WorkerDied(RuntimeError):
    """A worker ended or reported an error; the message says which and how.

    Attributes:
        rank: the worker. kind: class of the error that it reported, None if its process ended.
    """

    def __init__(self, rank: int, message: str, kind: str | None = None) -> None:
        super().__init__(f"worker {rank}{message}")
        self.rank = rank
        self.kind = kind


Log = Callable[[str], None]
