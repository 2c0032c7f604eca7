"""Workers in containers of any origin. They get their ranks all at once, so they import torch at the same time."""

from __future__ import annotations

import os
import socket
import threading
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress

from wanbench.harness.emulators.plan import worker_address
from wanbench.harness.errors import HostError
from wanbench.harness.testbeds.base import Group
from wanbench.harness.testbeds.docker.door import Guest
from wanbench.harness.testbeds.slot import Worker

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


class ContainerStarter:
    """Starts the workers of one slot (`slot.Starter`)."""

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

    def serves(self, running: Group, wanted: Group) -> bool:
        """Whether all settings are equal: TCP, limits and image of a container are set when it starts."""
        return running.like(wanted)

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
    def image(self, group: Group) -> str | None:
        """Return the digest of the image that the group's workers run, or None if it is unknown."""

    @abstractmethod
    def launch(self, ranks: Sequence[int], attachment: str, group: Group) -> list[ContainerWorker]:
        """Return workers to which these ranks have been assigned. Raises: HostError, WorkerDied."""


def assign_rank(
    guest: Guest, rank: int, attachment: str, remedy: str, *, congestion: str | None, hosts: Sequence[str] = ()
) -> None:
    """Send a worker its rank, address and user.

    Args:
        remedy: how to fix an image that has other code.
        congestion: the congestion control of TCP, which the worker sets if it makes the device.
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
        table = {name: worker_address(number) for number, name in enumerate(hosts)}
        settings = {"attachment": attachment, "uid": uid, "gid": gid, "hosts": table, "congestion": congestion}
        guest.channel.send({"rank": rank, "address": worker_address(rank), **settings})
