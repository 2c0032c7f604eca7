"""Workers in containers, whoever starts them: given their parts all at once, so that they import torch side by side."""

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
_NOBODY = 65532  # `nonroot` of many images; no user of the host, so that nothing of theirs is within reach


def worker_ids() -> tuple[int, int]:
    """User and group of a worker: the caller's, so that they share a folder, but never root."""
    return (os.getuid(), os.getgid()) if os.getuid() else (_NOBODY, _NOBODY)


class ContainerWorker(Worker):
    """A worker that has reported."""

    def kill(self) -> None:
        """Hang up, whereupon it ends by itself."""
        with suppress(OSError):
            self.channel.sock.shutdown(socket.SHUT_RDWR)


class ContainerStarter:
    """Starts the workers of one slot (`slot.Starter`)."""

    def __init__(self) -> None:
        self._ahead: dict[int, ContainerWorker] = {}  # have their parts, and import torch
        self._group = Group(0)
        self.over = threading.Event()

    def start_worker(self, rank: int, attachment: str, group: Group) -> tuple[Worker, int]:
        """The first one of a group is the start of all its workers."""
        if rank not in self._ahead or not self._group.like(group):
            self.forget()
            self._group = group
            parts = self.launch(range(rank, group.workers), attachment, group)
            self._ahead = {worker.rank: worker for worker in parts}
        worker = self._ahead.pop(rank)
        return worker, worker.ready(_START_TIMEOUT_S)

    def serves(self, running: Group, wanted: Group) -> bool:
        """TCP, limits and image of a container are given at its start."""
        return running.like(wanted)

    def kill(self) -> None:
        """End the workers that are just starting; from any thread."""
        self.over.set()
        for worker in list(self._ahead.values()):
            worker.kill()

    def forget(self) -> None:
        """End the workers that were started and not asked for any more."""
        for worker in self._ahead.values():
            worker.kill()
            worker.channel.close()
        self._ahead = {}

    @abstractmethod
    def image(self, group: Group) -> str | None:
        """Digest of the image that the group's workers run; None if unknown."""

    @abstractmethod
    def launch(self, ranks: Sequence[int], attachment: str, group: Group) -> list[ContainerWorker]:
        """Workers of these ranks that have been given their parts. Raises: HostError, WorkerDied."""


def give_part(guest: Guest, rank: int, attachment: str, remedy: str) -> None:
    """Tell a worker who it is.

    Args:
        remedy: what to do about an image that was made of other code.

    Raises:
        HostError: it runs other code than this process, or on another kernel.
    """
    if not guest.same_kernel:
        raise HostError(f"{guest.name}: the container runs on another kernel, out of reach for links made here")
    if not guest.same_code:
        raise HostError(f"{guest.name}: the image was made of another version of wanbench; {remedy}")
    uid, gid = worker_ids()
    with suppress(OSError):  # that it is gone shows when it is asked whether it is ready
        guest.channel.send(
            {"rank": rank, "address": worker_address(rank), "attachment": attachment, "uid": uid, "gid": gid}
        )
