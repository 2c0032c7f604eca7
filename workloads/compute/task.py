"""What a worker computes between synchronisations: a gradient for each step, on flat vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from wanbench.workloads.comm.base import Clock, Vector
from wanbench.workloads.compute.buckets import Bucket
from wanbench.workloads.compute.emulated import EmulatedCompute
from wanbench.workloads.compute.slowdown import Slowdowns
from wanbench.workloads.models.learner import Learner, LearnerError, trainable
from wanbench.workloads.seeding import torch_seed

Ready = Callable[[Vector], None]


class Task(ABC):
    """One worker's share of the computation.

    Attributes:
        w: the parameters, float32 or phantoms, shape (numel,); equal on all ranks at first. An update in place is
            all it takes.
        slow: when compute takes longer; None where it never does.
        shapes: of the parameter tensors that `w` consists of, in their order; () where its size is scaled.
        numel: elements of `w` and of the gradient, after payload scaling.
        compute_ns: time spent computing so far, in nanoseconds on the clock. For emulated compute it is the
            emulated time; what a step takes beyond it is overhead.
    """

    w: Vector
    slow: Slowdowns | None = None
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def numel(self) -> int:
        """The number of elements of the flat vectors."""
        return self.w.numel()

    @property
    @abstractmethod
    def compute_ns(self) -> int:
        """Nanoseconds spent computing so far."""

    @abstractmethod
    def gradient(self, step: int, ready: Ready | None = None) -> tuple[Vector, float | None]:
        """Compute the gradient of step number `step`.

        Args:
            step: counted from 0; decides the emulated duration.
            ready: called with a slice of the gradient as soon as each bucket is complete, in the order of
                completion, which is the same on all ranks. It may start to overwrite the slice at once.

        Returns:
            The flat gradient, shape (numel,), and the loss of the batch (None if nothing is learned). The
            vector is the same one at every step: whoever needs it longer than until the next call keeps a
            copy.
        """

    @abstractmethod
    def evaluate(self) -> float | None:
        """Test accuracy in [0, 1] of `w` as it is, None if nothing is learned. Not part of `compute_ns`."""


class EmulatedTask(Task):
    """Sends gradients of the right size at the right time, and learns nothing.

    The gradient is a fixed vector, written anew at each step because an all-reduce overwrites it; or a phantom, for
    simulations of many workers.
    """

    def __init__(self, source: Vector, compute: EmulatedCompute, clock: Clock) -> None:
        """`source`: the gradient, after payload scaling; `compute`: the schedule of its buckets."""
        self._source, self._compute, self._clock = source, compute, clock
        self.w, self._g = source.clone().zero_(), source.clone()

    @property
    def compute_ns(self) -> int:
        """Nanoseconds of emulated compute so far."""
        return self._compute.compute_ns

    def gradient(self, step: int, ready: Ready | None = None) -> tuple[Vector, float | None]:
        began_ns = self._clock.now()
        self._g.copy_(self._source)
        self._compute.replay(step, began_ns, _slices(self._g, ready))
        return self._g, None

    def evaluate(self) -> None:
        """Nothing is learned."""
        return


def random_gradient(numel: int, *, seed: int, rank: int) -> torch.Tensor:
    """Of one rank. Random, so that compression and rounding meet no special values; fixed: a step costs one copy."""
    generator = torch.Generator().manual_seed(torch_seed(seed, "gradient", rank))
    return torch.randn(numel, generator=generator)


class LearningTask(Task):
    """Trains a module for real: its parameters are views of `w`, their gradients views of one flat gradient.

    Without `emulated`, the backward pass hands each bucket over from its hooks, as DistributedDataParallel
    does, and a step takes the time it takes. With `emulated`, the gradients are just as real, but a step
    takes the emulated time, so that more workers than cores still measure the network.
    """

    def __init__(
        self,
        learner: Learner,
        buckets: Sequence[Bucket],
        clock: Clock,
        emulated: EmulatedCompute | None = None,
    ) -> None:
        """`buckets`: of the module's trainable parameters, unscaled, in the order of completion."""
        self._learner, self._clock, self._emulated = learner, clock, emulated
        parameters = list(trainable(learner.module).values())
        w = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self._g = torch.zeros_like(w)
        self.w: Vector = w
        _become_views(parameters, w, self._g)
        self._overlap = Overlap(parameters, buckets, self._g, clock) if emulated is None else None
        self._batches = _endless(learner)
        self._compute_ns = 0

    @property
    def compute_ns(self) -> int:
        """Nanoseconds of compute so far: emulated, or measured without the time spent in `ready`."""
        return self._compute_ns if self._emulated is None else self._emulated.compute_ns

    def gradient(self, step: int, ready: Ready | None = None) -> tuple[Vector, float | None]:
        """See `Task.gradient`.

        Raises:
            LearnerError: the batches have run out, or the loss is not one number.
        """
        began_ns = self._clock.now()
        self._g.zero_()
        if self._overlap is not None:
            self._overlap.begin(ready)
        loss = self._backward()
        if self._overlap is not None:
            self._overlap.end()
            self._compute_ns += self._clock.now() - began_ns - self._overlap.in_ready_ns
        if self._emulated is not None:
            self._emulated.replay(step, began_ns, _slices(self._g, ready))
        return self._g, loss

    def evaluate(self) -> float | None:
        if self._learner.evaluate is None:
            return None
        self._learner.module.eval()
        try:
            with torch.no_grad():
                return float(self._learner.evaluate())
        finally:
            self._learner.module.train()

    def _backward(self) -> float:
        inputs, targets = next(self._batches)
        loss = self._learner.loss(self._learner.module(inputs), targets)
        if loss.numel() != 1:
            raise LearnerError(f"the loss has shape {tuple(loss.shape)}; expected one number, such as a mean")
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())


