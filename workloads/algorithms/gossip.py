"""Gossip: what its algorithms share, the graphs of who sends to whom, and exchanges with the neighbours on a ring."""

from collections.abc import Mapping

from wanbench.workloads.algorithms.base import Algorithm, Replica
from wanbench.workloads.comm.base import Comm, Vector, Work
from wanbench.workloads.state import Stateful


class Gossip(Algorithm):
    """Local steps, whose change an algorithm adds to an average with some peers: it keeps the w before each step."""

    least_workers = 2

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._before = replica.w.clone()

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), unchanged: the step is local."""
        self._before.copy_(self.replica.w)
        return g


def exponential(rank: int, step: int, world_size: int, peers: int) -> tuple[list[int], list[int]]:
    """Return the ranks to send to and to receive from, in one step of the directed exponential graph.

    With m peers the hops of step k are j (m + 1)^e, j = 1 .. m, e = k mod L, L = floor(log_{m+1}(N - 1)) + 1. With one
    peer they are 1, 2, 4, ... in turn. Hops that are equal modulo N count once; a hop to the rank itself is left out.
    (Assran et al. 2019; `NPeerDynamicDirectedExponentialGraph` in their code.)

    With one peer and N a power of two, L steps of equal shares give exactly the average over all ranks.
    """
    power = (peers + 1) ** (step % turns(world_size, peers))
    every = dict.fromkeys(j * power % world_size for j in range(1, peers + 1))
    hops = [hop for hop in every if hop]
    return [(rank + hop) % world_size for hop in hops], [(rank - hop) % world_size for hop in hops]


def turns(world_size: int, peers: int) -> int:
    """L: number of steps after which the exponential graph repeats."""
    count, reach = 1, peers + 1
    while reach <= world_size - 1:
        count, reach = count + 1, reach * (peers + 1)
    return count


def ring(rank: int, world_size: int) -> list[int]:
    """The two neighbours on a ring; a single one if there are only two workers."""
    return list(dict.fromkeys([(rank - 1) % world_size, (rank + 1) % world_size]))


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
