"""The relay emulator, as the controller sees it: a process that it starts, commands and ends."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from harness.emulators.base import EmulatorError, EmulatorStats
from harness.emulators.plan import Link, Network, worker_address
from workloads.control import Channel

_ANSWER_TIMEOUT_S = 20.0
_PACKAGES = Path(__file__).resolve().parents[2]


class RelayEmulator:
    """An emulated network in userspace, for workers that bring their own TUN devices.

    Start it from a thread that lives as long as the emulator shall: the kernel ends the relay process
    together with the thread that started it. All methods may be called from any thread.
    """

    def __init__(self) -> None:
        """Start the relay process.

        Raises:
            EmulatorError: it did not start.
        """
        self._lock = threading.Lock()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.settimeout(_ANSWER_TIMEOUT_S)
        self._control = Channel(ours)
        path = os.pathsep.join(filter(None, [str(_PACKAGES), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "harness.emulators.relay_process"]
        with theirs:
            self._process = subprocess.Popen(
                [*command, "--control-fd", str(theirs.fileno()), "--parent", str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=os.environ | {"PYTHONPATH": path},
            )
        self.stats()  # answers only once it is up

    @property
    def pid(self) -> int:
        """Process id of the relay, to sample its processor time."""
        return self._process.pid

    def attach(self, rank: int, fd: int) -> None:
        """Connect the TUN device of a worker; the relay gets its own copy of `fd`, so close yours.

        A rank that is attached again replaces the old one (whose packets in flight are dropped).

        Raises:
            EmulatorError: the relay is gone.
        """
        self._ask({"do": "attach", "rank": rank, "address": worker_address(rank)}, [fd])

    def apply(self, network: Network, *, seed: int = 0) -> None:
        """Give every path its values; see `Emulator.apply`."""
        self._ask({"do": "apply", "network": network.to_json(), "seed": seed})

    def change(self, src: int, dst: int, link: Link) -> None:
        """Change one directed path, by site numbers; see `Emulator.change`."""
        self._ask({"do": "change", "src": src, "dst": dst, "link": dataclasses.asdict(link)})

    def stats(self, *, reset: bool = False) -> EmulatorStats:
        """What happened since the last reset; see `Emulator.stats`."""
        return EmulatorStats.from_json(self._ask({"do": "stats", "reset": reset}))

    def close(self) -> None:
        """End the relay process; calling it again does nothing."""
        with self._lock:
            self._control.close()
            try:
                self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._stderr.close()

    def __enter__(self) -> RelayEmulator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any], fds: list[int] | None = None) -> Any:
        with self._lock:
            try:
                self._control.send(request, fds or ())
                answer = self._control.recv()
            except OSError as error:
                raise EmulatorError(self._obituary(request["do"])) from error
        if answer is None:
            raise EmulatorError(self._obituary(request["do"]))
        if "error" in answer:
            raise EmulatorError(f"relay: {answer['error']}")
        return answer["ok"]

    def _obituary(self, command: str) -> str:
        if self._stderr.closed:
            return f"relay: {command}: the emulator was closed"
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return f"relay: {command}: no answer within {_ANSWER_TIMEOUT_S:.0f} s"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        said = " | ".join(lines[-3:]) or "it said nothing"
        return f"relay: {command}: the relay process ended with status {code}: {said}"
