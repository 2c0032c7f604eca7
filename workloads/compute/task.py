"""The computation of a worker between synchronisations: a gradient for each step, on flat vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from wanbench.workloads.comm.base import Clock, Comm, Vector
from wanbench.workloads.compute.buckets import Bucket
from wanbench.workloads.compute.emulated import EmulatedCompute, Slowdowns
from wanbench.workloads.models.learner import Learner, LearnerError, trainable
from wanbench.workloads.seeding import torch_seed

Ready = Callable[[Vector], None]


@dataclass(frozen=True)
class Snapshot:
    """A copy of a model.

    Attributes:
        w: its parameters, shape (numel,). buffers: the module's, such as batch norm's running statistics.
    """

    w: torch.Tensor
    buffers: Sequence[torch.Tensor] = ()

    def averaged(self, comm: Comm) -> Snapshot:
        """Return the mean of the workers' copies. Buffers of whole numbers stay this worker's own."""
        means = [buffer for buffer in self.buffers if buffer.is_floating_point()]
        mean = torch.cat([self.w, *(buffer.reshape(-1).float() for buffer in means)])
        comm.all_reduce(mean).wait()
        w, *parts = torch.split(mean, [self.w.numel(), *(buffer.numel() for buffer in means)])
        values = iter(parts)
        buffers = [next(values).view(b.shape).to(b.dtype) if b.is_floating_point() else b for b in self.buffers]
        return Snapshot(w, buffers)


class Task(ABC):
    """One worker's share of the computation.

    Attributes:
        w: the parameters, float32 or phantoms, shape (numel,); initially equal on all ranks. To train, update it in
            place.
        slow: the times when compute takes longer; None if it never does.
        shapes: shapes of the parameter tensors in `w`, in order; () if its size is scaled.
        compute_ns: compute time so far, in nanoseconds on the clock. For emulated compute this is the emulated time;
            any further time of a step is overhead.
    """

    w: Vector
    slow: Slowdowns | None = None
    shapes: tuple[tuple[int, ...], ...] = ()

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
                completion, which is the same on all ranks. It can start to overwrite the slice at once.

        Returns:
            The flat gradient, shape (numel,), and the loss of the batch (None if the workload does not train a model).
            Every step returns the same vector: keep a copy to use it after the next call.
        """

    def snapshot(self, w: Vector) -> Snapshot | None:
        """Copy the model, with parameters `w` and the buffers of now; None if it trains no model."""
        return None

    def accuracy(self, model: Snapshot) -> float | None:
        """Return the test accuracy of a copy, in [0, 1]; None if this worker cannot evaluate it.

        It overwrites the model, so call it after training only. It is not part of `compute_ns`.
        """
        return None


class EmulatedTask(Task):
    """Sends gradients of the right size at the right time, without training a model.

    The gradient is a fixed vector, copied at each step because an all-reduce overwrites it. Simulations of many workers
    use a phantom instead.
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


def random_gradient(numel: int, *, seed: int, rank: int) -> torch.Tensor:
    """Return the gradient of one rank: random, to avoid special values; fixed, so that a step costs only a copy."""
    return torch.randn(numel, generator=torch.Generator().manual_seed(torch_seed(seed, "gradient", rank)))


class LearningTask(Task):
    """Trains a real module: its parameters are views of `w`, their gradients views of one flat gradient.

    Without `emulated`, hooks in the backward pass hand over each bucket, as in DistributedDataParallel, and a step
    takes its real time. With `emulated`, the gradients are real too, but a step takes the emulated time. So even with
    more workers than cores, a run measures the network.
    """

    def __init__(
        self,
        learner: Learner,
        buckets: Sequence[Bucket],
        clock: Clock,
        emulated: EmulatedCompute | None = None,
    ) -> None:
        """`buckets`: the buckets of the module's trainable parameters, unscaled, in the order of completion."""
        self._learner, self._clock, self._emulated = learner, clock, emulated
        parameters = list(trainable(learner.module).values())
        w = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self._g = torch.zeros_like(w)
        self.w: Vector = w
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, values, gradient in zip(
            parameters, torch.split(w, sizes), torch.split(self._g, sizes), strict=True
        ):
            parameter.data = values.view(parameter.shape)
            parameter.grad = gradient.view(parameter.shape)
        self._overlap = Overlap(parameters, buckets, self._g, clock) if emulated is None else None
        self._batches = _endless(learner)
        self._compute_ns = 0

    @property
    def compute_ns(self) -> int:
        """Nanoseconds of compute so far: emulated, or measured without the time spent in `ready`."""
        return self._compute_ns if self._emulated is None else self._emulated.compute_ns

    def gradient(self, step: int, ready: Ready | None = None) -> tuple[Vector, float | None]:
        """As `Task.gradient`. Raises: LearnerError: there are no more batches, or the loss is not one number."""
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

    def snapshot(self, w: Vector) -> Snapshot:
        return Snapshot(cast(torch.Tensor, w).clone(), [buffer.clone() for buffer in self._learner.module.buffers()])

    def accuracy(self, model: Snapshot) -> float | None:
        evaluate, module = self._learner.evaluate, self._learner.module
        if evaluate is None:
            return None
        self.w.copy_(model.w)
        module.eval()
        try:
            with torch.no_grad():
                for buffer, copy in zip(module.buffers(), model.buffers, strict=True):
                    buffer.copy_(copy)
                return float(evaluate())
        finally:
            module.train()

    def _backward(self) -> float:
        inputs, targets = next(self._batches)
        loss = self._learner.loss(self._learner.module(inputs), targets)
        if loss.numel() != 1:
            raise LearnerError(f"the loss has shape {tuple(loss.shape)}; expected one number, such as a mean")
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())


class Overlap:
    """Hands over the buckets of a real backward pass as they complete.

    A bucket that completes early waits for the buckets before it: ranks can finish gradients in different orders, but
    all ranks must issue collectives in the same order.

    Attributes:
        in_ready_ns: nanoseconds spent in `ready` since `begin`; they are not compute.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], buckets: Sequence[Bucket], g: torch.Tensor, clock: Clock
    ) -> None:
        """`parameters`: the parameters in registration order; their gradients are views of `g`."""
        self._buckets, self._g, self._clock = buckets, g, clock
        self.begin(None)
        for number, bucket in enumerate(buckets):
            for index in range(bucket.first, bucket.last + 1):
                complete = partial(self._complete, number, index)
                parameters[index].register_post_accumulate_grad_hook(complete)  # type: ignore[no-untyped-call]

    def begin(self, ready: Ready | None) -> None:
        """Prepare for a forward pass; `ready` will be called with each bucket of its backward pass."""
        self._ready = ready
        self._missing = [set(range(bucket.first, bucket.last + 1)) for bucket in self._buckets]
        self._handed_over = self.in_ready_ns = 0

    def end(self) -> None:
        """Hand over the remaining buckets after the backward pass; unused parameters have zero gradients."""
        for missing in self._missing:
            missing.clear()
        self._hand_over()

    def _complete(self, bucket: int, index: int, _: torch.Tensor) -> None:
        self._missing[bucket].discard(index)
        self._hand_over()

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
    """Return `ready` for buckets instead of slices of `g`."""
    if ready is None:
        return None
    return lambda bucket: ready(g[bucket.start : bucket.stop])


def _endless(learner: Learner) -> Iterator[tuple[Any, Any]]:
    while True:
        empty = True
        for batch in learner.batches:
            empty = False
            yield batch
        if empty:
            raise LearnerError(
                "there are no more batches; expected an endless iterator, or an iterable that can be iterated again"
            )
