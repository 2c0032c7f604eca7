"""The simulated clock as a testbed: simulations in this process, or side by side in processes of their own."""

import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.errors import RepFailed
from wanbench.harness.process.forks import ForkServer
from wanbench.harness.testbeds.base import Slot, Trained, Training
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.harness.timeline.schedule import Schedule
from wanbench.workloads.loop.job import Job

_SIMULATOR = "wanbench.harness.testbeds.virtual.simulate"


class VirtualTestbed:
    """Runs simulations.

    Args:
        slots: how many of its slots are used at a time. A single one simulates in this process, which starts at once,
            unless a simulation runs a user's code. Otherwise each slot is a process.
    """

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots
        self.stopped = threading.Event()
        self.busy = threading.Lock()
        self._starting = threading.Lock()
        self._server: ForkServer | None = None

    def open_slot(self, emulator: str) -> Slot:
        """Return a new slot. It needs no emulator."""
        return _Slot(self)

    def fork(self) -> tuple[int, Connection, ForkServer]:
        """Start a process that simulates. Return its id, the connection to it, and its parent. Raises: HostError."""
        with self._starting:
            if self.stopped.is_set():
                raise RepFailed("stopped")
            if self._server is None or not self._server.runs():
                self._server = ForkServer(_SIMULATOR)
            server = self._server
        pid, sock = server.fork({})
        return pid, Connection(sock.detach()), server

    def kill(self) -> None:
        """End all simulations. Any thread can call this."""
        self.stopped.set()
        if self._server is not None:
            self._server.kill()

    def close(self) -> None:
        """End all processes, and wait for a simulation in this one."""
        self.kill()
        if self._server is not None:
            self._server.close()
        with self.busy:
            pass


class _Slot:
    """Simulates in the calling thread, or in a process that is started when first needed, and replaced after it died.

    A user's code runs in a process of its own, which it can end. One that has imported a user's modules would run them
    as they were then, whatever they are now. So it is replaced, too.
    """

    def __init__(self, testbed: VirtualTestbed) -> None:
        self._testbed = testbed
        self._process: tuple[int, Connection, ForkServer] | None = None

    def train(self, training: Training) -> Trained:
        """Simulate a training run.

        Raises:
            RepFailed: a worker raised an error, or waits forever for a message, or the process died.
            HostError: the process cannot start.
        """
        runs_users_code = training.repetition.jobs[0].runs_users_code
        if self._testbed.slots == 1 and not runs_users_code:
            # Importing torch takes seconds. Here the user can interrupt it.
            from wanbench.harness.testbeds.virtual.simulate import simulated

            with self._testbed.busy:
                return simulated(*_arguments(training), self._testbed.stopped)
        self._process = self._process or self._testbed.fork()
        pid, connection, server = self._process
        try:
            connection.send(_arguments(training))
            answer = connection.recv()
        except (EOFError, OSError):
            self._process = None
            connection.close()
            end = server.end_of(pid)
            why = ", as the kernel does when memory is short" if "SIGKILL" in end else ""
            raise RepFailed(f"the process of the simulation{end}{why}") from None
        if runs_users_code:
            self._process = None
            connection.close()
        if isinstance(answer, RepFailed):
            raise answer
        assert isinstance(answer, Trained)
        return answer


def _arguments(training: Training) -> tuple[Sequence[Job], EmulatedNetwork, Schedule | None, Tcp]:
    """The arguments of `simulated`, which another process can receive."""
    settings = dict(training.group.tcp)
    tcp = Tcp(
        training.repetition.tcp_ramp,
        bool(settings.get("slow_start_after_idle", True)),
        str(settings.get("congestion", "reno")),
        training.repetition.host_tcp.in_flight,
        training.repetition.host_tcp.queue,
    )
    return training.repetition.jobs, training.repetition.network, training.repetition.schedule, tcp
