"""How a worker trains: joins its group with the collective of its job, reports, streams rows back.

A job whose workers can be lost (`run_mortal`) has a process of its own, which can be killed and started again: it alone
dies, and its machine lives on. The worker passes on what the controller and the trainer say, and obeys the commands to
kill and restart. The controller never sees half a message of a trainer that was killed.
"""

import faulthandler
import os
import select
import signal
import socket
import struct
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import FileStore

from wanbench.workloads import imported
from wanbench.workloads.algorithms import registry as algorithms
from wanbench.workloads.comm import clock, datagram, gloo, hierarchical, mesh, ring
from wanbench.workloads.comm.base import Comm, CommError
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.membership import Alone, Minority
from wanbench.workloads.loop.job import Job
from wanbench.workloads.loop.train import Hooks, run
from wanbench.workloads.process import finished, heartbeat, namespace, regrouping
from wanbench.workloads.process.control import Channel, ControlError, failure, text

ROW_INTERVAL_S = 1.0


class Trainer:
    """A worker of one job.

    Args:
        channel: to the controller.
        address: of this worker. interface: its device.
        counters: reads the counters of this network.
        routed: the congestion control of the route to the peers, if it was set.
    """

    def __init__(
        self,
        channel: Channel,
        job: Job,
        address: str,
        interface: str,
        counters: Callable[[], finished.Counters],
        routed: str | None,
    ) -> None:
        self._channel, self._job, self._counters = channel, job, counters
        self._heart: heartbeat.Heartbeat | None = None
        self._begun: finished.Counters | None = None
        torch.set_num_threads(1)
        self._membership = None if job.deadline_s is None else membership(job, address)
        self._comm = self._join(address, interface)
        if routed is not None and (wrong := congestion_in_use() - {routed}):
            raise CommError(f"connections use {', '.join(sorted(wrong))}; expected {routed}, as the route says")

    def _join(self, address: str, interface: str) -> Comm:
        if self._job.returned:
            return Alone()
        return join(self._job, address, interface) if self._membership is None else self._membership.first().comm

    def run(self, before: finished.Counters | None = None) -> None:
        """Train, and tell the controller.

        Args:
            before: the counters when all workers were warm; None: they are not warm yet.
        """
        if before is None:
            self._tell("joined")
            expect(self._channel, "go")
        # A row that has left is known, even if the trainer is killed next; `run_mortal` sends them in batches.
        rows = RowStream(self._channel, self._job.told_steps, ROW_INTERVAL_S if self._membership is None else 0.0)
        hooks = Hooks(
            lambda row: rows.add(vars(row)),
            partial(self._warm, before),
            partial(self._tell, "evaluating"),  # many evaluations are no hang
            self._windows,
        )
        try:
            outcome = run(self._job, self._comm, clock.MonotonicClock(), hooks, membership=self._membership)
        finally:
            lost = [] if self._heart is None else self._heart.stop()
        rows.flush()
        assert self._begun is not None, "training calls warm"
        report = finished.FinishedJob(
            counters_before=self._begun,
            counters_after=self._counters(),
            imports=imported.noted(),
            outcome=outcome,
            lost=lost,
        )
        self._tell("finished", **asdict(report))

    def _warm(self, before: finished.Counters | None) -> None:
        self._heart = heartbeat.Heartbeat()
        self._begun = counted = self._counters()
        if before is None:
            self._tell("warm", now_ns=time.monotonic_ns())
        else:
            self._begun = replace(before, cpu_wait_ns=counted.cpu_wait_ns)  # of this process

    def _windows(self) -> int:
        self._tell("warming")  # nor is a long warm-up
        return congestion_windows()

    def close(self) -> None:
        """Hang up."""
        self._comm.close()

    def _tell(self, event: str, **details: Any) -> None:
        self._channel.send({"cmd": "job", "event": event, **details})


