"""Delayed Nesterov: an outer step for each arrival, whose momentum changes only every N arrivals."""

from __future__ import annotations

from wanbench.workloads.comm.base import Vector
from wanbench.workloads.state import Stateful


class DelayedNesterov(Stateful):
    """The global vector theta of a server, shape (numel,), and its step for each pseudo-gradient g::

        Delta <- Delta + g
        every N arrivals:  m <- beta m + Delta / N ;  Delta <- 0
                           theta <- theta - lr ((1 - c N + c) beta m + g / N)
        otherwise:         theta <- theta - lr (c beta m + g / N)

    N arrivals at the same theta are one Nesterov step with their mean.

    Args:
        theta: copied.
        lr: learning rate. momentum: beta. every: N. spread: c, from 0 to 1 / N.
    """

    state = ("theta", "_m", "_delta", "_arrivals")

    def __init__(self, theta: Vector, *, lr: float, momentum: float, every: int, spread: float = 0.0) -> None:
        self.theta = theta.clone()
        self._m, self._delta = theta.clone().zero_(), theta.clone().zero_()
        self._lr, self._momentum, self._every, self._spread = lr, momentum, every, spread
        self._arrivals = 0

    def step(self, g: Vector) -> None:
        """Take the step of one arrival, shape (numel,)."""
        n, c = self._every, self._spread
        self._delta.add_(g)
        self._arrivals = (self._arrivals + 1) % n
        if not self._arrivals:
            self._m.mul_(self._momentum).add_(self._delta, alpha=1.0 / n)
            self._delta.zero_()
            c = 1.0 - c * n + c
        self.theta.add_(g, alpha=-self._lr / n)
        if c:
            self.theta.add_(self._m, alpha=-self._lr * c * self._momentum)
