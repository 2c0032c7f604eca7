"""Workers as processes, each in its own anonymous network namespace.

controller --+-- fork server (modules imported once) --+-- worker 0 (own namespace, wan0)
             |                                       +-- worker 1 ...
             +-- emulator of slot 0 (holds the workers' TUN devices or namespaces)

Nothing has a name on the host. Namespaces and devices exist as long as their processes, which die with the
controller, however it ends.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from wanbench.harness.emulators.plan import worker_address
from wanbench.harness.process.forks import START_TIMEOUT_S, ForkServer
from wanbench.harness.process.owner import is_stopped
from wanbench.harness.testbeds.base import Group, WorkerDied
from wanbench.harness.testbeds.slot import SlotTestbed, Starter, Worker
from wanbench.workloads.process.control import Channel
from wanbench.workloads.process.worker import TRAINING

_WORKER = "wanbench.workloads.process.worker"


class NetnsWorker(Worker):
    """One worker process."""

    def __init__(self, rank: int, pid: int, channel: Channel, server: ForkServer) -> None:
        super().__init__(rank, channel)
        self.pid = pid
        self._server = server

    def failure(self) -> WorkerDied:
        """Return an error that describes how it ended."""
        return WorkerDied(self.rank, self._server.end_of(self.pid))

    def request_stack(self) -> None:
        """Let it print its stack into its log."""
        self._signal(signal.SIGUSR1)

    def is_stopped(self) -> bool:
        """Whether a signal stopped (suspended) the process."""
        return is_stopped(self.pid)

    def kill(self) -> None:
        """Send SIGKILL. All processes that it has started end with it."""
        self._signal(signal.SIGKILL)
        with suppress(OSError):
            self.channel.sock.shutdown(socket.SHUT_RDWR)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class NetnsTestbed(SlotTestbed, Starter):
    """Starts the fork server and opens slots.

    Args:
        folder: folder for the fork server's log; must exist.
        trains: whether workers will train, so that their parent imports torch. Programs do without.
    """

    def __init__(self, folder: Path, *, trains: bool = True) -> None:
        super().__init__()
        self._server = ForkServer(_WORKER, folder / "workers.log", namespaces=True, also=(TRAINING,) if trains else ())

    def starter(self) -> NetnsTestbed:
        """Return this testbed: workers of all slots have one parent."""
        return self

    def serves(self, running: Group, requested: Group) -> bool:
        """Return whether they have the same device, names and /tmp. All else is set for each cell."""
        return running.is_fixed_like(requested) and requested.private_tmp == running.private_tmp

    def start_worker(self, rank: int, attachment: str, group: Group) -> tuple[NetnsWorker, int]:
        """Fork a worker."""
        hosts = group.hosts or tuple(f"worker-{number}" for number in range(rank + 1))
        request = {
            "address": worker_address(rank),
            "attachment": attachment,
            "congestion": group.congestion,
            "mtu": group.mtu,
            "name": hosts[rank],
            "hosts": {name: worker_address(number) for number, name in enumerate(hosts)},
            "private_tmp": None if group.private_tmp is None else [str(folder) for folder in group.private_tmp],
        }
        pid, own_socket = self._server.fork(request)
        worker = NetnsWorker(rank, pid, Channel(own_socket), self._server)
        return worker, worker.ready(START_TIMEOUT_S)

    def kill(self) -> None:
        """Kill every worker and their parent."""
        super().kill()
        self._server.kill()

    def close(self) -> None:
        """Remove everything that this testbed made."""
        super().close()
        self._server.close()
