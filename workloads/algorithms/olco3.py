"""OLCO3, reconstructed: pipelined local SGD with compression, both compensated.

**A reconstruction.** Of "Delay-Tolerant Local SGD for Efficient Distributed Training" (Xu, Yan, Gao and Huang,
submitted to ICLR 2021) only abstract and introduction could be read: averages that arrive s rounds late, p local steps
a round, compression, and two compensations, one for staleness, one for compression. Pseudo-code and constants could
not. What follows fits that description, and at its limits it is what it should be:

* without compression and with s = 1 it is CoCoD-SGD; with p = 1 it is DTS with D = s, without momentum;
* with s = 0 it is local SGD with error feedback.

On worker k, with an anchor xh (the newest global model that is known, equal on all), vectors of shape (numel,)::

    x = xh - (sum of own c that is sent and not averaged yet) - e       staleness and compression compensated
    p local steps from x -> x' ;  Delta = x - x'
    v = Delta + e ;  send c = C(v) ;  e = v - c
    when the average of s rounds ago is there:  xh <- xh - cbar

One way: everyone receives all c, or their sum. Two ways: each piece of the model has an owner, which compresses the
mean again with a residual of its own (`workloads.compression.two_way`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import (
    Algorithm,
    AlgorithmError,
    Compression,
    Promises,
    Replica,
    Setting,
    at_least,
)
from wanbench.workloads.compression.averaging import Exchange
from wanbench.workloads.compression.base import Compressor


@dataclass
class Round:
    """A round that is sent, and its age in steps."""

    exchange: Exchange
    age: int = 0


@dataclass
class OLCO3(Algorithm):
    """Pipelined local SGD with compensated staleness and compression: a reconstruction (see the module).

    Attributes:
        staleness: s, in rounds; 0 or more. The delay is D = s p steps.
        period: p, in steps; 1 or more.
        compression: C; "none" sends all of it.
        two_way: compress the averages as well.
    """

    kind = "olco3"
    source = "reconstruction, after the introduction of Xu, Yan, Gao and Huang, Delay-Tolerant Local SGD, 2021"
    symbols = {"staleness": "s", "period": "p", "compression": "C"}  # noqa: RUF012
    state = ("_anchor", "_begin", "_averager")

    staleness: int = field(metadata=at_least(0))
    period: int = field(metadata=at_least(1))
    compression: Compression = "none"
    two_way: bool = False

    @property
    def delay_steps(self) -> int:
        """D = s p."""
        return self.staleness * self.period

    @property
    def period_steps(self) -> int:
        """p."""
        return self.period

    @property
    def promises(self) -> Promises:
        """With compression replicas differ by their residuals. Two ways: in the mean the owners' are missing."""
        return Promises(
            agrees=self.compressor is None,
            keeps_mean=not (self.two_way or self.rounds_mean),
            lawful=self.in_one_all_reduce,
        )

    @property
    def compressor(self) -> Compressor | None:
        """The one that `compression` names, on one way or on both."""
        inner = super().compressor
        if inner is None or not self.two_way:
            return inner
        from wanbench.workloads.compression.base import Gathered
        from wanbench.workloads.compression.two_way import TwoWay

        if not isinstance(inner, Gathered) or type(inner).load is not Compressor.load:
            raise AlgorithmError(
                f"algorithm 'olco3': two_way = True; compressor '{inner.kind}' works one way only; "
                "expected one whose messages can be decoded one by one, such as 'topk'"
            )
        return TwoWay(inner)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.two_way and self.compressor is None:
            self.refuse("two_way", True, "a compression with it")

    def operations(self, world_size: int) -> int:
        """Two ways: a message to and from each peer."""
        return 2 * (world_size - 1) if self.two_way else 1

    def check(self, setting: Setting) -> None:
        super().check(setting)
        self.refuse_own_momentum()

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._anchor, self._begin, self._delta = replica.w.clone(), replica.w.clone(), replica.w.clone()
        self._averager = self.averager(replica.w)
        self._rounds: deque[Round] = deque()
        self._steps = 0

    def stepped(self) -> None:
        """At the end of a round: send it, take the average that is due (which can stall), begin the next.

        Raises:
            CommError: a peer is gone.
        """
        self._steps += 1
        for sent in self._rounds:
            sent.age += 1
            sent.exchange.proceed(sent.age, self.delay_steps)
        if self._steps == self.period:
            self._next_round(self.staleness)

    def finish(self) -> None:
        """End the round early, and wait for all averages.

        Raises:
            CommError: a peer is gone.
        """
        self._next_round(0)

    def _next_round(self, under_way: int) -> None:
        w = self.replica.w
        if self._steps:
            delta = self._delta.copy_(self._begin).add_(w, alpha=-1.0)
            self._rounds.append(Round(self._averager.begin(delta)))
            self._steps = 0
        while len(self._rounds) > under_way:
            exchange = self._rounds.popleft().exchange
            self._anchor.add_(exchange.wait(), alpha=-1.0)
            self._averager.done(exchange)
        w.copy_(self._anchor)
        for sent in self._rounds:
            w.add_(sent.exchange.own, alpha=-1.0)
        if self._averager.residual is not None:
            w.add_(self._averager.residual, alpha=-1.0)
        self._begin.copy_(w)
