"""The door at which containers report: a Unix socket in a folder that they share with the controller."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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
            hello.get("code") == self._code,
            same_kernel=hello.get("boot") == self._boot,
        )


def _is_there(guest: Guest) -> bool:
    poll = select.poll()
    poll.register(guest.channel, select.POLLRDHUP)
    return not poll.poll(0)
