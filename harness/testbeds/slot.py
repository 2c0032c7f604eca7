"""Slots of workers with their own emulator, in namespaces or containers."""

import os
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from wanbench.harness.emulators.emulator import EMULATORS, Emulator, EmulatorError
from wanbench.harness.errors import HostError
from wanbench.harness.testbeds.base import Group, Trained, Training, WorkerDied
from wanbench.harness.testbeds.messages import checked
from wanbench.harness.testbeds.training import train
from wanbench.workloads.process.control import Channel, ControlError

_CONSEQUENCES = ("CommError", "TunError")  # what a worker reports that has lost its peer, or its device with the relay
# The rows of one second, or the packets of a probe, take kilobytes, at most two megabytes.
_MESSAGE_BYTES = 8 << 20
_BURST_BYTES, _BYTES_PER_S = 64 << 20, 8 << 20
_LONGEST_ERROR = 2000


class Worker(ABC):
    """One worker and its control channel."""

    def __init__(self, rank: int, channel: Channel) -> None:
        self.rank = rank
        self.channel = channel
        channel.most_bytes = _MESSAGE_BYTES
        self._began_s = time.monotonic()

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a command. The worker gets duplicates of `fds`. Raises: WorkerDied."""
        try:
            self.channel.send(message, fds)
        except OSError:
            raise self.failure() from None

    def receive(self, timeout_s: float, expected: str = "") -> dict[str, Any]:
        """Return the next message, which is `expected` (`messages.SCHEMAS`). Raises: WorkerDied, TimeoutError."""
        self.channel.sock.settimeout(max(0.001, timeout_s))
        try:
            message = self.channel.recv()
            if self.channel.received_bytes > _BURST_BYTES + _BYTES_PER_S * (time.monotonic() - self._began_s):
                raise ControlError(f"control channel: too many bytes; expected at most {_BYTES_PER_S >> 20} MiB/s")
            if message is not None and "error" not in message:
                message = checked(message, expected)
        except ControlError as error:
            raise WorkerDied(self.rank, f": {error}", "ControlError") from None
        self.channel.sock.settimeout(None)
        if message is None:
            raise self.failure()
        if "error" in message:
            raise WorkerDied(self.rank, f": {str(message['error'])[:_LONGEST_ERROR]}", str(message.get("kind"))[:80])
        return message

    def ready(self, timeout_s: float) -> int:
        """Wait until it has started. Return the descriptor that it sends. Raises: HostError, WorkerDied."""
        try:
            self.receive(timeout_s, "ready")
            return self.channel.take_fd()
        except (TimeoutError, WorkerDied, ControlError) as error:
            self.kill()
            if isinstance(error, WorkerDied) and error.kind is None:  # its process was killed
                raise
            if isinstance(error, TimeoutError):
                raise HostError(f"worker {self.rank} did not start within {timeout_s:.0f} s") from None
            raise HostError(str(error) if isinstance(error, WorkerDied) else f"worker {self.rank}: {error}") from None

    @abstractmethod
    def failure(self) -> WorkerDied:
        """Return an error that describes how it ended."""

    @abstractmethod
    def request_stack(self) -> None:
        """Let it print its stack into its log, if a signal can reach it."""

    def is_stopped(self) -> bool:
        """Whether it is known to be stopped (suspended) without having ended."""
        return False

    @abstractmethod
    def kill(self) -> None:
        """End it with its namespace and device. Any thread can call this, and threads that wait for it wake up."""


class Starter(ABC):
    """The part of a testbed that a slot needs."""

    @abstractmethod
    def start_worker(self, rank: int, attachment: str, group: Group) -> tuple[Worker, int]:
        """Return a worker that is ready, and the descriptor that it sent. Raises: HostError, WorkerDied."""

    @abstractmethod
    def serves(self, running: Group, requested: Group) -> bool:
        """Whether workers that were started for one group can serve the other."""

    def image(self, group: Group) -> str | None:
        """Return the digest of the image that the group's workers run; None if there is none, or it is unknown."""
        return None


