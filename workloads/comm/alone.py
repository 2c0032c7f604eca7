"""The comm of a worker that has no peers yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from wanbench.workloads.comm.base import CommError, Vector


class Alone:
    """A `Comm` without peers: an algorithm can start on it, and nothing can be sent."""

    rank = 0
    world_size = 1

    def all_reduce(self, vector: Vector) -> NoReturn:
        """Raises: CommError."""
        raise CommError("this worker has no peers yet")

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> NoReturn:
        """Raises: CommError."""
        raise CommError("this worker has no peers yet")

    def send(self, vector: Vector, dst: int) -> NoReturn:
        """Raises: CommError."""
        raise CommError("this worker has no peers yet")

    def recv(self, vector: Vector, src: int) -> NoReturn:
        """Raises: CommError."""
        raise CommError("this worker has no peers yet")

    def close(self) -> None:
        """Release nothing."""
