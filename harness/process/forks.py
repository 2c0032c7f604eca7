"""The controller's side of a fork server, whose children start in milliseconds: their modules are already imported."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from wanbench.harness.errors import HostError
from wanbench.harness.process import child
from wanbench.workloads.process.control import Channel, ControlError

START_TIMEOUT_S = 120.0  # importing torch on a busy or slow machine
_EXIT_TIMEOUT_S = 2.0
_STDERR = 2
_THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class ForkServer:
    """A process that forks children, see `wanbench.workloads.process.forkserver`. They all end with it.

    Start it from a thread that lives at least as long: it ends with that thread. All methods can be called from any
    thread.

    Args:
        module: has the function `serve_forked` that children run.
        log: what they print is appended to this file; None: it goes to this process's stderr, because stdout is data.
        namespaces: whether they make network namespaces.
        also: more modules that children will need.
    """

    def __init__(
        self, module: str, log: Path | None = None, *, namespaces: bool = False, also: Sequence[str] = ()
    ) -> None:
        self._lock = threading.Lock()
        self._exits: dict[int, int] = {}
        self._log = log
        own_socket, peer_socket = socket.socketpair()
        arguments = [
            str(peer_socket.fileno()),
            str(os.getpid()),
            ",".join([module, *also]),
            *(["--namespaces"] if namespaces else []),
        ]
        with peer_socket, nullcontext(_STDERR) if log is None else log.open("ab") as output:
            self._process = subprocess.Popen(
                child.command("wanbench.workloads.process.forkserver", *arguments),
                pass_fds=[peer_socket.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=child.same_path() | dict.fromkeys(_THREAD_COUNTS, "1"),
            )
        self._channel = Channel(own_socket)
        self._started = False

    def fork(self, request: dict[str, Any]) -> tuple[int, socket.socket]:
        """Fork a child. Return its process id, and this side's end of the socket that it serves.

        Raises:
            HostError: the server did not start, or has ended.
        """
        own_socket, peer_socket = socket.socketpair()
        with self._lock, peer_socket:
            try:
                self._await_start()
                self._channel.send({"cmd": "spawn", **request}, fds=[peer_socket.fileno()])
                return self._until("spawned")["pid"], own_socket
            except OSError:
                raise self._orphaned() from None

    def end_of(self, pid: int) -> str:
        """Return how a child ended, as the rest of a sentence that begins with its name."""
        deadline = time.monotonic() + 20  # a busy host reports late
        while pid not in self._exits and time.monotonic() < deadline and self.runs():
            with self._lock:
                self._channel.sock.settimeout(0.1)
                with suppress(TimeoutError):
                    self._note(self._channel.recv())
                self._channel.sock.settimeout(None)
        code = self._exits.get(pid)
        if code is None:
            return " hung up"
        return f" was killed by {signal.Signals(-code).name}" if code < 0 else f" exited with status {code}"

    def runs(self) -> bool:
        """Whether the server still runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it with all that its children have started. Threads that wait for it get HostError."""
        self._process.terminate()
        try:
            self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # it is stopped, or still imports torch
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Kill it and close the connection. No thread can use it."""
        self.kill()
        self._channel.close()

    def _await_start(self) -> None:
        if self._started:
            return
        self._channel.sock.settimeout(START_TIMEOUT_S)
        try:
            message = self._channel.recv()
        except (TimeoutError, ControlError):
            message = None
        self._channel.sock.settimeout(None)
        if message is None or "error" in message:
            raise HostError(message["error"]) if message else self._orphaned()
        self._started = True

    def _until(self, command: str) -> dict[str, Any]:
        while True:
            message = self._channel.recv()
            if message is None:
                raise self._orphaned()
            if message["cmd"] == command:
                return message
            self._note(message)

    def _orphaned(self) -> HostError:
        last_line = self._log.read_text(errors="replace").splitlines()[-1:] if self._log is not None else []
        return HostError(": ".join(["the workers' parent process ended", *last_line]))

    def _note(self, message: dict[str, Any] | None) -> None:
        if message is not None and message["cmd"] == "exited":
            self._exits[message["pid"]] = message["code"]