class WorkerSlot:
    """A group of workers that are started when first needed and reused from cell to cell.

    Those that have imported a user's modules are replaced: they would run them as they were then.

    Args:
        testbed: starts workers.
        start_emulator: starts the emulator between them.
    """

    def __init__(self, testbed: Starter, start_emulator: Callable[[], Emulator]) -> None:
        self._testbed = testbed
        self._start_emulator = start_emulator
        self._workers: list[Worker] = []
        self._emulator: Emulator | None = None
        self._group = Group(0)
        self._imported = False

    @property
    def image(self) -> str | None:
        """The digest of the containers' image."""
        return self._testbed.image(self._group)

    @property
    def emulator(self) -> Emulator:
        """The emulator between these workers, which `prepare` starts."""
        assert self._emulator is not None, "call prepare first"
        return self._emulator

    def train(self, training: Training) -> Trained:
        """Train with these workers."""
        trained = train(self, training)
        self._imported = training.repetition.jobs[0].runs_users_code
        return trained

    def prepare(self, group: Group) -> Sequence[Worker]:
        """Return idle workers of the group. Starts missing ones. Raises: HostError, WorkerDied, EmulatorError."""
        if self._workers and (self._imported or not self._testbed.serves(self._group, group)):
            self.discard()
        self._group = group
        if self._emulator is None:
            try:
                self._emulator = self._start_emulator()
            except EmulatorError as error:  # a failed start ends the run, a later failure only the repetition
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
        """Yield the messages of the first `ranks` workers as they arrive, until the caller stops.

        Raises:
            WorkerDied: a worker ended or reported an error.
            EmulatorError: the emulator ended.
            TimeoutError: no worker has sent a message for `silence_s`.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self.emulator, selectors.EVENT_READ)
            for worker in self._workers[:ranks]:
                selector.register(worker.channel, selectors.EVENT_READ, worker)
            while ready := selector.select(silence_s):
                try:
                    # The emulator comes first, because workers report errors too when they lose their network.
                    for worker in sorted((key.data for key, _ in ready), key=lambda w: w is not None):
                        if worker is None:
                            if self.emulator.has_ended():  # rather than answered another thread
                                raise self.emulator.failure()
                            continue
                        yield worker.rank, worker.receive(silence_s)
                        while worker.channel.pending():
                            yield worker.rank, worker.receive(silence_s)
                except WorkerDied as error:
                    raise self._blame(error, ranks) from None
        raise TimeoutError

    def diagnose(self, ranks: int) -> str | None:
        """Let hung workers print their stacks into their logs. Return which a signal stopped, if any."""
        for worker in self._workers[:ranks]:
            worker.request_stack()
        time.sleep(0.3)  # until they have printed them
        ranks_stopped = [str(worker.rank) for worker in self._workers[:ranks] if worker.is_stopped()]
        stopped = [self.emulator.name] if self.emulator.is_stopped() else []
        stopped += [f"worker {', '.join(ranks_stopped)}"] if ranks_stopped else []
        return f"stopped by a signal: {', '.join(stopped)}" if stopped else None

    def discard(self) -> None:
        """Kill the workers and the emulator. The next `prepare` starts new ones."""
        self.kill()
        for worker in self._workers:
            worker.channel.close()
        self._workers, self._imported = [], False
        if self._emulator is not None:
            self._emulator.close()
            self._emulator = None

    def kill(self) -> None:
        """Kill the workers. Any thread can call this, and threads that wait for a worker get WorkerDied."""
        for worker in list(self._workers):
            worker.kill()

    def _blame(self, error: WorkerDied, ranks: int) -> WorkerDied | EmulatorError:
        """Find the first cause: a worker can report a lost peer before the end of the peer or emulator is seen."""
        if error.kind not in _CONSEQUENCES:
            return error
        time.sleep(0.5)  # a worker's end can be seen this much later than the errors that it causes in its peers
        if self.emulator.has_ended():
            return self.emulator.failure()
        for worker in self._workers[:ranks]:
            with suppress(TimeoutError):
                try:
                    while True:
                        worker.receive(0.001)
                except WorkerDied as other:
                    if other.kind not in _CONSEQUENCES:
                        return other
        return error


class SlotTestbed(ABC):
    """A testbed of worker slots."""

    def __init__(self) -> None:
        self._slots: list[WorkerSlot] = []

    @abstractmethod
    def starter(self) -> Starter:
        """Return the object that starts the workers of one slot."""

    def open_slot(self, emulator: str) -> WorkerSlot:
        """Return a new slot, without workers yet, that uses the emulator of this name."""
        self._slots.append(WorkerSlot(self.starter(), EMULATORS[emulator]))
        return self._slots[-1]

    def kill(self) -> None:
        """End all workers. Any thread can call this."""
        for slot in self._slots:
            slot.kill()

    def close(self) -> None:
        """Remove everything that this testbed made."""
        self.kill()
        for slot in self._slots:
            slot.discard()
