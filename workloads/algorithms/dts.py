"""Delayed and temporally sparse updates with exact compensation (DTS).

Source: Zhu, Lu, Lin and Han, "Distributed Training Across the World", 2019, Eq. 2-4 (vanilla SGD); with p = 1
also Delayed Gradient Averaging, NeurIPS 2021. The paper's Eq. 3 counts t = D + 1. Its momentum formula is not
published; the one below is derived, and follows from one fact: SGD is linear in the gradients.

**Derivation.** One optimiser step takes x = (w, m) to A_n x + b_n g_n. The 2x2 matrix A_n and the pair b_n
act alike on every coordinate and hold the step's learning rate, momentum, Nesterov and weight decay
(`SGD.respond`). So x is a sum of responses, one for each gradient. To put the average in the place of a
worker's own gradients of the block of steps s..e, D steps late, add to x::

    sum over k in s..e of  A_{e+D} ... A_{k+1} b_k (gbar_k - g_k)    =    A_{e+D} ... A_{e+1} (xbar - x_own)

x_own = sum over k in s..e of A_e ... A_{k+1} b_k g_k is the optimiser run from x = 0 over the block's own
gradients, and xbar its mean over the workers. What is sent is x_own:

=================  ===========================  ===========================================================
p = 1              g (x_own = b_k g)            one tensor; the pair b_k is carried on, not A's columns
p > 1, momentum 0  the w half of x_own          one tensor, since m stays 0
p > 1, momentum    both halves                  two tensors, by two all_reduces back to back
=================  ===========================  ===========================================================

Special cases: with constant lr, momentum beta and p = 1, w -= lr (1 - beta^(D+1)) / (1 - beta) delta and
m += beta^D delta; without momentum w -= lr delta, which is Eq. 3 of the paper and, summed over p steps,
Eq. 4; with D = 0 and p = 1 it is synchronous SGD.

The corrections of all workers sum to zero, so they never move the mean of the replicas. After `finish` the
replicas are equal to rounding: each adds the same terms in another order.

**One tensor** (`tensors = 1`) instead of two, where there is momentum and p > 1: send S = sum of the block's g_k and
let every g_k answer as their mean does: x += (1/p) (sum of A_{e+D} ... A_{k+1} b_k) (Sbar - S). Half the bytes; the
replicas agree in the end only as far as the workers' gradients differ by the same amount all through a block.

**Model space** (`form = "model"`): what is sent is what the block's steps did to w, u = sum of (w after - w before a
step), and D steps later w += ubar - u; m stays local. It needs nothing from the optimiser, so it goes with AdamW. With
SGD without momentum and weight decay it is the gradient form; with D = p it is CoCoD-SGD. Momentum is local in it, as
in local SGD: the replicas agree in w after `finish`, not in m.

**Compression** (`compression`): a compressor C with error feedback takes the place of "send": c = C(x_own + e), the
residual e stays applied locally until it is sent (algorithms' choice A), and the correction is cbar - c. Both that and
the mean of the replicas are exact; the replicas differ by the answer to their residuals. The paper cites DGC and does
not say which choice it made.

=====================  =========================================================
here                   in the paper
=====================  =========================================================
delay D                t, with D = t in its prose and D = t - 1 in its Eq. 3
period p               p (Eq. 4)
compression            "compression" C of its table of D, T and C
=====================  =========================================================
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import cast

from wanbench.workloads.algorithms.base import (
    Algorithm,
    AlgorithmError,
    Compression,
    Replica,
    Setting,
    at_least,
    between,
    one_of,
)
from wanbench.workloads.comm.base import Vector
from wanbench.workloads.compression.averaging import Exchange
from wanbench.workloads.compute.optim import SGD


@dataclass
class Part:
    """A vector of a block, shape (numel,), and what a unit of it has become by now in `w` and in `m`."""

    own: Vector
    to_w: float
    to_m: float


@dataclass
class Answer:
    """A part that was sent: its average under way, and what a unit of it has become by now in `w` and in `m`."""

    exchange: Exchange
    to_w: float
    to_m: float


@dataclass
class Item:
    """A synchronisation in flight, and its age in steps."""

    answers: list[Answer]
    age: int = 0


class Compensated(Algorithm):
    """Local steps now, the difference to the workers' average D steps after each block of p steps."""

    source = "Zhu, Lu, Lin and Han, Distributed Training Across the World, NeurIPS 2019 workshop"
    symbols = {"delay": "t (D = t - 1 in Eq. 3)", "period": "p"}  # noqa: RUF012

    @property
    def agrees(self) -> bool:
        """Without compression, and unless an answer is estimated."""
        return self.compressor is None and (self.model_space or self.two_tensors)

    @property
    def exact(self) -> bool:
        """Without compression, in the gradient form with both tensors."""
        return self.compressor is None and not self.model_space and self.two_tensors

    @property
    def keeps_mean(self) -> bool:
        """The corrections sum to zero, unless a mean is rounded."""
        return not self.rounds_mean

    @property
    def lawful(self) -> bool:
        """See the class."""
        return self.in_one_all_reduce

    @property
    def two_tensors(self) -> bool:
        """Whether momentum is corrected exactly where that takes two tensors."""
        return True

    @property
    def model_space(self) -> bool:
        """Whether what is sent is what local steps did to w, so that any optimiser will do."""
        return False

    def check(self, setting: Setting) -> None:
        """As `Algorithm.check`; the gradient form rests on SGD being linear."""
        super().check(setting)
        if setting.optimizer != "sgd" and not self.model_space:
            raise AlgorithmError(
                f"algorithm '{self.kind}': exact compensation needs optimizer 'sgd', not '{setting.optimizer}'; "
                'dts with form = "model" goes with any'
            )
        refuse_own_momentum(self)

    def tensors_per_message(self, momentum: float) -> int:
        """Two with momentum and p > 1, where w and m answer differently to each of the block's gradients."""
        return 2 if momentum and self.period_steps > 1 and self.two_tensors and not self.model_space else 1

    def start(self, replica: Replica) -> None:
        """Called once, before the first step. Vectors are then allocated as needed, and reused."""
        super().start(replica)
        streams = self.tensors_per_message(replica.optimizer.momentum)
        self._averagers = [self.averager(replica.w, stream) for stream in range(streams)]
        self._block: list[Part] = []
        self._block_steps = 0
        self._items: deque[Item] = deque()
        self._spare: list[Vector] = []

    def gradient(self, g: Vector) -> Vector:
        """Remember the local gradient `g`, shape (numel,), and return it unchanged: the step is local."""
        if self.model_space:
            if not self._block:
                self._block = [Part(self._vector().zero_(), 1.0, 0.0)]
            self._before = self._vector().copy_(self.replica.w)
            self._block_steps += 1
            return g
        optimizer = self.sgd
        if self.period_steps == 1:
            self._block = [Part(self._vector().copy_(g), *optimizer.respond(0.0, 0.0, 1.0))]
        elif self._estimates:
            if not self._block:
                self._block = [Part(self._vector().zero_(), 0.0, 0.0)]
            (total,) = self._block
            total.own.add_(g)
            total.to_w, total.to_m = optimizer.respond(total.to_w, total.to_m, 1.0)
        else:
            if not self._block:
                units = [(1.0, 0.0), (0.0, 1.0)][: len(self._averagers)]
                self._block = [Part(self._vector().zero_(), *unit) for unit in units]
            # Without momentum there is one part only, and the step does not touch its second argument.
            optimizer.step(self._block[0].own, self._block[-1].own, g)
        self._block_steps += 1
        return g

    def stepped(self) -> None:
        """Issue the block if it is complete, then apply the average that is due. Only the latter can stall.

        Raises:
            CommError: a peer is gone.
        """
        for item in self._items:
            item.age += 1
        if self.model_space:
            self._block[0].own.add_(self.replica.w).add_(self._before, alpha=-1.0)
            self._spare.append(self._before)
        else:
            for answer in [answer for item in self._items for answer in item.answers]:
                answer.to_w, answer.to_m = self.sgd.respond(answer.to_w, answer.to_m)
        if self._block_steps == self.period_steps:
            self._issue()
        for item in self._items:
            for answer in item.answers:
                answer.exchange.proceed(item.age, self.delay_steps)
        while self._items and self._items[0].age >= self.delay_steps:
            self._apply(self._items.popleft())

    def finish(self) -> None:
        """Issue a partial block, then apply everything in flight with the age it has. A new block begins.

        Raises:
            CommError: a peer is gone.
        """
        if self._block_steps:
            self._issue()
        while self._items:
            self._apply(self._items.popleft())

    def _issue(self) -> None:
        if self.period_steps > 1 and self._estimates:
            (total,) = self._block  # of which each gradient answers as their mean does
            total.to_w, total.to_m = total.to_w / self._block_steps, total.to_m / self._block_steps
        answers = []
        for part, averager in zip(self._block, self._averagers, strict=True):
            answers.append(Answer(averager.begin(part.own), part.to_w, part.to_m))
            self._spare.append(part.own)
        self._items.append(Item(answers))
        self._block, self._block_steps = [], 0

    def _apply(self, item: Item) -> None:
        for answer, averager in zip(item.answers, self._averagers, strict=True):
            delta = answer.exchange.delta()
            if answer.to_w:
                self.replica.w.add_(delta, alpha=answer.to_w)
            if answer.to_m:
                self.replica.m.add_(delta, alpha=answer.to_m)
            averager.done(answer.exchange)

    @property
    def _estimates(self) -> bool:
        return bool(self.replica.optimizer.momentum) and not self.two_tensors and not self.model_space

    @property
    def sgd(self) -> SGD:
        """The optimiser, which `check` made sure of."""
        return cast(SGD, self.replica.optimizer)

    def _vector(self) -> Vector:
        return self._spare.pop() if self._spare else self.replica.w.clone()


