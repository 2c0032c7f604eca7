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
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from workloads.algorithms.base import Algorithm, Replica, at_least
from workloads.comm.base import Vector, Work


@dataclass
class Part:
    """A vector of a block, shape (numel,), and what a unit of it has become by now in `w` and in `m`.

    `own` keeps the bits this worker contributed: subtracting any others would move the mean of the replicas.
    """

    own: Vector
    to_w: float
    to_m: float


@dataclass
class Item:
    """A synchronisation in flight: its parts, the messages their averages arrive in, and its age in steps."""

    parts: list[Part]
    messages: list[Vector]
    works: list[Work]
    age: int = 0


class Compensated(Algorithm):
    """Local steps now, the difference to the workers' average D steps after each block of p steps."""

    agrees: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    keeps_mean: ClassVar[bool] = True

    def tensors_per_message(self, momentum: float) -> int:
        """Two with momentum and p > 1, where w and m answer differently to each of the block's gradients."""
        return 2 if momentum and self.period_steps > 1 else 1

    def start(self, replica: Replica) -> None:
        """Called once, before the first step. Vectors are then allocated as needed, and reused."""
        super().start(replica)
        self._block: list[Part] = []
        self._block_steps = 0
        self._items: deque[Item] = deque()
        self._spare: list[Vector] = []

    def gradient(self, g: Vector) -> Vector:
        """Remember the local gradient `g`, shape (numel,), and return it unchanged: the step is local."""
        optimizer = self.replica.optimizer
        if self.period_steps == 1:
            self._block = [Part(self._vector().copy_(g), *optimizer.respond(0.0, 0.0, 1.0))]
        else:
            if not self._block:
                units = [(1.0, 0.0), (0.0, 1.0)][: self.tensors_per_message(optimizer.momentum)]
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
            for part in item.parts:
                part.to_w, part.to_m = self.replica.optimizer.respond(part.to_w, part.to_m)
        if self._block_steps == self.period_steps:
            self._issue()
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
        messages = [self._vector().copy_(part.own) for part in self._block]
        works = [self.replica.comm.all_reduce(message) for message in messages]
        self._items.append(Item(self._block, messages, works))
        self._block, self._block_steps = [], 0

    def _apply(self, item: Item) -> None:
        for part, message, work in zip(item.parts, item.messages, item.works, strict=True):
            work.wait()
            delta = message.add_(part.own, alpha=-1.0)
            if part.to_w:
                self.replica.w.add_(delta, alpha=part.to_w)
            if part.to_m:
                self.replica.m.add_(delta, alpha=part.to_m)
            self._spare += [part.own, message]

    def _vector(self) -> Vector:
        return self._spare.pop() if self._spare else self.replica.w.clone()


@dataclass
class DTS(Compensated):
    """Delayed and temporally sparse: every `period` steps, applied `delay` steps later (see the module).

    Attributes:
        delay: D, in steps; 0 or more.
        period: p, in steps; 1 or more.
    """

    kind: ClassVar[str] = "dts"

    delay: int = field(metadata=at_least(0))
    period: int = field(metadata=at_least(1))

    @property
    def delay_steps(self) -> int:
        """D."""
        return self.delay

    @property
    def period_steps(self) -> int:
        """p."""
        return self.period
