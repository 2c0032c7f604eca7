"""DiLoCo: many local steps, then an outer Nesterov step with the average of their changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Algorithm, Compression, Promises, Replica, Setting, at_least, between
from wanbench.workloads.comm.base import Vector
from wanbench.workloads.state import Stateful


class Outer(Stateful):
    """Nesterov SGD on a global copy theta, shape (numel,), with pseudo-gradients Delta::

    b <- momentum b + Delta
    theta <- theta - lr (Delta + momentum b)
    """

    state = ("theta", "_b")

    def __init__(self, theta: Vector, lr: float, momentum: float) -> None:
        self.theta = theta.clone()
        self._b = theta.clone().zero_()
        self._lr, self._momentum = lr, momentum

    @property
    def lasting(self) -> tuple[Vector, Vector]:
        """theta and b."""
        return self.theta, self._b

    def step(self, delta: Vector) -> Vector:
        """Apply Delta, shape (numel,), and return theta."""
        self._b.mul_(self._momentum).add_(delta)
        return self.theta.add_(delta, alpha=-self._lr).add_(self._b, alpha=-self._lr * self._momentum)


class OuterSteps(Algorithm):
    """Rounds of local steps, each of which ends with an outer step that waits for its average."""

    when_lost = f"{Algorithm.when_lost}. The outer model and its momentum are kept"
    state = ("_outer", "_averager")
    period = 1
    outer_lr = 1.0
    momentum = 0.0
    decay = 1.0

    @property
    def promises(self) -> Promises:
        """All replicas continue from theta."""
        return Promises(agrees=True, lawful=self.in_one_all_reduce)

    def check(self, setting: Setting) -> None:
        super().check(setting)
        self.refuse_own_momentum()

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._outer = Outer(replica.w, self.outer_lr, self.momentum)
        self._averager = self.averager(replica.w, decay=self.decay)
        self._delta = replica.w.clone()
        self._steps = 0

    def stepped(self) -> None:
        """After a round: take the outer step, and wait for its average.

        Raises:
            CommError: a peer is gone.
        """
        self._steps += 1
        if self._steps == self.period:
            self.finish()

    @property
    def lasting(self) -> Sequence[Vector]:
        """theta and the outer momentum: a round that a loss interrupts goes on from theta."""
        return self._outer.lasting

    @property
    def evaluated(self) -> Vector:
        """theta of the last outer step, which all replicas share; local steps since then are not in it."""
        return self._outer.theta

    def finish(self) -> None:
        """Take the outer step, unless there was no step since the last one.

        Raises:
            CommError: a peer is gone.
        """
        if not self._steps:
            return
        w = self.replica.w
        exchange = self._averager.begin(self._delta.copy_(self._outer.theta).add_(w, alpha=-1.0))
        w.copy_(self._outer.step(exchange.wait()))
        self._averager.done(exchange)
        self._steps = 0


@dataclass
class DiLoCo(OuterSteps):
    """Sends very rarely: many local steps, then an outer Nesterov step.

    On worker k, all vectors of shape (numel,)::

        theta_k <- H steps of the local optimiser from theta
        Delta = mean_k (theta - theta_k)
        theta <- Nesterov(theta, Delta; outer_lr, momentum)
        theta_k <- theta

    The local optimiser (AdamW in the paper) keeps its state. With H = 1, outer_lr = 1 and momentum = 0 it is
    synchronous SGD. `finish` ends a round early.

    Attributes:
        period: H, in steps; 1 or more.
        outer_lr: learning rate of the outer step.
        momentum: momentum of the outer step.
        compression: compressor of theta - theta_k; "none" sends all of it.
    """

    kind = "diloco"
    source = "Douillard et al., DiLoCo, 2023 (arXiv 2311.08105)"
    symbols = {"period": "H", "outer_lr": "outer learning rate", "momentum": "mu"}  # noqa: RUF012
    examples = ({"period": 4}, {"period": 4, "compression": "fp16"})

    period: int = field(metadata=at_least(1))
    outer_lr: float = field(default=0.7, metadata=between(0, 100, open_below=True))
    momentum: float = field(default=0.9, metadata=between(0, 1, open_above=True))
    compression: Compression = "none"
