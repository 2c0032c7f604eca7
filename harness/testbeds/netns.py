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

from harness.emulators.plan import worker_address
from harness.emulators.relay import RelayEmulator
from harness.errors import HostError
from harness.testbeds.base import WorkerDied
from workloads.control import Channel

_START_TIMEOUT_S = 120.0  # importing torch on a busy or slow machine
_EXIT_TIMEOUT_S = 2.0


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
            raise WorkerDied(self._testbed.epitaph(self)) from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next message. Raises: WorkerDied, TimeoutError."""
        self.channel.sock.settimeout(max(0.001, timeout_s))
        message = self.channel.recv()
        self.channel.sock.settimeout(None)
        if message is None:
            raise WorkerDied(self._testbed.epitaph(self))
        if "error" in message:
            raise WorkerDied(f"worker {self.rank}: {message['error']}")
        return message

    def kill(self) -> None:
        """SIGKILL; the namespace and its device go with the process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.channel.close()


class NetnsSlot:
    """A group of workers with a relay of their own."""

    def __init__(self, testbed: NetnsTestbed) -> None:
        self._testbed = testbed
        self._workers: list[NetnsWorker] = []
        self.emulator = RelayEmulator()

    def prepare(self, workers: int) -> list[NetnsWorker]:
        """Idle workers 0..workers-1; missing ones are started. Raises: HostError."""
        while len(self._workers) < workers:
            rank = len(self._workers)
            worker, device = self._testbed.spawn(rank)
            self.emulator.attach(rank, device)
            os.close(device)
            self._workers.append(worker)
        return self._workers[:workers]

    def events(self, ranks: int, deadline_s: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Messages of the first `ranks` workers as they come, until the caller stops asking."""
        with selectors.DefaultSelector() as selector:
            for worker in self._workers[:ranks]:
                selector.register(worker.channel, selectors.EVENT_READ, worker)
            while True:
                left = deadline_s - time.monotonic()
                ready = selector.select(max(0.0, left))
                if not ready and left <= 0:
                    raise TimeoutError
                for key, _ in ready:
                    worker = key.data
                    yield worker.rank, worker.receive(max(1.0, left))
                    while worker.channel.pending():
                        yield worker.rank, worker.receive(max(1.0, left))

    def discard(self) -> None:
        """Kill the workers and the relay; the next `prepare` starts fresh ones."""
        for worker in self._workers:
            worker.kill()
        self._workers = []
        self.emulator.close()
        self.emulator = RelayEmulator()

    def close(self) -> None:
        """Kill the workers and the relay for good."""
        for worker in self._workers:
            worker.kill()
        self._workers = []
        self.emulator.close()


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
                [sys.executable, "-m", "workloads.forkserver", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
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
        with self._lock:
            self._channel.send({"cmd": "spawn", "address": address}, fds=[theirs.fileno()])
            theirs.close()
            pid = self._until("spawned")["pid"]
        worker = NetnsWorker(rank, pid, Channel(ours), self)
        try:
            worker.receive(_START_TIMEOUT_S)
        except (WorkerDied, TimeoutError) as error:
            worker.kill()
            raise HostError(str(error) or f"worker {rank} did not start; see {self.log}") from None
        return worker, worker.channel.take_fd()

    def epitaph(self, worker: NetnsWorker) -> str:
        """How a worker ended, in words."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        while worker.pid not in self._exits and time.monotonic() < deadline:
            with self._lock:
                self._channel.sock.settimeout(0.1)
                with suppress(TimeoutError, OSError):
                    self._note(self._channel.recv())
                self._channel.sock.settimeout(None)
        code = self._exits.get(worker.pid)
        if code is None:
            return f"worker {worker.rank} hung up"
        if code < 0:
            return f"worker {worker.rank} was killed by {signal.Signals(-code).name}"
        return f"worker {worker.rank} exited with status {code}"

    def close(self) -> None:
        """Kill every process this testbed started and wait for the fork server."""
        for slot in self._slots:
            slot.close()
        self._channel.close()
        self._server.kill()
        self._server.wait()

    def _await_server(self) -> None:
        self._channel.sock.settimeout(_START_TIMEOUT_S)
        try:
            message = self._channel.recv()
        except TimeoutError:
            message = None
        self._channel.sock.settimeout(None)
        if message is None or "error" in message:
            reason = message["error"] if message else f"the workers' parent did not start; see {self.log}"
            self.close()
            raise HostError(reason)

    def _until(self, command: str) -> dict[str, Any]:
        while True:
            message = self._channel.recv()
            if message is None:
                raise HostError(f"the workers' parent died; see {self.log}")
            if message["cmd"] == command:
                return message
            self._note(message)

    def _note(self, message: dict[str, Any] | None) -> None:
        if message is not None and message["cmd"] == "exited":
            self._exits[message["pid"]] = message["code"]