class Overlap:
    """Hands over the buckets of a real backward pass as they complete.

    A bucket that completes early waits for those before it: ranks may finish gradients in different orders,
    but a collective must be issued in the same order everywhere.

    Attributes:
        in_ready_ns: nanoseconds spent in `ready` since `begin`, which are not compute.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], buckets: Sequence[Bucket], g: torch.Tensor, clock: Clock
    ) -> None:
        """`parameters`: in registration order; their gradients are views of `g`."""
        self._buckets, self._g, self._clock = buckets, g, clock
        self._ready: Ready | None = None
        self._missing: list[set[int]] = []
        self._handed_over = 0
        self.in_ready_ns = 0
        for index, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]

    def begin(self, ready: Ready | None) -> None:
        """A forward pass begins; `ready` will be called with each bucket of its backward pass."""
        self._ready = ready
        self._missing = [set(range(bucket.first, bucket.last + 1)) for bucket in self._buckets]
        self._handed_over = 0
        self.in_ready_ns = 0

    def end(self) -> None:
        """The backward pass is over: hand over the rest, zeros where a parameter took no part."""
        for missing in self._missing:
            missing.clear()
        self._hand_over()

    def _hook(self, index: int) -> Callable[[torch.Tensor], None]:
        bucket = next(i for i, b in enumerate(self._buckets) if b.first <= index <= b.last)

        def complete(parameter: torch.Tensor) -> None:
            del parameter
            self._missing[bucket].discard(index)
            self._hand_over()

        return complete

    def _hand_over(self) -> None:
        if self._ready is None:
            return
        began_ns = self._clock.now()
        while self._handed_over < len(self._buckets) and not self._missing[self._handed_over]:
            bucket = self._buckets[self._handed_over]
            self._handed_over += 1
            self._ready(self._g[bucket.start : bucket.stop])
        self.in_ready_ns += self._clock.now() - began_ns


def _slices(g: Vector, ready: Ready | None) -> Callable[[Bucket], None] | None:
    """`ready` for buckets instead of slices of `g`."""
    if ready is None:
        return None
    return lambda bucket: ready(g[bucket.start : bucket.stop])


def _become_views(parameters: Sequence[torch.Tensor], w: torch.Tensor, g: torch.Tensor) -> None:
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.data = w[start:stop].view(parameter.shape)
        parameter.grad = g[start:stop].view(parameter.shape)
        start = stop


def _endless(learner: Learner) -> Iterator[tuple[Any, Any]]:
    while True:
        empty = True
        for batch in learner.batches:
            empty = False
            yield batch
        if empty:
            raise LearnerError(
                "the batches have run out; expected an endless iterator, or an iterable that can be iterated again"
            )
