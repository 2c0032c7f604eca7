"""An emulator that lives in a process of its own, as the controller sees it: started, commanded, ended.

    python -m MODULE --control-fd FD --parent PID

The process answers one JSON object to each: {"ok": result} or {"error": one line}. It ends at end of file of the
control socket and with the thread that started it.
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
    """True if a signal stopped the process; false if it runs, or is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


class Emulator:
    """Something that makes paths between workers as slow as a `Network` says, kept by another process.

    Start it from a thread that lives as long as the emulator shall: the kernel ends the process together with
    the thread that started it. All methods may be called from any thread, and raise EmulatorError where the emulator
    refused, or is gone.

    Attributes:
        name: `relay` or `netem`. module: of the process.
        attachment: what a worker hands over at its start so that it can be joined to the others: `tun`, the
            descriptor of a TUN device that it opened, or `netns`, the descriptor of its network namespace.
    """

    name: ClassVar[str]
    module: ClassVar[str]
    attachment: ClassVar[str]
    patience_s: ClassVar[float] = 20.0  # for an answer

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
        """For selectors: between two commands it is readable only if the process has ended."""
        return self._control.fileno()

    @property
    def pid(self) -> int:
        """Process id, to sample its processor time."""
        return self._process.pid

    def attach(self, rank: int, fd: int) -> None:
        """Take a worker in, or in place of the one that had this rank; close your copy of `fd` afterwards.

        What is in flight to the one before is dropped. With netem, the network has to be applied again.
        """
        self._ask({"do": "attach", "rank": rank}, [fd])

    def apply(self, network: EmulatedNetwork, *, seed: int = 0) -> None:
        """Give every path and site its values. What is in flight is neither lost nor overtaken.

        `seed` starts the loss and jitter of every directed path anew.
        """
        self._ask({"do": "apply", "network": network.to_json(), "seed": seed})

    def update(self, network: EmulatedNetwork) -> None:
        """New values for the places of the network that was applied, while traffic flows.

        What is in flight is neither lost nor overtaken, and the random draws of paths go on. Other places are refused.
        """
        self._ask({"do": "update", "network": network.to_json()})

    def stats(self, *, reset: bool = False) -> EmulatorStats:
        """What happened since the last reset."""
        return EmulatorStats.from_json(self._ask({"do": "stats", "reset": reset}))

    def hung_up(self) -> bool:
        """True if it is readable and nobody waits for an answer: it has ended. Waits for one that is awaited."""
        poll = select.poll()
        with self._lock:
            poll.register(self._control, select.POLLIN)
            return bool(poll.poll(0))

    def is_stopped(self) -> bool:
        """True if a signal stopped the process without ending it."""
        return is_stopped(self.pid)

    def ended(self) -> EmulatorError | None:
        """How the process ended, None while it lives."""
        return None if self._process.poll() is None else self.obituary()

    def obituary(self) -> EmulatorError:
        """Why there is no answer any more."""
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
        """End the process and what it made; calling it again does nothing."""
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
                raise self.obituary() from error
            except ControlError as error:
                raise EmulatorError(f"{self.name}: {error}") from None
        if answer is None:
            raise self.obituary()
        if "error" in answer:
            raise EmulatorError(f"{self.name}: {answer['error']}")
        return answer["ok"]
