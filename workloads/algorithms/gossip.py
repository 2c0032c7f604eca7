"""Exchanges with the neighbours on a ring, for the gossip algorithms."""

from __future__ import annotations

from collections.abc import Mapping

from wanbench.workloads.algorithms.peers import ring
from wanbench.workloads.comm.base import Comm, Vector, Work
from wanbench.workloads.state import Stateful


class Neighbours(Stateful):
    """One exchange with each neighbour on the ring, in flight or arrived.

    Attributes:
        ranks: the neighbours.
    """

    state = ("_arrived",)

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self.ranks = ring(comm.rank, comm.world_size)
        self._works: list[Work] = []
        self._arrived: dict[int, Vector] = {}

    def begin(self, message: Vector) -> None:
        """Send `message` to each neighbour, and expect one of equal size from each."""
        self._arrived = {peer: message.clone() for peer in self.ranks}
        self._works = [self._comm.send(message, peer) for peer in self.ranks]
        self._works += [self._comm.recv(vector, peer) for peer, vector in self._arrived.items()]

    def wait(self) -> Mapping[int, Vector]:
        """Return the message of each neighbour; a second call returns the same at once. Raises: CommError."""
        for work in self._works:
            work.wait()
        self._works = []
        return self._arrived
