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
        """What joins the workers; a new one after `discard`."""
        ...

    def prepare(self, workers: int) -> Sequence[WorkerHandle]:
        """At least started, idle workers 0..workers-1. Raises: HostError."""
        ...

    def events(self, ranks: int, deadline_s: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Messages of the first `ranks` workers as they come. Raises: WorkerDied, TimeoutError."""
        ...

    def discard(self) -> None:
        """Kill the workers: after a failure they are not reused."""
        ...


class Testbed(Protocol):
    """Where slots come from."""

    name: str

    def open_slot(self) -> Slot:
        """A new slot, without workers yet. Raises: HostError."""
        ...

    def close(self) -> None:
        """Remove everything this testbed made."""
        ...


class WorkerDied(RuntimeError):
    """A worker ended or reported an error; the message says which and how."""


Log = Callable[[str], None]
