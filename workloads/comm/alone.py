"""The comm of a worker that has no peers yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from wanbench.workloads.comm.base import CommError, Vector, Work

_NO_PEERS = "this worker has no peers yet"


class Alone:
    """A `Comm` without peers: an algorithm can start on it, nothing can be sent, and nothing runs beside it."""

    rank = 0
    world_size = 1

    def all_reduce(self, vector: Vector) -> NoReturn:
        """Raises: CommError."""
        raise CommError(_NO_PEERS)

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> NoReturn:
        """Raises: CommError."""
        raise CommError(_NO_PEERS)

    def send(self, vector: Vector, dst: int, tag: int = 0) -> NoReturn:
        """Raises: CommError."""
        raise CommError(_NO_PEERS)

    def recv(self, vector: Vector, src: int, tag: int = 0) -> NoReturn:
        """Raises: CommError."""
        raise CommError(_NO_PEERS)

    def first(self, receives: Mapping[int, Work], until_ns: int | None = None) -> NoReturn:
        """Raises: CommError."""
        raise CommError(_NO_PEERS)

    def now(self) -> int:
        """0: nothing happens here."""
        return 0

    def background(self, body: Callable[[Any], None]) -> Work:
        """Do not run `body`: there is nobody to serve."""
        return _NeverRun()

    def close(self) -> None:
        """Release nothing."""


class _NeverRun:
    """The operation of a body that does not run."""

    def done(self) -> bool:
        """False."""
        return False

    def wait(self) -> NoReturn:
        """Raises: CommError."""
        raise CommError(_NO_PEERS)
