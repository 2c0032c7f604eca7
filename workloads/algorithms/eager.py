"""Eager DiLoCo, reconstructed: outer gradients are averaged during the next round, and own shares are applied at once.

**A reconstruction.** The paper's abstract and summaries could be read, its pseudo-code could not. They say that a
worker applies a mixture of its current own outer gradient and of the delayed ones of all others. The weights here are
those of the mean, so each outer gradient counts once. What happens at the end (`finish`), staleness above one round,
and the use of compressed own gradients are ours.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Algorithm, Compression, Promises, Replica, at_least, between
from wanbench.workloads.algorithms.diloco import OuterSteps
from wanbench.workloads.comm.base import Vector
from wanbench.workloads.compression.averaging import Exchange


@dataclass
class EagerDiLoCo(OuterSteps):
    """DiLoCo that hides latency behind whole rounds (a reconstruction).

    In round t on worker k of N, all vectors of shape (numel,)::

        w <- H steps of the local optimiser from theta_k
        Delta_k^t = theta_k - w ;  send it
        Delta = Delta_k^t / N + (sum over the other workers j of Delta_j^(t-s)) / N            eager
        Delta = mean over all workers j of Delta_j^(t-s)                                       not eager
        theta_k <- Nesterov(theta_k, Delta; outer_lr, momentum)

    Outer gradients from before the first round are 0. The paper has s = 1. With s = 0 it is DiLoCo. With compression,
    what this worker has sent stands for its own Delta_k^t.

    Not eager, all workers share theta, but no local step has an effect before its average arrives. Eager, the theta_k
    differ. `finish` ends the round early and applies the averages in flight, without new own ones: replicas are then
    equal if `momentum` is 0; otherwise they keep what the momentum made of their own gradients being early.

    Attributes:
        period: H, in steps; 1 or more.
        staleness: s, in rounds; 0 or more. The delay is D = s H steps.
        eager: False delays a worker's own outer gradient too.
        outer_lr, momentum: learning rate and momentum of the outer step.
        compression: compressor of Delta_k; "none" sends all of it.
    """

    kind = "eager-diloco"
    source = "reconstruction from summaries of Kale, Douillard and Donchev, Eager Updates in DiLoCo, 2025"
    when_lost = f"{Algorithm.when_lost}. All go on from the mean outer model and momentum"
    symbols = {"period": "H", "outer_lr": "outer learning rate", "momentum": "mu"}  # noqa: RUF012
    examples = (
        {"period": 3},
        {"period": 3, "staleness": 2, "momentum": 0.0, "compression": "topk"},
        {"period": 3, "staleness": 2, "compression": {"kind": "powersgd", "least": 0}},
        {"period": 4, "eager": False, "compression": "signsgd"},
    )

    period: int = field(metadata=at_least(1))
    staleness: int = field(default=1, metadata=at_least(0))
    eager: bool = True
    outer_lr: float = field(default=0.7, metadata=between(0, 100, open_below=True))
    momentum: float = field(default=0.9, metadata=between(0, 1, open_above=True))
    compression: Compression = "none"

    @property
    def delay_steps(self) -> int:
        """D = s H."""
        return self.staleness * self.period

    @property
    def promises(self) -> Promises:
        """Outer steps are linear, and without momentum what was applied early is subtracted later."""
        same = not self.eager or not self.staleness or not self.momentum
        return Promises(agrees=same, lawful=self.in_one_all_reduce)

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._rounds: deque[tuple[Exchange, Vector | None]] = deque()  # sent, and the part that was already applied
        self._spare: list[Vector] = []

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
