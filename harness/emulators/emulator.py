"""The controller's side of an emulator process: start it, command it, end it.

    python -m MODULE CONTROL_FD PARENT_PID

The process answers each command with one JSON object: {"ok": result} or {"error": one line}. It ends at end of file
of the control socket, and together with the thread that started it.
"""

import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.errors import HostError
from wanbench.harness.process import child
from wanbench.harness.process.owner import is_stopped
from wanbench.workloads.process.control import Channel, ControlError


class EmulatorError(HostError):
    """An emulator cannot carry out a command. The message is one line with the command and the reason."""


@dataclass(frozen=True, kw_only=True)
class EmulatorStats:
    """All statistics since the last reset. A value that the emulator cannot know is None.

    Attributes:
        emulator: `relay` or `netem`.
        seconds: length of the period.
        sent_bytes: IP bytes that workers sent, each packet with its headers. With segmentation offload, only the
            emulator can count them.
        packets, bytes: delivered to workers, local traffic included.
        segments: number of pieces in which they were delivered, fewer with segmentation offload.
        offload: whether the workers' devices have segmentation offload, so that the emulator moves segments.
        drops: dropped packets by cause: `up`, `path`, `down` (full queues), `loss` (configured), `unknown`
            (no such worker), `idle` (from or to a worker that the network does not use, but an earlier one did),
            `refused` (the device of the worker, or of a router with netem, was full), `gone` (the worker had ended).
            A cause that an emulator cannot see is absent: `unknown`, `idle` and `gone` for netem.
        not_ipv4: packets of other protocols, which are ignored.
        paths: `src`, `dst`, and the `packets` and `bytes` of each directed path, counted at the delay: as they enter it
            (relay) or leave it (netem). Those that its queue `dropped`, or that were `lost`, are not included.
        sites: `site`, and the packets `up_dropped` and `down_dropped` by the queues that its workers share.
        lateness_*_ms: actual minus due time of delivery, over packets.
        read_lag_*_ms: the longest time that a packet can have waited to be read, over turns of the loop.
        overdue_pct: share of the period during which some packet was late, or can have waited to be read, by more
            than 1 ms. The emulator cannot have lengthened a step by more than this share.
        cpu_s: processor time of the emulator.
        pauses: begin and end in ns, on the workers' clock, of times in which the emulator's process did not run
            although it had to; empty for netem, which is part of the kernel.
        changed: what is not as the emulator has set it, in words; None if all is. The relay keeps its network itself.
    """

    emulator: str
    seconds: float
    sent_bytes: int | None = None
    packets: int
    segments: int | None = None
    offload: bool | None = None
    bytes: int
    drops: Mapping[str, int]
    not_ipv4: int | None = None
    paths: Sequence[Mapping[str, Any]]
    sites: Sequence[Mapping[str, Any]]
    lateness_p50_ms: float | None = None
    lateness_p99_ms: float | None = None
    lateness_max_ms: float | None = None
    read_lag_p99_ms: float | None = None
    read_lag_max_ms: float | None = None
    overdue_pct: float | None = None
    cpu_s: float | None = None
    pauses: Sequence[tuple[int, int]] = ()
    changed: str | None = None


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
        self._closed = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        own_socket, peer_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        own_socket.settimeout(self.patience_s)
        self._control = Channel(own_socket)
        with peer_socket:
            self._process = subprocess.Popen(
                child.command(self.module, str(peer_socket.fileno()), str(os.getpid())),
                pass_fds=[peer_socket.fileno()],
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
        return EmulatorStats(**self._ask({"do": "stats", "reset": reset}))

    def has_ended(self) -> bool:
        """Whether the process has ended; known at once."""
        return self._process.poll() is not None

    def is_stopped(self) -> bool:
        """Whether a signal stopped (suspended) the process."""
        return is_stopped(self.pid)

    def failure(self) -> EmulatorError:
        """The error that explains why the process no longer answers."""
        if self._closed:
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
        self._closed = True
        with suppress(OSError):
            self._control.sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer, with the lock
        with self._lock:
            self._control.close()
            try:
                self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._stderr.close()

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


class RelayEmulator(Emulator):
    """An emulated network in userspace, for workers that bring their own TUN devices."""

    name = "relay"
    module = "wanbench.harness.emulators.relay.process"
    attachment = "tun"


class NetemEmulator(Emulator):
    """An emulated network in the kernel, for workers that bring their network namespaces."""

    name = "netem"
    module = "wanbench.harness.emulators.netem.process"
    attachment = "netns"
    patience_s = 300.0  # a hundred sites have ten thousand paths, which take some milliseconds each


EMULATORS: Mapping[str, type[Emulator]] = {"relay": RelayEmulator, "netem": NetemEmulator}
