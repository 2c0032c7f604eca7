"""The common base of DTS and its special cases: late averages of blocks of steps, corrected. Derivation: `dts`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Promises, Replica, Setting
from wanbench.workloads.comm.base import Vector
from wanbench.workloads.compression.averaging import Exchange
from wanbench.workloads.compute.optim import SGD


@dataclass
class Part:
    """A vector of a block.

    Attributes:
        own: the vector, shape (numel,), until it is sent.
        to_w, to_m: the current effect of one unit of it on `w` and on `m`.
        exchange: its average in flight, once it is sent.
    """

    own: Vector
    to_w: float
    to_m: float
    exchange: Exchange = field(init=False)


class Compensated(Algorithm):
    """Takes local steps, and adds the difference to the workers' average D steps after each block of p steps."""

    source = "Zhu, Lu, Lin and Han, Distributed Training Across the World, NeurIPS 2019 workshop"
    symbols = {"delay": "t (D = t - 1 in Eq. 3)", "period": "p"}  # noqa: RUF012

    state = ("_averagers",)
    local_steps = True

    @property
    def promises(self) -> Promises:
        """Corrections sum to zero unless a mean is rounded; the rest holds without compression and estimates."""
        settled = self.compressor is None and (self.model_space or self.two_tensors)
        return Promises(
            agrees=settled,
            exact=settled and not self.model_space,
            keeps_mean=not self.rounds_mean,
            follows_law=self.in_one_all_reduce,
        )

    @property
    def two_tensors(self) -> bool:
        """Whether momentum is corrected exactly, even if that takes two tensors."""
        return True

    @property
    def model_space(self) -> bool:
        """Whether workers send the change of w, which works with any optimiser."""
        return False

    def check(self, setting: Setting) -> None:
        """As `Algorithm.check`; the gradient form needs SGD, which is linear."""
        super().check(setting)
        if setting.optimizer != "sgd" and not self.model_space:
            raise AlgorithmError(
                f"algorithm '{self.kind}': exact compensation needs optimizer 'sgd', not '{setting.optimizer}'; "
                'dts with form = "model" works with any'
            )

    def tensors_per_message(self, momentum: float) -> int:
        """Two with momentum and p > 1, because w and m respond differently to each gradient of the block."""
        return 2 if momentum and self.period_steps > 1 and self.two_tensors and not self.model_space else 1

    def start(self, replica: Replica) -> None:
        """Prepare. Vectors are allocated when needed, and then reused."""
        super().start(replica)
        streams = 1 if self.model_space else self.tensors_per_message(replica.optimizer.momentum)
        self._averagers = [self.averager(replica.w, stream) for stream in range(streams)]
        self._block: list[Part] = []
        self._block_steps = 0
        self._in_flight: deque[list[Part]] = deque()  # blocks
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
            # Without momentum there is only one part, and the step does not touch its second argument.
            optimizer.step(self._block[0].own, self._block[-1].own, g)
        self._block_steps += 1
        return g

    def stepped(self) -> None:
        """Issue the block if it is complete, then apply the average that is due, which can stall.

        Raises:
            CommError: a peer is gone.
        """
        for part in chain(*self._in_flight):
            part.exchange.age += 1
            if not self.model_space:
                part.to_w, part.to_m = self.sgd.respond(part.to_w, part.to_m)
        if self.model_space:
            self._block[0].own.add_(self.replica.w).add_(self._before, alpha=-1.0)
            self._spare.append(self._before)
        if self._block_steps == self.period_steps:
            self._issue()
        for part in chain(*self._in_flight):
            part.exchange.proceed(self.delay_steps)
        while self._in_flight and self._in_flight[0][0].exchange.age >= self.delay_steps:
            self._apply(self._in_flight.popleft())

    def finish(self) -> None:
        """Issue a partial block, then apply everything in flight at its current age. A new block begins.

        Raises:
            CommError: a peer is gone.
        """
        if self._block_steps:
            self._issue()
        while self._in_flight:
            self._apply(self._in_flight.popleft())

    def _issue(self) -> None:
        if self.period_steps > 1 and self._estimates:
            (total,) = self._block  # each of its gradients is treated as their mean
            total.to_w, total.to_m = total.to_w / self._block_steps, total.to_m / self._block_steps
        for part, averager in zip(self._block, self._averagers, strict=True):
            part.exchange = averager.begin(part.own)
            self._spare.append(part.own)
        self._in_flight.append(self._block)
        self._block, self._block_steps = [], 0

    def _apply(self, block: list[Part]) -> None:
        for part, averager in zip(block, self._averagers, strict=True):
            delta = part.exchange.delta()
            if part.to_w:
                self.replica.w.add_(delta, alpha=part.to_w)
            if part.to_m:
                self.replica.m.add_(delta, alpha=part.to_m)
            averager.done(part.exchange)

    @property
    def _estimates(self) -> bool:
        return not self.two_tensors and not self.model_space and bool(self.replica.optimizer.momentum)

    @property
    def sgd(self) -> SGD:
        """The optimiser; `check` has ensured that it is SGD."""
        return cast(SGD, self.replica.optimizer)

    def _vector(self) -> Vector:
        return self._spare.pop() if self._spare else self.replica.w.clone()