class RowStream:
    """Sends step rows in batches, about one per second, at no measurable cost. Reports some steps at once.

    Args:
        reported: the numbers of those steps.
        interval_s: least time between batches.
    """

    def __init__(self, channel: Channel, reported: Sequence[int] = (), interval_s: float = ROW_INTERVAL_S) -> None:
        self._channel, self._reported, self._interval_s = channel, frozenset(reported), interval_s
        self._rows: list[dict[str, Any]] = []
        self._sent = time.monotonic()

    def add(self, row: dict[str, Any]) -> None:
        """Send a row, now or later."""
        self._rows.append(row)
        if row["step"] + 1 in self._reported:
            self._channel.send({"cmd": "job", "event": "step", "step": row["step"] + 1, "now_ns": row["end_ns"]})
        if time.monotonic() - self._sent >= self._interval_s:
            self.flush()

    def flush(self) -> None:
        """Send all rows."""
        if self._rows:
            self._channel.send({"cmd": "job", "event": "rows", "rows": self._rows})
        self._rows = []
        self._sent = time.monotonic()


def expect(channel: Channel, command: str) -> None:
    """Wait for a command. Raises: SystemExit: the controller is gone. ControlError: another command."""
    message = channel.recv()
    if message is None:
        raise SystemExit(0)
    if text(message, "cmd") != command:
        raise ControlError(f"control channel: the controller sent {message['cmd']!r}; expected {command!r}")


# ---------------------------------------------------------------- its group


_FOREVER = -1  # torch removes the file of a store once so many have used it


def join(job: Job, address: str, interface: str) -> Comm:
    """Connect this rank to its peers over the emulated device, with the job's collective.

    An algorithm that needs datagrams uses `direct` and also gets a UDP socket. The socket uses the same port number as
    the TCP listener, so peers already know it.
    """
    if job.world_size == 1:
        return DirectComm(mesh.Mesh(0, 1, {}, 1), timeout_s=job.timeout_s)
    store = FileStore(job.rendezvous, job.world_size)
    if job.collective == "gloo":
        return gloo.GlooComm(
            store, job.rank, job.world_size, interface=interface, channels=job.channels, timeout_s=job.timeout_s
        )
    if job.collective == "hierarchical":
        return hierarchical.form(
            lambda role, members: _connect(job, store, mesh.listen(address), role, members)[0],
            job.site_of,
            job.rank,
            timeout_s=job.timeout_s,
        )
    listener = mesh.listen(address)
    sock = datagram.bind(*listener.getsockname()[:2]) if algorithms.create(job.kind, job.params).datagrams else None
    connected, addresses = _connect(job, store, listener, "all", range(job.world_size))
    if job.collective == "ring":
        return ring.RingComm(connected, job.ring, timeout_s=job.timeout_s)
    if sock is None:
        return DirectComm(connected, timeout_s=job.timeout_s, one_shot_bytes=job.one_shot_bytes)
    datagrams = datagram.Datagrams(
        sock,
        job.rank,
        addresses,
        token=zlib.crc32(job.rendezvous.encode()),
        bytes_per_s=job.datagram_bytes_per_s,
        timeout_s=job.timeout_s,
    )
    return datagram.DatagramComm(connected, datagrams, timeout_s=job.timeout_s)


def membership(job: Job, address: str) -> regrouping.Regrouping:
    """Return the membership of a `direct` job whose workers can be lost, and open the port at which it can be called.

    A worker that was started again finds the addresses of the others where it wrote its own.
    """
    assert job.deadline_s is not None, "nobody would notice that a worker is cut off"
    store = FileStore(job.rendezvous, _FOREVER)
    store.set(f"host/{job.rank}", address)
    hosts = [store.get(f"host/{rank}").decode() for rank in range(job.world_size)]

    def first() -> DirectComm:
        connected, _ = _connect(job, store, mesh.listen(address), "all", range(job.world_size))
        return DirectComm(connected, timeout_s=job.timeout_s, one_shot_bytes=job.one_shot_bytes)

    def connect(
        listener: socket.socket, members: Sequence[int], addresses: Sequence[tuple[str, int]], token: bytes
    ) -> DirectComm:
        connected = _mesh(job, listener, members, addresses, token=token, timeout_s=job.deadline_s)
        return DirectComm(connected, timeout_s=job.timeout_s, one_shot_bytes=job.one_shot_bytes)

    return regrouping.Regrouping(
        job.rank, hosts, job.rendezvous, first, connect, deadline_s=job.deadline_s, timeout_s=job.timeout_s
    )


