"""D-PSGD: each step averages with the neighbours on a ring while it computes the gradient."""

from __future__ import annotations

from dataclasses import dataclass

from wanbench.workloads.algorithms.base import Promises, Replica
from wanbench.workloads.algorithms.gossip import Gossip, Neighbours
from wanbench.workloads.comm.base import Vector


@dataclass
class DPSGD(Gossip):
    """Gossip on a ring: each step averages with two neighbours.

    D-PSGD: X <- X W - lr G(X). On worker i, with x_i of shape (numel,), and W_ij = 1/3 for itself and its two
    neighbours (1/2 if N = 2)::

        send x_i ;  at the same time compute g_i at x_i
        x_i <- sum_j W_ij x_j + (change of x_i by the optimiser's step with g_i)

    W is symmetric and doubly stochastic, so the mean moves as in synchronous SGD. Replicas differ, even after
    `finish`. Momentum stays local.
    """

    kind = "dpsgd"
    source = "Lian, Zhang, Zhang, Hsieh, Zhang and Liu, Can Decentralized Algorithms Outperform Centralized, NIPS 2017"

    promises = Promises(keeps_mean=True)  # W is doubly stochastic
    state = ("_neighbours", "_begun")

    def operations(self, world_size: int) -> int:
        """Send and receive a message for each of two neighbours."""
        return 4

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._alone = replica.comm.world_size == 1
        self._neighbours = Neighbours(replica.comm)
        self._begun = False

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), unchanged: the step is local."""
        if not self._begun and not self._alone:  # the first step: nothing was sent before
            self._send()
        return super().gradient(g)

    def stepped(self) -> None:
        """Wait for the neighbours, average the parameters sent before the step, add the step, and send again.

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
        """Wait for the neighbours' messages, which the next step will use.

        Raises:
            CommError: a peer is gone.
        """
        self._neighbours.wait()

    def _send(self) -> None:
        self._begun = True
        self._neighbours.begin(self.replica.w)
