"""Workers in containers of any origin.

They report at a door, a Unix socket in a folder that they share with the controller. They get their ranks all at once,
so they import torch at the same time.
"""

import os
import select
import socket
import struct
import threading
from abc import abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from wanbench.harness.emulators.plan import worker_address
from wanbench.harness.errors import HostError
from wanbench.harness.testbeds.base import Group
from wanbench.harness.testbeds.slot import Starter, Worker
from wanbench.workloads.process.container import boot_id, own_code
from wanbench.workloads.process.control import Channel, short_name

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_HELLO_S = 5.0  # a worker says hello as soon as it is connected


class Guest(NamedTuple):
    """A worker that has reported and waits for its rank."""

    name: str
    channel: Channel
    same_code: bool
    same_kernel: bool


class Door:
    """Listens for workers in its own thread.

    Args:
        path: path of the socket.
        users: ids of the users that may connect; None is everyone who can reach the folder.
        group: group of the socket, whose members may connect besides its owner.
    """

    def __init__(self, path: Path, users: Collection[int] | None = None, group: int | None = None) -> None:
        self.path = path
        self._users = users
        self.names: set[str] = set()  # of all workers that have ever reported
        self._guests: list[Guest] = []
        self._closed = False
        self._changed = threading.Condition()
        self._code, self._boot = own_code(), boot_id()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_name(path) as name:
            self._listener.bind(name)
        if group is not None:
            os.chown(path, -1, group)
        path.chmod(0o666 if users is None else 0o600 if group is None else 0o660)
        self._listener.listen(128)
        self._thread = threading.Thread(target=self._serve, name="door", daemon=True)
        self._thread.start()

    def take(self, name: str | None, timeout_s: float) -> Guest | None:
        """Return the worker of this name, or any worker if the name is None; None if no such worker reports in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting(name) or self._closed, timeout_s)
            guest = next(iter(self._waiting(name)), None)
            if guest is not None:
                self._guests.remove(guest)
            return guest

    def wait_for(self, count: int, timeout_s: float) -> int:
        """Wait until this many workers have reported. Return how many have."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting(None)) >= count or self._closed, timeout_s)
            return len(self._waiting(None))

    def close(self) -> None:
        """Refuse new workers and disconnect those that wait. A second call does nothing."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._thread.join()
        self._listener.close()
        self.path.unlink(missing_ok=True)
        with self._changed:
            for guest in self._guests:
                guest.channel.close()
            self._guests, self._closed = [], True
            self._changed.notify_all()

    def _waiting(self, name: str | None) -> list[Guest]:
        self._guests = [guest for guest in self._guests if _is_there(guest)]
        return [guest for guest in self._guests if name in (None, guest.name)]

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if not self._admits(sock):
                sock.close()
            elif (guest := self._greet(Channel(sock))) is not None:
                with self._changed:
                    self._guests.append(guest)
                    self.names.add(guest.name)
                    self._changed.notify_all()

    def _admits(self, sock: socket.socket) -> bool:
        """Whether the user of the process at the other end may connect."""
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return self._users is None or _CREDENTIALS.unpack(credentials)[1] in self._users

    def _greet(self, channel: Channel) -> Guest | None:
        channel.sock.settimeout(_HELLO_S)
        try:
            hello = channel.recv()
        except (OSError, ValueError):
            hello = None
        if hello is None or hello.get("cmd") != "hello":  # a worker that only checked whether a controller listens
            channel.close()
            return None
        channel.sock.settimeout(None)
        return Guest(
            str(hello.get("name")),
            channel,
            same_code=hello.get("code") == self._code,
            same_kernel=hello.get("boot") == self._boot,
        )


def _is_there(guest: Guest) -> bool:
    poll = select.poll()
    poll.register(guest.channel, select.POLLRDHUP)
    return not poll.poll(0)


_START_TIMEOUT_S = 180.0  # importing torch on a busy or slow machine
_NOBODY = 65532  # `nonroot` in many images, and no user of the host, whose files it therefore cannot access


def worker_ids() -> tuple[int, int]:
    """The user and group of a worker: the caller's, so that they can share a folder, but never root."""
    return (os.getuid(), os.getgid()) if os.getuid() else (_NOBODY, _NOBODY)


class ContainerWorker(Worker):
    """A worker that has reported."""

    def kill(self) -> None:
        """Close the connection, upon which the worker ends."""
        with suppress(OSError):
            self.channel.sock.shutdown(socket.SHUT_RDWR)


class ContainerStarter(Starter):
    """Starts the workers of one slot."""

    def __init__(self) -> None:
        self._starting: dict[int, ContainerWorker] = {}  # have their ranks, and import torch
        self._group = Group(0)
        self.ended = threading.Event()

    def start_worker(self, rank: int, attachment: str, group: Group) -> tuple[Worker, int]:
        """Return a worker once it is ready. The first call for a group launches all its workers."""
        if rank not in self._starting or not self._group.like(group):
            self.discard_unused()
            self._group = group
            launched = self.launch(range(rank, group.workers), attachment, group)
            self._starting = {worker.rank: worker for worker in launched}
        worker = self._starting.pop(rank)
        return worker, worker.ready(_START_TIMEOUT_S)

    def serves(self, running: Group, requested: Group) -> bool:
        """Whether all settings are equal: TCP, limits and image of a container are set when it starts."""
        return running.like(requested)

    def kill(self) -> None:
        """End the workers that are still starting. Any thread can call this."""
        self.ended.set()
        for worker in list(self._starting.values()):
            worker.kill()

    def discard_unused(self) -> None:
        """End the workers that were launched and are no longer needed."""
        for worker in self._starting.values():
            worker.kill()
            worker.channel.close()
        self._starting = {}

    @abstractmethod
    def launch(self, ranks: Sequence[int], attachment: str, group: Group) -> list[ContainerWorker]:
        """Return workers to which these ranks have been assigned. Raises: HostError, WorkerDied."""


def assign_rank(
    guest: Guest, rank: int, attachment: str, remedy: str, group: Group, *, hosts: Sequence[str] = ()
) -> None:
    """Send a worker its rank, address and user.

    Args:
        remedy: how to fix an image that has other code.
        group: its congestion control and its MTU are set by the worker if it makes the device.
        hosts: names of all workers, if the worker is to write them into its table of hosts.

    Raises:
        HostError: the worker runs other code than this process, or on another kernel.
    """
    if not guest.same_kernel:
        raise HostError(f"{guest.name}: the container runs on another kernel, which links made here cannot reach")
    if not guest.same_code:
        raise HostError(f"{guest.name}: the image has another version of wanbench; {remedy}")
    uid, gid = worker_ids()
    with suppress(OSError):  # if it has ended, `ready` reports that
        guest.channel.send(
            {
                "rank": rank,
                "address": worker_address(rank),
                "congestion": group.congestion,
                "mtu": group.mtu,
                "attachment": attachment,
                "uid": uid,
                "gid": gid,
                "hosts": {name: worker_address(number) for number, name in enumerate(hosts)},
            }
        )