def _connect(
    job: Job, store: FileStore, listener: socket.socket, role: str, members: Sequence[int]
) -> tuple[mesh.Mesh, list[tuple[str, int]]]:
    """Connect to the other members, of which this rank is one, and which agree on the role. Return their addresses."""
    host, port = listener.getsockname()[:2]
    store.set(f"{role}/{job.rank}", f"{host}:{port}")
    texts = [store.get(f"{role}/{peer}").decode().split(":") for peer in members]
    addresses = [(host, int(port)) for host, port in texts]
    return _mesh(job, listener, members, addresses), addresses


def _mesh(
    job: Job,
    listener: socket.socket,
    members: Sequence[int],
    addresses: Sequence[tuple[str, int]],
    *,
    token: bytes = bytes(mesh.TOKEN_BYTES),
    timeout_s: float | None = None,
) -> mesh.Mesh:
    """Connect to the other members, at the pace of the job."""
    return mesh.connect(
        listener,
        members.index(job.rank),
        addresses,
        connections=job.channels,
        timeout_s=job.timeout_s if timeout_s is None else timeout_s,
        paces={index: mesh.Pace(*job.paces[peer]) for index, peer in enumerate(members)} if job.paces else None,
        names=members,
        token=token,
        silence_s=job.deadline_s,
    )


# ---------------------------------------------------------------- TCP connections, also those that a library has opened


_CWND_OFFSET = 80  # of tcpi_snd_cwnd in struct tcp_info, linux/tcp.h


def congestion_in_use() -> set[str]:
    """The congestion controls of this process's TCP connections."""
    names = (sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16) for sock in _connections())
    return {name.partition(b"\0")[0].decode() for name in names}


def congestion_windows() -> int:
    """The sum of the congestion windows of this process's TCP connections, in segments."""
    return sum(
        struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), _CWND_OFFSET)[0]
        for sock in _connections()
    )


def _connections() -> Iterator[socket.socket]:
    for file in Path("/proc/self/fd").iterdir():
        if not file.is_socket():
            continue
        # Some are no connections, and other threads can close one meanwhile.
        with suppress(OSError), socket.socket(fileno=os.dup(int(file.name))) as sock:
            sock.getpeername()
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            yield sock


# ---------------------------------------------------------------- a process that can be killed


Train = Callable[[Channel, Job, finished.Counters | None], object]


def run_mortal(channel: Channel, job: Job, train: Train, counters: Callable[[], finished.Counters]) -> None:
    """Run a job until the controller says `leave`. It can be killed once all workers are warm.

    `kill` ("again": whether `restart` will follow) and `restart` are answered by "killed" and "restarted", with the
    "due_ns" of the request and "at_ns", the time of the effect. Without an effect there is no answer: the trainer has
    already finished or stopped.

    Args:
        train: runs the job in the trainer's process. Its channel leads to this process. Gets the counters when all
            workers were warm, or None if they are not.
        counters: reads the counters of this machine.

    Raises:
        SystemExit: the controller is gone.
        ControlError: the controller sent another command.
    """
    mortal = _Mortal(channel, job, train, counters)
    faulthandler.unregister(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, mortal.pass_signal)  # the stack that matters is the trainer's
    try:
        mortal.start(job)
        while mortal.obeys():
            pass
    finally:
        mortal.close()
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1, all_threads=False)


