"""Workers with an emulator of their own, whatever the workers live in."""

from __future__ import annotations

import os
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from wanbench.harness.emulators import choice as emulators
from wanbench.harness.emulators.base import EmulatorError
from wanbench.harness.emulators.process import Emulator
from wanbench.harness.errors import HostError
from wanbench.harness.testbeds.base import Group, Trained, Training, WorkerDied
from wanbench.harness.testbeds.training import train
from wanbench.workloads.process.control import Channel, ControlError, text

_BLAME_S = 0.5  # between a worker's end and the complaints of its peers, the other way round
_PRINT_S = 0.3


class Worker(ABC):
    """One worker and its control channel."""

    def __init__(self, rank: int, channel: Channel) -> None:
        self.rank = rank
        self.channel = channel

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a command; the worker gets duplicates of `fds`. Raises: WorkerDied."""
        try:
            self.channel.send(message, fds)
        except OSError:
            raise self.epitaph() from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next message. Raises: WorkerDied, TimeoutError."""
        self.channel.sock.settimeout(max(0.001, timeout_s))
        try:
            message = self.channel.recv()
            if message is not None and "error" not in message and text(message, "cmd") in ("job", "program"):
                text(message, "event")
        except ControlError as error:
            raise WorkerDied(self.rank, f": {error}", "ControlError") from None
        self.channel.sock.settimeout(None)
        if message is None:
            raise self.epitaph()
        if "error" in message:
            raise WorkerDied(self.rank, f": {message['error']}", str(message.get("kind")))
        return message

    def ready(self, timeout_s: float) -> int:
        """Wait until it has started; returns the descriptor that it hands over. Raises: HostError, WorkerDied."""
        try:
            self.receive(timeout_s)
        except TimeoutError:
            self.kill()
            raise HostError(f"worker {self.rank} did not start within {timeout_s:.0f} s") from None
        except WorkerDied as error:
            self.kill()
            if error.kind is None:  # it was killed
                raise
            raise HostError(str(error)) from None
        return self.channel.take_fd()

    @abstractmethod
    def epitaph(self) -> WorkerDied:
        """How it ended, in words."""

    @abstractmethod
    def ask_where(self) -> None:
        """Let it print its stack into its log, if it still can."""

    @abstractmethod
    def is_stopped(self) -> bool:
        """True if someone stopped it without ending it."""

    @abstractmethod
    def kill(self) -> None:
        """End it; its namespace and device go with it. From any thread; whoever waits for a message wakes up."""


class Starter(Protocol):
    """The part of a testbed that a slot needs."""

    def start_worker(self, rank: int, attachment: str, group: Group) -> tuple[Worker, int]:
        """A worker that is ready, and the descriptor that it handed over. Raises: HostError, WorkerDied."""
        ...

    def serves(self, running: Group, wanted: Group) -> bool:
        """True if workers that were started for one group can serve the other."""
        ...

    def image(self, group: Group) -> str | None:
        """Digest of the image that the group's workers run."""


class WorkerSlot:
    """A group of workers that are started when first needed and reused from cell to cell.

    Args:
        testbed: starts workers.
        start_emulator: starts the emulator that joins them.
    """

    def __init__(self, testbed: Starter, start_emulator: Callable[[], Emulator]) -> None:
        self._testbed = testbed
        self._start_emulator = start_emulator
        self._workers: list[Worker] = []
        self._emulator: Emulator | None = None
        self._group = Group(0)

    @property
    def image(self) -> str | None:
        """Digest of the containers' image."""
        return self._testbed.image(self._group)

    @property
    def emulator(self) -> Emulator:
        """What joins these workers; started by `prepare`."""
        assert self._emulator is not None, "prepare comes first"
        return self._emulator

    def train(self, training: Training) -> Trained:
        """Workers that are processes train."""
        return train(self, training)

    def prepare(self, group: Group) -> Sequence[Worker]:
        """The first workers of the group, idle, those that are missing started."""
        if self._workers and not self._testbed.serves(self._group, group):
            self.discard()
        self._group = group
        if self._emulator is None:
            try:
                self._emulator = self._start_emulator()
            except EmulatorError as error:  # one that dies later fails a repetition, one that never lives the run
                raise HostError(str(error)) from None
        while len(self._workers) < group.workers:
            rank = len(self._workers)
            worker, descriptor = self._testbed.start_worker(rank, self._emulator.attachment, group)
            self._workers.append(worker)
            try:
                self._emulator.attach(rank, descriptor)
            finally:
                os.close(descriptor)
        return self._workers[: group.workers]

    def events(self, ranks: int, silence_s: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Messages of the first `ranks` workers as they come, until the caller stops asking."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.emulator, selectors.EVENT_READ)
            for worker in self._workers[:ranks]:
                selector.register(worker.channel, selectors.EVENT_READ, worker)
            while ready := selector.select(silence_s):
                try:
                    # The emulator first: workers that lost their network complain as well.
                    for worker in sorted((key.data for key, _ in ready), key=lambda w: w is not None):
                        if worker is None:
                            if self.emulator.hung_up():  # not an answer to another thread
                                raise self.emulator.failure()
                            continue
                        yield worker.rank, worker.receive(silence_s)
                        while worker.channel.pending():
                            yield worker.rank, worker.receive(silence_s)
                except WorkerDied as error:
                    raise self._blame(error, ranks) from None
        raise TimeoutError

    def diagnose(self, ranks: int) -> str | None:
        """Let hanging workers print where they are, and find those that somebody stopped."""
        for worker in self._workers[:ranks]:
            worker.ask_where()
        time.sleep(_PRINT_S)
        ranks_stopped = [str(worker.rank) for worker in self._workers[:ranks] if worker.is_stopped()]
        stopped = [self.emulator.name] if self.emulator.is_stopped() else []
        stopped += [f"worker {', '.join(ranks_stopped)}"] if ranks_stopped else []
        return f"stopped by a signal: {', '.join(stopped)}" if stopped else None

    def discard(self) -> None:
        """Kill the workers and the emulator; the next `prepare` starts fresh ones."""
        self.kill()
        for worker in self._workers:
            worker.channel.close()
        self._workers = []
        if self._emulator is not None:
            self._emulator.close()
            self._emulator = None

    def kill(self) -> None:
        """Kill the workers; from any thread. Whoever waits for one of them gets WorkerDied."""
        for worker in list(self._workers):
            worker.kill()

    def _blame(self, error: WorkerDied, ranks: int) -> WorkerDied | EmulatorError:
        """A worker that lost a peer may say so before it shows how the peer, or the emulator, ended."""
        if error.kind != "CommError":
            return error
        time.sleep(_BLAME_S)
        if (ended := self.emulator.ended()) is not None:
            return ended
        for worker in self._workers[:ranks]:
            with suppress(TimeoutError):
                try:
                    while True:
                        worker.receive(0.001)
                except WorkerDied as other:
                    if other.kind != "CommError":
                        return other
        return error


class SlotTestbed(ABC):
    """A testbed of such slots."""

    def __init__(self) -> None:
        self._slots: list[WorkerSlot] = []

    @abstractmethod
    def starter(self) -> Starter:
        """Of the workers of one slot."""

    def open_slot(self, emulator: str) -> WorkerSlot:
        """A new slot, without workers yet, joined by the emulator of this name."""
        self._slots.append(WorkerSlot(self.starter(), emulators.starter(emulator)))
        return self._slots[-1]

    def kill(self) -> None:
        """End all workers; from any thread."""
        for slot in self._slots:
            slot.kill()

    def close(self) -> None:
        """Remove everything this testbed made."""
        self.kill()
        for slot in self._slots:
            slot.discard()
