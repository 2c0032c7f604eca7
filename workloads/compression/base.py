"""What a compressor is: a vector to a message, a message to a vector, and whether messages add up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from wanbench.workloads.comm.base import Comm, Vector, Work
from wanbench.workloads.compute.phantom import Phantom
from wanbench.workloads.parameters import Parameters
from wanbench.workloads.state import Stateful

if TYPE_CHECKING:
    import torch

Shapes = tuple[tuple[int, ...], ...]
"""Of the parameter tensors that a flat vector consists of, in their order; () where they are not known."""

Rounds = Generator[tuple[Work, "torch.Tensor | None"], None, "torch.Tensor"]
"""The rounds of an average: yields what to wait for, and this worker's contribution to the mean as soon as it is
known; returns the mean, shape (numel,). Between two rounds others may communicate."""

SizedRounds = Generator[tuple[Work, Vector], None, Vector]


class CompressorError(ValueError):
    """A compressor or one of its parameters is not what it should be. The message is one line."""


@dataclass(frozen=True)
class Message:
    """The size of a message: `numel` elements of `bytes_each` bytes."""

    numel: int
    bytes_each: int

    @property
    def nbytes(self) -> int:
        """Bytes of the message."""
        return self.numel * self.bytes_each


@dataclass
class Compressor(Parameters, Stateful, ABC):
    """Base class; a subclass is a dataclass whose fields are its parameters, as those of an `Algorithm`.

    The state of one stream of vectors (random draws, warm starts) is made in `start`; the residual of what was
    not sent is not the compressor's but the `Averager`'s.

    Attributes:
        kind, source: see `Parameters`. state: see `Stateful`.
        averages: messages may be averaged on their way, by an all_reduce.
        gathers: they need an all_gather, whose bytes grow with the number of workers.
        feedback: what is not sent now is added to the next vector (error feedback, Stich et al. 2018; Karimireddy et
            al. 2019). Off for unbiased compressors, whose error has mean zero.
        unbiased: E[decode(encode(v))] = v over the random draws.
        rounds_mean: messages are averaged in a type too narrow for it, so that a mean is not quite one.
        needs_shapes: works on matrices, so the shapes of the parameter tensors must be known.
    """

    noun: ClassVar[str] = "compressor"
    error: ClassVar[type[ValueError]] = CompressorError
    averages: ClassVar[bool] = False
    gathers: ClassVar[bool] = False
    feedback: ClassVar[bool] = True
    unbiased: ClassVar[bool] = False
    rounds_mean: ClassVar[bool] = False
    needs_shapes: ClassVar[bool] = False

    def start(self, shapes: Shapes, rank: int, world_size: int, seed: int) -> None:
        """Called once, before the first vector: `seed` is the same on all ranks."""

    def load(self, v: Vector) -> Vector:
        """What of `v`, shape (numel,), is to be compressed, before error feedback: all of it."""
        return v

    def sent(self, c: torch.Tensor) -> None:
        """`c`, shape (numel,), is this worker's contribution to a mean."""

    @abstractmethod
    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        """The message of each round for a vector of `numel` elements of `bytes_each` bytes."""

    def sized_rounds(self, v: Vector, comm: Comm, messages: Sequence[Message]) -> SizedRounds:
        """As `rounds`, for a vector `v` that has a size and no values, with messages of these sizes."""
        for size in messages:
            message = Phantom(size.numel, size.bytes_each)
            if self.averages:
                yield comm.all_reduce(message), v
            else:
                yield comm.all_gather(message, [message] * comm.world_size), v
        return v

    @abstractmethod
    def rounds(self, v: torch.Tensor, comm: Comm) -> Rounds:
        """Average `v`, shape (numel,), over the workers, as far as the messages tell; `v` is left as it is.

        Raises:
            CommError: a peer is gone.
        """


class Gathered(Compressor):
    """Messages that only mean something one by one: everyone gets all of them, decodes and averages."""

    gathers = True

    @abstractmethod
    def encode(self, v: torch.Tensor) -> torch.Tensor:
        """The message for `v`, shape (numel,): bytes. `v` is left as it is."""

    @abstractmethod
    def decode(self, message: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """What a message stands for, as a new vector of the shape and type of `like`."""

    def rounds(self, v: torch.Tensor, comm: Comm) -> Rounds:
        message = self.encode(v)
        parts = [message.clone() for _ in range(comm.world_size)]
        yield comm.all_gather(message, parts), self.decode(message, v)
        # In the order of ranks: all of them get the same bits.
        mean = self.decode(parts[0], v)
        for part in parts[1:]:
            mean.add_(self.decode(part, v))
        return mean.div_(comm.world_size)


class Agreed(Compressor):
    """The same elements from every worker, so that their values alone travel and add up in an all_reduce."""

    averages = True

    @abstractmethod
    def pick(self, v: torch.Tensor) -> torch.Tensor:
        """The indices to send of the next vector, shape (k,), the same on all ranks."""

    def rounds(self, v: torch.Tensor, comm: Comm) -> Rounds:
        indices = self.pick(v)
        message = v[indices]
        c = v.new_zeros(v.numel()).index_copy_(0, indices, message)
        yield comm.all_reduce(message), c
        return v.new_zeros(v.numel()).index_copy_(0, indices, message)