class _Mortal:
    def __init__(self, channel: Channel, job: Job, train: Train, counters: Callable[[], finished.Counters]) -> None:
        self._channel, self._job, self._train, self._counters = channel, job, train, counters
        self._rows = RowStream(channel)
        self._before: finished.Counters | None = None
        self._pid: int | None = None
        self._trainer: Channel | None = None
        self._ended = False  # it has said its last word
        self._killed = False  # and will be restarted

    def start(self, job: Job) -> None:
        """Fork a trainer."""
        near, far = socket.socketpair()

        def train() -> int:
            near.close()
            self._channel.close()
            return self._live(Channel(far), job)

        self._pid = namespace.fork(train, os.getpid())
        far.close()
        near.setblocking(False)  # it can be killed in the middle of a message
        self._trainer = Channel(near)

    def _live(self, channel: Channel, job: Job) -> int:
        """Be the trainer. Return its exit status."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1, all_threads=False)
        try:
            self._train(channel, job, self._before)
        except Minority as error:
            channel.send({"cmd": "job", "event": "stopped", "reason": str(error)})
        except Exception as error:
            traceback.print_exc()
            channel.send(failure(error))
            return 1
        return 0

    def pass_signal(self, number: int, frame: object) -> None:
        """Pass a signal to the trainer."""
        if self._pid is not None:
            os.kill(self._pid, number)

    def obeys(self) -> bool:
        """Wait for what is said next, and pass it on or obey it; false after `leave`."""
        channels = [self._channel] if self._trainer is None else [self._channel, self._trainer]
        readable, _, _ = select.select(channels, [], [])
        if self._trainer in readable:
            self._pass_on()
        for message in self._channel.messages() if self._channel in readable else ():
            if message is None:
                raise SystemExit(0)
            if text(message, "cmd") == "leave":
                return False
            self._obey(message)
        return True

    def _obey(self, message: dict[str, Any]) -> None:
        command = message["cmd"]
        if command == "go" and self._trainer is not None:
            self._trainer.send(message)
        elif command == "kill":
            self._obey_kill(message)
        elif command == "restart":
            if self._killed:
                self._killed = False
                self.start(replace(self._job, returned=True))
                self._answer("restarted", message)
        else:
            raise ControlError(
                f"control channel: got {command!r} while a job runs; expected go, kill, restart or leave"
            )

    def _obey_kill(self, message: dict[str, Any]) -> None:
        if self._pid is not None and self._trainer is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._trainer.sock.setblocking(True)
        while self._trainer is not None:  # what it said before counts
            self._pass_on(killed=True)
        if not self._ended and not self._killed:
            self._killed = message["again"]
            self._answer("killed", message, again=message["again"])
            self._ended = not self._killed

    def _answer(self, event: str, message: dict[str, Any], **details: Any) -> None:
        times = {"due_ns": message["due_ns"], "at_ns": time.monotonic_ns()}
        self._say({"cmd": "job", "event": event, **times, **details})

    def _say(self, message: dict[str, Any]) -> None:
        self._rows.flush()
        self._channel.send(message)

    def _pass_on(self, *, killed: bool = False) -> None:
        """Pass on what the trainer says, or note that it has ended."""
        assert self._trainer is not None
        with suppress(BlockingIOError):  # a part of a message has arrived
            for message in self._trainer.messages():
                if message is None:
                    self._note_end(killed=killed)
                    return
                event = message.get("event")
                if event == "rows":
                    for row in message["rows"]:
                        self._rows.add(row)
                    continue
                self._ended = self._ended or "error" in message or event in ("finished", "stopped")
                if event == "warm":
                    self._before = self._counters()
                self._say(message)

    def _note_end(self, *, killed: bool) -> None:
        """The trainer has hung up, which it does when it ends."""
        code = self._wait()
        if not self._ended and not killed:
            how = f"by signal {-code}" if code < 0 else f"with exit status {code}"
            self._ended = True
            self._say({"error": f"its trainer ended {how}", "kind": "TrainerEnded"})

    def _wait(self) -> int:
        """Wait for the end of the trainer. Return its exit status; negative: the signal that ended it."""
        assert self._pid is not None
        assert self._trainer is not None
        self._trainer.close()
        _, status = os.waitpid(self._pid, 0)
        self._trainer = self._pid = None
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """End the trainer, if it has not ended."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._wait()
