"""D-PSGD: each step averages with the neighbours on a ring, while the gradient is computed."""

from __future__ import annotations

from dataclasses import dataclass

from wanbench.workloads.algorithms.base import Algorithm, Promises, Replica
from wanbench.workloads.algorithms.gossip import Neighbours
from wanbench.workloads.comm.base import Vector


@dataclass
class DPSGD(Algorithm):
    """Decentralised parallel SGD on a ring: X <- X W - lr G(X).

    Worker i, with x_i of shape (numel,), W_ij = 1/3 for itself and its two neighbours (1/2 where N = 2)::

        send x_i ;  g_i at x_i meanwhile
        x_i <- sum_j W_ij x_j + (what the optimiser makes of x_i with g_i, minus x_i)

    W is symmetric and doubly stochastic, so the mean moves as with synchronous SGD. Replicas differ, also after
    `finish`. Momentum stays local.
    """

    kind = "dpsgd"
    source = "Lian, Zhang, Zhang, Hsieh, Zhang and Liu, Can Decentralized Algorithms Outperform Centralized, NIPS 2017"

    promises = Promises(keeps_mean=True)  # W is doubly stochastic
    state = ("_neighbours", "_begun")
    least_workers = 2

    def operations(self, world_size: int) -> int:
        """A message to and from each neighbour."""
        return 4

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._alone = replica.comm.world_size == 1
        self._neighbours = Neighbours(replica.comm)
        self._before = replica.w.clone()
        self._begun = False

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), unchanged: the step is local."""
        if not self._begun and not self._alone:  # the first step: nothing could be sent before
            self._send()
        self._before.copy_(self.replica.w)
        return g

    def stepped(self) -> None:
        """Average what was sent before the step, keep the step, and send for the next. It waits for the neighbours.

        Raises:
            CommError: a peer is gone.
        """
        if self._alone:
            return
        arrived, w = self._neighbours.wait(), self.replica.w
        share = 1.0 / (len(arrived) + 1)
        w.add_(self._before, alpha=share - 1.0)
        for rank in sorted(arrived):
            w.add_(arrived[rank], alpha=share)
        self._send()

    def finish(self) -> None:
        """Wait for what the neighbours sent; the next step will use it.

        Raises:
            CommError: a peer is gone.
        """
        self._neighbours.wait()

    def _send(self) -> None:
        self._begun = True
        self._neighbours.begin(self.replica.w)
