"""Overlap-Local-SGD: a pull every p steps towards an anchor, whose average is computed during local steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Algorithm, Replica, at_least, between
from wanbench.workloads.comm.base import Vector, Work


@dataclass
class OverlapLocalSGD(Algorithm):
    """Local SGD that hides latency: pulls workers towards a late average.

    Every p local steps, each worker moves towards an anchor z, which knows the average of p steps ago. With x, z, v of
    shape (numel,), and z and v equal on all workers::

        v <- momentum v + (xbar - z) ;  z <- z + v      xbar: average of the x sent p steps ago
        x <- (1 - pull) x + pull z
        send x

    The authors' script uses p = 2, pull 0.6 and anchor momentum 0.7. Replicas differ even after `finish`, because only
    the anchor pulls them together.

    Attributes:
        period: p, in steps; 1 or more.
        pull: how far x moves towards z; 0 leaves x unchanged, 1 replaces it.
        momentum: momentum of the anchor.
    """

    kind = "overlap-localsgd"
    source = "Wang, Liang and Joshi, Overlap Local-SGD, ICASSP 2020"
    symbols = {"period": "tau", "pull": "alpha", "momentum": "beta"}  # noqa: RUF012
    spelt = ("period",)
    examples = ({"period": 3},)
    state = ("_anchor", "_velocity", "_steps")

    period: int = field(metadata=at_least(1))
    pull: float = field(default=0.6, metadata=between(0, 1))
    momentum: float = field(default=0.7, metadata=between(0, 1, open_above=True))

    @property
    def delay_steps(self) -> int:
        """D = p."""
        return self.period

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._anchor, self._velocity = replica.w.clone(), replica.w.clone().zero_()
        self._message: Vector = replica.w.clone()
        self._work: Work | None = None
        self._steps = 0

    def stepped(self) -> None:
        """After p steps: update the anchor, pull, send. It stalls if the last average is late.

        Raises:
            CommError: a peer is gone.
        """
        self._steps += 1
        if self._steps % self.period:
            return
        self.finish()
        self.replica.w.mul_(1 - self.pull).add_(self._anchor, alpha=self.pull)
        self._work = self.replica.comm.all_reduce(self._message.copy_(self.replica.w))

    def finish(self) -> None:
        """Wait for the average in flight and update the anchor.

        Raises:
            CommError: a peer is gone.
        """
        if self._work is not None:
            self._work.wait()
            self._velocity.mul_(self.momentum).add_(self._message).add_(self._anchor, alpha=-1.0)
            self._anchor.add_(self._velocity)
            self._work = None
