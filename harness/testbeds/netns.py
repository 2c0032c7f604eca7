"""Workers as processes in anonymous network namespaces of their own.

controller --+-- fork server (torch imported once) --+-- worker 0 (own namespace, wan0 = TUN)
             |                                       +-- worker 1 ...
             +-- relay of slot 0 (holds the workers' TUN descriptors)

Nothing has a name on the host: namespaces and devices live as long as their processes, which die with the
controller, however that ends.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.emulators.base import EmulatorError
from harness.emulators.plan import worker_address
from harness.emulators.relay import RelayEmulator
from harness.errors import HostError
from harness.testbeds.base import WorkerDied
from workloads.control import Channel

_START_TIMEOUT_S = 120.0  # importing torch on a busy or slow machine
_EXIT_TIMEOUT_S = 2.0
_BLAME_S = 0.5  # between a worker's end and the complaints of its peers, the other way round
_PRINT_S = 0.3


class NetnsWorker:
    """One worker process and its control channel."""

    def __init__(self, rank: int, pid: int, channel: Channel, testbed: NetnsTestbed) -> None:
        self.rank = rank
        self.pid = pid
        self.channel = channel
        self._testbed = testbed

    def send(self, message: dict[str, Any]) -> None:
        """Send a command. Raises: WorkerDied."""
        try:
            self.channel.send(message)
        except OSError:
            raise self._testbed.epitaph(self) from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next message. Raises: WorkerDied, TimeoutError."""
        self.channel.sock.settimeout(max(0.001, timeout_s))
        message = self.channel.recv()
        self.channel.sock.settimeout(None)
        if message is None:
            raise self._testbed.epitaph(self)
        if "error" in message:
            raise WorkerDied(self.rank, f": {message['error']}", message["kind"])
        return message

    def signal(self, number: int) -> None:
        """Send a signal, if there still is a process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def is_stopped(self) -> bool:
        """True if a signal stopped the process."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def kill(self) -> None:
        """SIGKILL; the namespace and its device go with the process. Whoever waits for a message wakes up."""
        self.signal(signal.SIGKILL)
        with suppress(OSError):
            self.channel.sock.shutdown(socket.SHUT_RDWR)


