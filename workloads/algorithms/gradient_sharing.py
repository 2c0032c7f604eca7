"""Gradient sharing over an unreliable network: what RPS is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from wanbench.workloads.algorithms.unreliable import Unreliable
from wanbench.workloads.comm.base import Vector


@dataclass
class GradientSharing(Unreliable):
    """Reduce-scatter and all-gather of the *gradients* over an unreliable network, before each step.

    As `rps`, with gradients in the place of models: for every block of share j::

        u_j = (1 / |N_j|) sum_{i in N_j} g_i                    # at owner j; N_j: whose block arrived, and j itself
        x_i <- x_i - lr (u_j if it arrives at i, else g_i)      # per block

    Without loss this is synchronous SGD. With loss, workers apply different gradients and nothing brings their models
    together again: they drift apart for good.
    """

    kind = "gradient-sharing"
    source = "Yu et al., ICML 2019 (the poster's baseline, 'SGD')"
    symbols = {"block": "as rps"}  # noqa: RUF012

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), averaged in place as far as blocks arrive.

        Raises:
            CommError: datagrams cannot be sent.
        """
        self._mean.replace(g)
        return g
