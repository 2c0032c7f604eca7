"""Streaming DiLoCo: the model in fragments, synchronised in turn while training continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from wanbench.workloads.algorithms.base import (
    Algorithm,
    AlgorithmError,
    Compression,
    Promises,
    Replica,
    Setting,
    at_least,
    between,
)
from wanbench.workloads.algorithms.diloco import Outer
from wanbench.workloads.comm.base import Vector
from wanbench.workloads.compression.averaging import Averager, Exchange
from wanbench.workloads.compression.base import Shapes


@dataclass
class StreamingDiLoCo(Algorithm):
    """DiLoCo in fragments: spreads the traffic and hides latency.

    Each of P fragments is applied tau steps after it was sent, and mixed with the local steps taken since. Every H / P
    steps, the next fragment f, a slice of w of shape (numel / P,), is sent::

        Delta_f = theta_f - w_f                                  theta: the global copy of H steps ago
        tau steps later:  theta_f <- Nesterov(theta_f, mean Delta_f)
                          w_f <- alpha w_f + (1 - alpha) theta_f

    With P = 1, tau = 0 and alpha = 0 it is DiLoCo. Fragments are equal slices of the flat vector here; the paper groups
    layers. The paper's four-bit format is not implemented; `qsgd` with 7 levels also has four bits. `finish` applies
    the fragments in flight. Replicas then still differ in the steps that no fragment has carried yet.

    Attributes:
        period: H, steps from one synchronisation of a fragment to the next; a multiple of `fragments`.
        fragments: P, the number of fragments.
        delay: tau, in steps; below H.
        mixing: alpha, the share of the local fragment that is kept.
        outer_lr, momentum: learning rate and momentum of the outer step.
        compression: compressor of Delta_f; "none" sends all of it.
    """

    kind = "streaming-diloco"
    source = "Douillard et al., Streaming DiLoCo with Overlapping Communication, 2025 (arXiv 2501.18512)"
    when_lost = f"{Algorithm.when_lost}. The outer model and its momentum are kept"
    symbols = {"period": "H", "fragments": "P", "delay": "tau", "mixing": "alpha"}  # noqa: RUF012
    spelt = ("mixing",)
    examples = (
        {"period": 6, "fragments": 3, "delay": 3, "mixing": 0.5},
        {"period": 4, "fragments": 2, "compression": "qsgd"},
    )
    state = ("_outers", "_averagers", "_steps")
    local_steps = True

    period: int = field(metadata=at_least(1))
    fragments: int = field(metadata=at_least(1))
    delay: int = field(default=0, metadata=at_least(0))
    mixing: float = field(default=0.0, metadata=between(0, 1))
    outer_lr: float = field(default=0.7, metadata=between(0, 100, open_below=True))
    momentum: float = field(default=0.9, metadata=between(0, 1, open_above=True))
    compression: Compression = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period % self.fragments:
            self.refuse("period", self.period, f"a multiple of fragments = {self.fragments}")
        if self.delay >= self.period:
            self.refuse("delay", self.delay, f"less than period = {self.period}")

    @property
    def period_steps(self) -> int:
        """H / P: steps from one message to the next."""
        return self.period // self.fragments

    @property
    def promises(self) -> Promises:
        """Messages are all_reduces of equal size, to within one element."""
        return Promises(follows_law=self.in_one_all_reduce)

    def check(self, setting: Setting) -> None:
        """As `Algorithm.check`; a fragment holds no whole matrices."""
        super().check(setting)
        compressor = self.compressor
        if compressor is not None and compressor.needs_shapes:
            raise AlgorithmError(
                f"algorithm '{self.kind}': compression: '{compressor.kind}' needs whole matrices; fragments cut them up"
            )

    def message_bytes(self, numel: int, shapes: Shapes = ()) -> int:
        """Bytes of the largest fragment."""
        return super().message_bytes(-(-numel // self.fragments))

    def start(self, replica: Replica) -> None:
        super().start(replica)
        ends = [replica.w.numel() * i // self.fragments for i in range(self.fragments + 1)]
        self._slices = [slice(a, b) for a, b in pairwise(ends)]
        parts = [replica.w[part] for part in self._slices]
        self._outers = [Outer(part, self.outer_lr, self.momentum) for part in parts]
        self._averagers: list[Averager] = [self.averager(part, stream) for stream, part in enumerate(parts)]
        self._deltas = [part.clone() for part in parts]
        self._in_flight: deque[tuple[int, Exchange]] = deque()  # fragments, and their averages
        self._steps = 0

    @property
    def lasting(self) -> Sequence[Vector]:
        """theta and the outer momentum of each fragment."""
        return [vector for outer in self._outers for vector in outer.lasting]

    def stepped(self) -> None:
        """Send the next fragment if it is its turn, then apply the one that is due, which can stall.

        Raises:
            CommError: a peer is gone.
        """
        for _, exchange in self._in_flight:
            exchange.age += 1
        self._steps += 1
        turn, between_turns = divmod(self._steps, self.period_steps)
        if not between_turns:
            fragment = (turn - 1) % self.fragments
            delta = self._deltas[fragment].copy_(self._outers[fragment].theta)
            delta.add_(self.replica.w[self._slices[fragment]], alpha=-1.0)
            self._in_flight.append((fragment, self._averagers[fragment].begin(delta)))
        while self._in_flight and self._in_flight[0][1].age >= self.delay:
            self._apply(*self._in_flight.popleft())

    def finish(self) -> None:
        """Apply the fragments in flight.

        Raises:
            CommError: a peer is gone.
        """
        while self._in_flight:
            self._apply(*self._in_flight.popleft())

    def _apply(self, fragment: int, exchange: Exchange) -> None:
        theta = self._outers[fragment].step(exchange.wait())
        self.replica.w[self._slices[fragment]].mul_(self.mixing).add_(theta, alpha=1 - self.mixing)
        self._averagers[fragment].done(exchange)
