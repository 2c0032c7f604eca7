"""DiLoCo: many local steps, then an outer Nesterov step with the average of their changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Algorithm, Compression, Promises, Replica, at_least, between
from wanbench.workloads.comm.base import Vector
from wanbench.workloads.compression.averaging import Exchange
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
    """Rounds of local steps, each of which ends with an outer step on an average of `staleness` rounds ago.

    With staleness 0 that is the average of the round itself. `eager`: the outer step applies this worker's share of
    the round at once, and the average that comes later without it.
    """

    when_lost = f"{Algorithm.when_lost}. The outer model and its momentum are kept"
    state = ("_outer", "_averager")
    local_steps = True
    period = 1
    staleness = 0
    eager = False
    outer_lr = 1.0
    momentum = 0.0
    decay = 1.0

    @property
    def delay_steps(self) -> int:
        """D = s H, with H the period and s the staleness."""
        return self.staleness * self.period

    @property
    def promises(self) -> Promises:
        """All replicas continue from theta."""
        return Promises(agrees=True, follows_law=self.in_one_all_reduce)

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._outer = Outer(replica.w, self.outer_lr, self.momentum)
        self._averager = self.averager(replica.w, decay=self.decay)
        self._delta = replica.w.clone()
        self._rounds: deque[tuple[Exchange, Vector | None]] = deque()  # sent, and the part that was already applied
        self._spare: list[Vector] = []
        self._steps = 0

    def stepped(self) -> None:
        """At the end of a round: send its outer gradient, wait for the average that is due, and take the outer step.

        Raises:
            CommError: a peer is gone.
        """
        self._steps += 1
        for exchange, _ in self._rounds:
            exchange.age += 1
            exchange.proceed(self.delay_steps)
        if self._steps == self.period:
            self._end_round()

    @property
    def lasting(self) -> Sequence[Vector]:
        """theta and the outer momentum: a round that a loss interrupts goes on from theta."""
        return self._outer.lasting

    @property
    def evaluated(self) -> Vector:
        """theta of the last outer step; local steps since then are not in it. Workers share it unless `eager`."""
        return self._outer.theta

    def finish(self) -> None:
        """End the round early, and apply all averages in flight, each with an outer step.

        Raises:
            CommError: a peer is gone.
        """
        if self._steps:
            self._end_round()
        while self._rounds:
            self._delta.zero_()
            self._receive()
            self._step()

    def _end_round(self) -> None:
        w, theta = self.replica.w, self._outer.theta
        exchange = self._averager.begin(self._delta.copy_(theta).add_(w, alpha=-1.0))
        self._steps = 0
        self._delta.zero_()
        applied = None
        if self.eager and self.staleness:
            applied = self._spare.pop() if self._spare else w.clone()
            applied.copy_(exchange.own).mul_(1 / self.replica.comm.world_size)
            self._delta.add_(applied)
        self._rounds.append((exchange, applied))
        if len(self._rounds) > self.staleness:
            self._receive()
        self._step()

    def _receive(self) -> None:
        """Add the oldest average in flight to Delta, without the part that was applied before."""
        exchange, applied = self._rounds.popleft()
        self._delta.add_(exchange.wait())
        if applied is not None:
            self._delta.add_(applied, alpha=-1.0)
            self._spare.append(applied)
        self._averager.done(exchange)

    def _step(self) -> None:
        self.replica.w.copy_(self._outer.step(self._delta))


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
