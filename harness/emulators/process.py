"""The controller's side of an emulator process: start it, command it, end it.

    python -m MODULE --control-fd FD --parent PID

The process answers each command with one JSON object: {"ok": result} or {"error": one line}. It ends at end of file
of the control socket, and together with the thread that started it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, ClassVar, Self

from wanbench.harness.emulators.base import EmulatorError, EmulatorStats
from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.process import child
from wanbench.workloads.process.control import Channel, ControlError


def is_stopped(pid: int) -> bool:
    """Whether a signal stopped (suspended) the process; false if it runs or has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


class Emulator:
    """A process that slows the paths between workers as an `EmulatedNetwork` describes.

    Start it from a thread that lives at least as long as the emulator is needed: the kernel ends the process together
    with the thread that started it. All methods can be called from any thread. They raise EmulatorError if the
    emulator refused the command or has ended.

    Attributes:
        name: `relay` or `netem`.
        module: the process's Python module.
        attachment: what a worker passes at its start to be connected: `tun`, the descriptor of a TUN device that it
            opened, or `netns`, the descriptor of its network namespace.
    """

    name: ClassVar[str]
    module: ClassVar[str]
    attachment: ClassVar[str]
    patience_s: ClassVar[float] = 20.0  # timeout of an answer

    def __init__(self) -> None:
        """Start the process.

        Raises:
            EmulatorError: it did not start.
        """
        self._lock = threading.Lock()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.settimeout(self.patience_s)
        self._control = Channel(ours)
        with theirs:
            ends = ["--control-fd", str(theirs.fileno()), "--parent", str(os.getpid())]
            self._process = subprocess.Popen(
                child.command(self.module, *ends),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=child.environment(),
            )
        try:
            self.stats()  # answers only once it is up
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """The descriptor for selectors: between two commands it is readable only if the process has ended."""
        return self._control.fileno()

    @property
    def pid(self) -> int:
        """The process id, to sample its processor time."""
        return self._process.pid

    def attach(self, rank: int, fd: int) -> None:
        """Connect a worker. It replaces the worker that had this rank. Close your copy of `fd` afterwards.

        Packets in flight to the replaced worker are dropped. With netem, the network has to be applied again.
        """
        self._ask({"do": "attach", "rank": rank}, [fd])

    def apply(self, network: EmulatedNetwork, *, seed: int = 0) -> None:
        """Give every path and site its values. Packets in flight are neither lost nor overtaken.

        `seed` restarts the random numbers of loss and jitter of every directed path.
        """
        self._ask({"do": "apply", "network": network.to_json(), "seed": seed})

    def update(self, network: EmulatedNetwork) -> None:
        """Change the values of the applied network while traffic flows. Its sites and workers have to be the same.

        Packets in flight are neither lost nor overtaken. The random numbers of the paths continue.
        """
        self._ask({"do": "update", "network": network.to_json()})

    def stats(self, *, reset: bool = False) -> EmulatorStats:
        """Return the statistics since the last reset."""
        return EmulatorStats.from_json(self._ask({"do": "stats", "reset": reset}))

    def hung_up(self) -> bool:
        """Whether the process has ended. Waits until a command in progress has its answer."""
        poll = select.poll()
        with self._lock:
            poll.register(self._control, select.POLLIN)
            return bool(poll.poll(0))

    def is_stopped(self) -> bool:
        """Whether a signal stopped (suspended) the process."""
        return is_stopped(self.pid)

    def ended(self) -> EmulatorError | None:
        """How the process ended, or None while it runs."""
        return None if self._process.poll() is None else self.failure()

    def failure(self) -> EmulatorError:
        """The error that explains why the process no longer answers."""
        if self._stderr.closed:
            return EmulatorError(f"{self.name}: the emulator was closed")
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            why = "; stopped by a signal" if self.is_stopped() else ""
            return EmulatorError(f"{self.name}: no answer within {self.patience_s:.0f} s{why}")
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return EmulatorError(": ".join([f"{self.name}: the process {how}", *lines[-1:]]))

    def close(self) -> None:
        """End the process, and with it the network that it built. A second call does nothing."""
        with self._lock:
            self._control.close()
            try:
                self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any], fds: list[int] | None = None) -> Any:
        with self._lock:
            try:
                self._control.send(request, fds or ())
                answer = self._control.recv()
            except OSError as error:
                raise self.failure() from error
            except ControlError as error:
                raise EmulatorError(f"{self.name}: {error}") from None
        if answer is None:
            raise self.failure()
        if "error" in answer:
            raise EmulatorError(f"{self.name}: {answer['error']}")
        return answer["ok"]
