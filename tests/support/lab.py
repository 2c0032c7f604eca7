"""Workers without torch: processes in separate namespaces, on an emulator, that call functions for a test."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from wanbench.harness.emulators.emulator import Emulator
from wanbench.harness.emulators.impairments import Tolerance
from wanbench.harness.emulators.plan import EmulatedNetwork, worker_address
from wanbench.harness.emulators.probe import ProbeReport, probe
from wanbench.workloads.process.namespace import die_with_parent, drop_privileges, enter_private_network, set_tcp
from wanbench.workloads.process.probing import handle
from wanbench.workloads.process.tun import open_tun


class LabWorker:
    """The interface that a probe needs of a worker."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def send(self, message: dict[str, Any]) -> None:
        self.pipe.send((handle, (message,)))

    def receive(self, timeout_s: float, expected: str = "") -> dict[str, Any]:
        if not self.pipe.poll(timeout_s):
            raise TimeoutError
        answer = self.pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Lab:
    """Workers 0..n-1 attached to one emulator."""

    def __init__(self, network: EmulatedNetwork, kind: type[Emulator]) -> None:
        self.emulator = kind()
        self.pids: list[int] = []
        self._mtu = network.mtu
        self._pipes: list[Connection] = []
        self._threads: list[ThreadPoolExecutor] = []  # one per worker, which does one thing at a time
        try:
            for rank in range(network.workers):
                self.start_worker(rank)
            self.emulator.apply(network)
        except BaseException:
            self.close()
            raise

    def run(self, rank: int, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Call a module-level function inside a worker."""
        return self._threads[rank].submit(self._call, self._pipes[rank], function, arguments)

    def replace(self, rank: int) -> None:
        """Kill the worker with the last rank, and start another one in its place."""
        assert rank == len(self.pids) - 1
        os.kill(self.pids[rank], signal.SIGKILL)
        os.waitpid(self.pids.pop(), 0)
        self._pipes.pop().close()
        self._threads.pop().shutdown()
        self.start_worker(rank)

    @property
    def workers(self) -> list[LabWorker]:
        """Return the workers, as a probe uses them."""
        return [LabWorker(pipe) for pipe in self._pipes]

    def close(self) -> None:
        """End everything."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.pids = []
        for pipe in self._pipes:
            pipe.close()
        for thread in self._threads:
            thread.shutdown()
        self.emulator.close()

    @staticmethod
    def _call(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        pipe.send((function, arguments))
        answer = pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def start_worker(self, rank: int) -> None:
        pipe, theirs = multiprocessing.Pipe()
        sock, far = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent(parent)
                for open_end in (pipe, sock, *self._pipes):
                    open_end.close()
                _serve(rank, self.emulator.attachment, self._mtu, theirs, far)
            finally:
                os._exit(1)
        self.pids.append(pid)
        self._pipes.append(pipe)
        self._threads.append(ThreadPoolExecutor(1))
        theirs.close()
        far.close()
        with sock:
            _, fds, _, _ = socket.recv_fds(sock, 1, 1)
        if not fds:
            error = pipe.recv()
            raise error
        self.emulator.attach(rank, fds[0])
        os.close(fds[0])


def _serve(rank: int, attachment: str, mtu: int, pipe: Connection, sock: socket.socket) -> None:
    try:
        enter_private_network()
        tun = attachment == "tun"
        device = open_tun("wan0", worker_address(rank), mtu=mtu) if tun else os.open("/proc/self/ns/net", os.O_RDONLY)
        set_tcp({"congestion": "reno", "slow_start_after_idle": True})
        drop_privileges()
    except Exception as error:
        pipe.send(error)  # if the host lacks something, the test fails with the remedy
        return
    with sock:
        socket.send_fds(sock, [b"."], [device])
    os.close(device)
    while True:
        function, arguments = pipe.recv()
        try:
            pipe.send(function(*arguments))
        except Exception as error:
            pipe.send(error)


def probed(network: EmulatedNetwork, workers: Sequence[LabWorker], tolerance: Tolerance, tries: int = 3) -> ProbeReport:
    """Return the probed network. A busy host disturbs some probes, but a bug disturbs all of them."""
    for _ in range(tries):
        report = probe(network, workers, tolerance=tolerance)
        if not report.reasons:
            break
    return report
