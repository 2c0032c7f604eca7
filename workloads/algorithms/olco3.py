"""OLCO3, reconstructed: pipelined local SGD with compression, both compensated.

**A reconstruction.** Only the abstract and the introduction of "Delay-Tolerant Local SGD for Efficient Distributed
Training" (Xu, Yan, Gao and Huang, submitted to ICLR 2021) were available: averages that arrive s rounds late, p local
steps per round, compression, and two compensations, one for staleness and one for compression. Its pseudo-code and
constants were not. The algorithm below fits that description, and its special cases are as expected:

* without compression and with s = 1 it is CoCoD-SGD; with p = 1 it is DTS with D = s, without momentum;
* with s = 0 it is local SGD with error feedback.

On worker k, with an anchor xh (the newest global model it knows, equal on all workers), vectors of shape (numel,)::

    x = xh - (sum of own c sent and not averaged yet) - e               compensates staleness and compression
    p local steps from x -> x' ;  Delta = x - x'
    v = Delta + e ;  send c = C(v) ;  e = v - c
    when the average of s rounds ago arrives:  xh <- xh - cbar

One way: every worker receives all c, or their sum. Two ways: each piece of the model has an owner, which compresses the
mean again with its own residual (`workloads.compression.two_way`).
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
    at_least,
)
from wanbench.workloads.compression.averaging import Exchange
from wanbench.workloads.compression.base import Compressor


@dataclass
class OLCO3(Algorithm):
    """Delayed, sparse and compressed local SGD (a reconstruction).

    The module has the equations, and the reason why this is a reconstruction.

    Attributes:
        staleness: s, in rounds; 0 or more. The delay is D = s p steps.
        period: p, in steps; 1 or more.
        compression: C, the compressor of each round; "none" sends all of it.
        two_way: True compresses the averages as well.
    """

    kind = "olco3"
    source = "reconstruction from the introduction of Xu, Yan, Gao and Huang, Delay-Tolerant Local SGD, 2021"
    symbols = {"staleness": "s", "period": "p", "compression": "C"}  # noqa: RUF012
    examples = (
        {"staleness": 2, "period": 3},
        {"staleness": 0, "period": 3, "compression": "topk"},
        {"staleness": 2, "period": 1, "compression": {"kind": "powersgd", "least": 0}},
        {"staleness": 1, "period": 2, "compression": "signsgd", "two_way": True},
    )
    state = ("_anchor", "_begin", "_averager")
    local_steps = True

    staleness: int = field(metadata=at_least(0))
    period: int = field(metadata=at_least(1))
    compression: Compression = "none"
    two_way: bool = False

    @property
    def delay_steps(self) -> int:
        """D = s p."""
        return self.staleness * self.period

    @property
    def promises(self) -> Promises:
        """With compression, replicas differ by their residuals; two-way, the mean also lacks the owners' residuals."""
        return Promises(
            agrees=self.compressor is None,
            keeps_mean=not (self.two_way or self.rounds_mean),
            follows_law=self.in_one_all_reduce,
        )

    @property
    def compressor(self) -> Compressor | None:
        """The compressor that `compression` names, for one way or both."""
        inner = super().compressor
        if inner is None or not self.two_way:
            return inner
        from wanbench.workloads.compression.base import Gathered
        from wanbench.workloads.compression.two_way import TwoWay

        if not isinstance(inner, Gathered) or type(inner).load is not Compressor.load:
            raise AlgorithmError(
                f"algorithm 'olco3': two_way = True: compressor '{inner.kind}' works one way only; "
                "expected one whose messages can be decoded one by one, such as 'topk'"
            )
        return TwoWay(inner)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.two_way and self.compressor is None:
            self.refuse("two_way", True, "a compression as well")

    def operations(self, world_size: int) -> int:
        """Two-way: a message to and from each peer."""
        return 2 * (world_size - 1) if self.two_way else 1

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._anchor, self._begin, self._delta = replica.w.clone(), replica.w.clone(), replica.w.clone()
        self._averager = self.averager(replica.w)
        self._rounds: deque[Exchange] = deque()  # in flight
        self._steps = 0

    def stepped(self) -> None:
        """At the end of a round: send it, wait for the average that is due, and begin the next.

        Raises:
            CommError: a peer is gone.
        """
        self._steps += 1
        for exchange in self._rounds:
            exchange.age += 1
            exchange.proceed(self.delay_steps)
        if self._steps == self.period:
            self._next_round(self.staleness)

    def finish(self) -> None:
        """End the round early and wait for all averages.

        Raises:
            CommError: a peer is gone.
        """
        self._next_round(0)

    def _next_round(self, under_way: int) -> None:
        w = self.replica.w
        if self._steps:
            delta = self._delta.copy_(self._begin).add_(w, alpha=-1.0)
            self._rounds.append(self._averager.begin(delta))
            self._steps = 0
        while len(self._rounds) > under_way:
            exchange = self._rounds.popleft()
            self._anchor.add_(exchange.wait(), alpha=-1.0)
            self._averager.done(exchange)
        w.copy_(self._anchor)
        for exchange in self._rounds:
            w.add_(exchange.own, alpha=-1.0)
        if self._averager.residual is not None:
            w.add_(self._averager.residual, alpha=-1.0)
        self._begin.copy_(w)
