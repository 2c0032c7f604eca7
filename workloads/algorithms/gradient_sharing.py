"""Gradient sharing over an unreliable network: the baseline that RPS is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from wanbench.workloads.algorithms.unreliable import Unreliable
from wanbench.workloads.comm.base import Vector


@dataclass
class GradientSharing(Unreliable):
    """Baseline of RPS: averages gradients over datagrams that can be lost.

    Before each step, a reduce-scatter and an all-gather of the *gradients*, as `rps` does with models. For gradients
    g_i of shape (numel,) on worker i, and every block of share j::

        u_j = (1 / |N_j|) sum_{i in N_j} g_i                    # at owner j; N_j: j and the workers whose block arrived
        x_i <- x_i - lr (u_j if it arrives at i, else g_i)      # per block

    Without loss this is synchronous SGD. With loss, workers apply different gradients, nothing corrects the difference,
    and their models drift apart.
    """

    kind = "gradient-sharing"
    source = "Yu et al., ICML 2019 (the poster's baseline, 'SGD')"
    symbols = {"block": "as rps"}  # noqa: RUF012
    examples = ({}, {"block": "400B"})

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), averaged in place over the blocks that arrive.

        Raises:
            CommError: datagrams cannot be sent.
        """
        self._mean.replace(g)
        return g