def refuse_own_momentum(algorithm: Algorithm) -> None:
    """A compressor's own momentum would be lost where local steps are already taken. Raises: AlgorithmError."""
    momentum = getattr(algorithm.compressor, "momentum", 0.0)
    if momentum:
        raise AlgorithmError(
            f"algorithm '{algorithm.kind}': compression: momentum = {momentum:g}; expected 0, because local steps are "
            "taken with the optimiser's momentum; set train.momentum"
        )


@dataclass
class DTS(Compensated):
    """Delayed and temporally sparse: averages each `period` steps, applied `delay` steps later, corrected exactly.

    Attributes:
        delay: D, in steps; 0 or more.
        period: p, in steps; 1 or more.
        form: "gradient": exact, for SGD; "model": differences of parameters, for any optimiser.
        tensors: in the gradient form with momentum and p > 1: 2 is exact, 1 sends half as much and estimates.
        compression: what is sent of a vector; "none" is all of it.
    """

    kind = "dts"
    symbols = {"delay": "t (D = t - 1 in Eq. 3)", "period": "p", "compression": "C"}  # noqa: RUF012

    delay: int = field(metadata=at_least(0))
    period: int = field(metadata=at_least(1))
    form: str = field(default="gradient", metadata=one_of("gradient", "model"))
    tensors: int = field(default=2, metadata=between(1, 2))
    compression: Compression = "none"

    @property
    def delay_steps(self) -> int:
        """D."""
        return self.delay

    @property
    def period_steps(self) -> int:
        """p."""
        return self.period

    @property
    def model_space(self) -> bool:
        """See `Compensated`."""
        return self.form == "model"

    @property
    def two_tensors(self) -> bool:
        """See `Compensated`; without a period one tensor is exact."""
        return self.tensors == 2 or self.period == 1
