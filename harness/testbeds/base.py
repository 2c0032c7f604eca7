"""The interface of a testbed: slots of workers joined by an emulated network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from harness.emulators.base import Emulator


class WorkerHandle(Protocol):
    """One worker, as the controller sees it."""

    rank: int

    def send(self, message: dict[str, Any]) -> None:
        """Send a command. Raises: WorkerDied."""
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

    def prepare(self, workers: int) -> Sequence[WorkerHandle]:
        """At least started, idle workers 0..workers-1. Raises: HostError, WorkerDied, EmulatorError."""
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

    def open_slot(self) -> Slot:
        """A new slot, without workers yet. Raises: HostError."""
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