class NetnsSlot:
    """A group of workers with a relay of their own."""

    def __init__(self, testbed: NetnsTestbed) -> None:
        self._testbed = testbed
        self._workers: list[NetnsWorker] = []
        self._relay: RelayEmulator | None = None

    @property
    def emulator(self) -> RelayEmulator:
        """The relay of these workers; started by `prepare`."""
        assert self._relay is not None, "prepare comes first"
        return self._relay

    def prepare(self, workers: int) -> list[NetnsWorker]:
        """Idle workers 0..workers-1; what is missing is started. Raises: HostError, WorkerDied, EmulatorError."""
        if self._relay is None:
            try:
                self._relay = RelayEmulator()
            except EmulatorError as error:  # one that dies later fails a repetition, one that never lives the run
                raise HostError(str(error)) from None
        while len(self._workers) < workers:
            rank = len(self._workers)
            worker, device = self._testbed.spawn(rank)
            self.emulator.attach(rank, device)
            os.close(device)
            self._workers.append(worker)
        return self._workers[:workers]

    def events(self, ranks: int, silence_s: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Messages of the first `ranks` workers as they come, until the caller stops asking; see `Slot.events`."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.emulator, selectors.EVENT_READ)
            for worker in self._workers[:ranks]:
                selector.register(worker.channel, selectors.EVENT_READ, worker)
            while ready := selector.select(silence_s):
                try:
                    # The relay first: workers that lost their network complain as well.
                    for worker in sorted((key.data for key, _ in ready), key=lambda w: w is not None):
                        if worker is None:
                            raise self.emulator.obituary()
                        yield worker.rank, worker.receive(silence_s)
                        while worker.channel.pending():
                            yield worker.rank, worker.receive(silence_s)
                except WorkerDied as error:
                    raise self._blame(error, ranks) from None
        raise TimeoutError

    def diagnose(self, ranks: int) -> str | None:
        """See `Slot.diagnose`."""
        for worker in self._workers[:ranks]:
            worker.signal(signal.SIGUSR1)
        time.sleep(_PRINT_S)
        stopped = [str(worker.rank) for worker in self._workers[:ranks] if worker.is_stopped()]
        return f"stopped by a signal: worker {', '.join(stopped)}" if stopped else None

    def discard(self) -> None:
        """Kill the workers and the relay; the next `prepare` starts fresh ones."""
        self.kill()
        for worker in self._workers:
            worker.channel.close()
        self._workers = []
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def kill(self) -> None:
        """Kill the workers; from any thread. Whoever waits for one of them gets WorkerDied."""
        for worker in list(self._workers):
            worker.kill()

    def _blame(self, error: WorkerDied, ranks: int) -> WorkerDied | EmulatorError:
        """A worker that lost a peer may say so before it shows how the peer, or the relay, ended."""
        if error.kind != "CommError":
            return error
        time.sleep(_BLAME_S)
        if (ended := self.emulator.ended()) is not None:
            return ended
        for worker in self._workers[:ranks]:
            try:
                while True:
                    worker.receive(0.001)
            except TimeoutError:
                continue
            except WorkerDied as other:
                if other.kind != "CommError":
                    return other
        return error


class NetnsTestbed:
    """Starts the fork server and hands out slots.

    Args:
        folder: for the fork server's log; must exist.
    """

    name = "netns"

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._exits: dict[int, int] = {}
        self._slots: list[NetnsSlot] = []
        self.log = folder / "workers.log"
        ours, theirs = socket.socketpair()
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-m", "workloads.forkserver", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                    "OMP_NUM_THREADS": "1",
                    "MKL_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
            )
        theirs.close()
        self._channel = Channel(ours)
        self._await_server()

    def open_slot(self) -> NetnsSlot:
        """A slot without workers."""
        slot = NetnsSlot(self)
        self._slots.append(slot)
        return slot

    def spawn(self, rank: int) -> tuple[NetnsWorker, int]:
        """Fork a worker; returns it with its TUN descriptor. Raises: HostError."""
        ours, theirs = socket.socketpair()
        address = worker_address(rank)
        with self._lock, theirs:
            try:
                self._channel.send({"cmd": "spawn", "address": address}, fds=[theirs.fileno()])
            except OSError:
                raise self._orphaned() from None
            pid = self._until("spawned")["pid"]
        worker = NetnsWorker(rank, pid, Channel(ours), self)
        try:
            worker.receive(_START_TIMEOUT_S)
        except TimeoutError:
            worker.kill()
            raise HostError(f"worker {rank} did not start within {_START_TIMEOUT_S:.0f} s") from None
        except WorkerDied as error:
            worker.kill()
            if error.kind is None:  # it was killed
                raise
            raise HostError(str(error)) from None
        return worker, worker.channel.take_fd()

    def epitaph(self, worker: NetnsWorker) -> WorkerDied:
        """How a worker ended, in words."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        while worker.pid not in self._exits and time.monotonic() < deadline and self._server.poll() is None:
            with self._lock:
                self._channel.sock.settimeout(0.1)
                with suppress(TimeoutError):
                    self._note(self._channel.recv())
                self._channel.sock.settimeout(None)
        code = self._exits.get(worker.pid)
        if code is None:
            return WorkerDied(worker.rank, " hung up")
        if code < 0:
            return WorkerDied(worker.rank, f" was killed by {signal.Signals(-code).name}")
        return WorkerDied(worker.rank, f" exited with status {code}")

    def kill(self) -> None:
        """Kill every worker and their parent; see `Testbed.kill`."""
        for slot in self._slots:
            slot.kill()
        self._server.kill()
        self._server.wait()

    def close(self) -> None:
        """Remove everything this testbed made."""
        self.kill()
        for slot in self._slots:
            slot.discard()
        self._channel.close()

    def _await_server(self) -> None:
        self._channel.sock.settimeout(_START_TIMEOUT_S)
        try:
            message = self._channel.recv()
        except TimeoutError:
            message = None
        self._channel.sock.settimeout(None)
        if message is None or "error" in message:
            error = HostError(message["error"]) if message else self._orphaned()
            self.close()
            raise error

    def _until(self, command: str) -> dict[str, Any]:
        while True:
            message = self._channel.recv()
            if message is None:
                raise self._orphaned()
            if message["cmd"] == command:
                return message
            self._note(message)

    def _orphaned(self) -> HostError:
        said = self.log.read_text(errors="replace").splitlines()[-1:]
        return HostError(": ".join(["the workers' parent process ended", *said]))

    def _note(self, message: dict[str, Any] | None) -> None:
        if message is not None and message["cmd"] == "exited":
            self._exits[message["pid"]] = message["code"]
