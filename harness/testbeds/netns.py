"""Workers as processes, each in its own anonymous network namespace.

controller --+-- fork server (torch imported once) --+-- worker 0 (own namespace, wan0)
             |                                       +-- worker 1 ...
             +-- emulator of slot 0 (holds the workers' TUN devices or namespaces)

Nothing has a name on the host. Namespaces and devices exist as long as their processes, which die with the
controller, however it ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.plan import worker_address
from wanbench.harness.emulators.process import is_stopped
from wanbench.harness.errors import HostError
from wanbench.harness.process import child
from wanbench.harness.testbeds.base import Group, WorkerDied
from wanbench.harness.testbeds.slot import SlotTestbed, Worker
from wanbench.workloads.process.control import Channel, ControlError

_START_TIMEOUT_S = 120.0  # importing torch on a busy or slow machine
_EXIT_TIMEOUT_S = 2.0
_THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LEAVE_S = 1.0


class NetnsWorker(Worker):
    """One worker process."""

    def __init__(self, rank: int, pid: int, channel: Channel, testbed: NetnsTestbed) -> None:
        super().__init__(rank, channel)
        self.pid = pid
        self._testbed = testbed
        self._has_program = False

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a command. A worker that runs a program is ended more gently."""
        self._has_program = self._has_program or message["cmd"] == "program"
        super().send(message, fds)

    def failure(self) -> WorkerDied:
        """Return an error that describes how it ended."""
        return self._testbed.failure_of(self)

    def request_stack(self) -> None:
        """Let it print its stack; see `workloads.process.worker`."""
        self._signal(signal.SIGUSR1)

    def is_stopped(self) -> bool:
        """Whether a signal stopped (suspended) the process."""
        return is_stopped(self.pid)

    def kill(self) -> None:
        """Send SIGKILL; see `Worker.kill`. A worker that ran a program first ends processes left in other sessions."""
        if self._has_program and not self.is_stopped():
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + _LEAVE_S
            while Path(f"/proc/{self.pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        self._signal(signal.SIGKILL)
        with suppress(OSError):
            self.channel.sock.shutdown(socket.SHUT_RDWR)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class NetnsTestbed(SlotTestbed):
    """Starts the fork server and opens slots.

    Args:
        folder: folder for the fork server's log; must exist.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._exits: dict[int, int] = {}
        self.log = folder / "workers.log"
        ours, theirs = socket.socketpair()
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                child.command("wanbench.workloads.process.forkserver", str(theirs.fileno()), str(os.getpid())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=child.same_path() | dict.fromkeys(_THREAD_COUNTS, "1"),
            )
        theirs.close()
        self._channel = Channel(ours)
        self._await_server()

    def starter(self) -> NetnsTestbed:
        """Return this testbed: workers of all slots have one parent."""
        return self

    def serves(self, running: Group, wanted: Group) -> bool:
        """Return whether they use the same congestion control. All else is set for each cell."""
        return _congestion(running) == _congestion(wanted)

    def image(self, group: Group) -> str | None:
        """Return None: there are no containers."""
        return None

    def start_worker(self, rank: int, attachment: str, group: Group) -> tuple[NetnsWorker, int]:
        """Fork a worker."""
        ours, theirs = socket.socketpair()
        settings = {"attachment": attachment, "congestion": _congestion(group)}
        spawn = {"cmd": "spawn", "address": worker_address(rank), **settings}
        with self._lock, theirs:
            try:
                self._channel.send(spawn, fds=[theirs.fileno()])
            except OSError:
                raise self._orphaned() from None
            pid = self._until("spawned")["pid"]
        worker = NetnsWorker(rank, pid, Channel(ours), self)
        return worker, worker.ready(_START_TIMEOUT_S)

    def failure_of(self, worker: NetnsWorker) -> WorkerDied:
        """Return an error that describes how a worker ended."""
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
        """Kill every worker and their parent."""
        super().kill()
        self._server.kill()
        self._server.wait()

    def close(self) -> None:
        """Remove everything that this testbed made."""
        super().close()
        self._channel.close()

    def _await_server(self) -> None:
        self._channel.sock.settimeout(_START_TIMEOUT_S)
        try:
            message = self._channel.recv()
        except (TimeoutError, ControlError):
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
        last_line = self.log.read_text(errors="replace").splitlines()[-1:]
        return HostError(": ".join(["the workers' parent process ended", *last_line]))

    def _note(self, message: dict[str, Any] | None) -> None:
        if message is not None and message["cmd"] == "exited":
            self._exits[message["pid"]] = message["code"]


def _congestion(group: Group) -> str | None:
    name = dict(group.tcp).get("congestion")
    return None if name is None else str(name)
