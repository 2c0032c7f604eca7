"""Synchronous SGD: every step waits for the average of its own gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workloads.algorithms.base import Algorithm, Replica
from workloads.comm.base import Vector, Work


@dataclass
class SSGD(Algorithm):
    """Synchronous SGD: w <- step(w, mean_j g_j), with D = 0 and p = 1 (DTS, Eq. 1).

    Each bucket's all_reduce starts while the backward pass still computes the next one, as in PyTorch's DDP.
    """

    kind: ClassVar[str] = "ssgd"
    buckets: ClassVar[bool] = True
    agrees: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    keeps_mean: ClassVar[bool] = True

    def start(self, replica: Replica) -> None:
        """Called once, before the first step."""
        super().start(replica)
        self._works: list[Work] = []

    def bucket(self, view: Vector) -> None:
        """Start averaging `view`, a slice of the gradient, shape (bucket numel,)."""
        self._works.append(self.replica.comm.all_reduce(view))

    def gradient(self, g: Vector) -> Vector:
        """Wait for all buckets, then return `g`, shape (numel,), averaged in place.

        An engine that handed no buckets over gets the whole gradient reduced at once.

        Raises:
            CommError: a peer is gone.
        """
        works, self._works = self._works or [self.replica.comm.all_reduce(g)], []
        for work in works:
            work.wait()
        return g
