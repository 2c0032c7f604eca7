"""A part of an algorithm that runs beside a worker's training loop, such as a server.

On real sockets it is a thread of the worker, on the simulated clock a greenlet. It is sequential: it waits for
messages, computes, and sends. An error in it fails all operations of its worker, and those of the peers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from wanbench.workloads.comm.base import Comm, Vector, Work


@runtime_checkable
class BackgroundComm(Comm, Protocol):
    """A Comm whose worker can run something in the background. Messages have tags, and a rank can send to itself."""

    def now(self) -> int:
        """Nanoseconds of the clock that all workers share."""

    def send(self, vector: Vector, dst: int, tag: int = 0) -> Work:
        """As `Comm.send`; messages to the same rank keep their order for each tag. One to itself takes no time."""

    def recv(self, vector: Vector, src: int, tag: int = 0) -> Work:
        """As `Comm.recv`, of the messages with this tag."""

    def first(self, receives: Mapping[int, Work], until_ns: int | None = None) -> int | None:
        """Wait until the first of several receives has ended, and return its key; None at `until_ns`.

        If several have ended, it is the one that ended first, then the one with the smallest key. Its `wait` returns
        or raises at once.

        Raises:
            CommError: all peers are gone.
        """

    def background(self, body: Callable[[Any], None]) -> Work:
        """Run `body` beside the worker, with a view of this comm; the operation ends with it."""
