"""The interface of a compressor: a vector to a message, a message to a vector, and whether messages add up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from wanbench.workloads.comm.base import Comm, Phantom, Vector, Work
from wanbench.workloads.parameters import Parameters, at_least
from wanbench.workloads.state import Stateful

if TYPE_CHECKING:
    import torch

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the parameter tensors in a flat vector, in order; () if unknown."""

Rounds = Generator[tuple[Work, "torch.Tensor | None"], None, "torch.Tensor"]
"""The rounds of an average. Yields the work to wait for, and this worker's contribution to the mean once it is known;
returns the mean, shape (numel,). Others can communicate between two rounds."""

SizedRounds = Generator[tuple[Work, Vector], None, Vector]


class CompressorError(ValueError):
    """A compressor or one of its parameters is wrong. The message is one line."""


Message = Phantom
"""The size of a message: so many elements of so many bytes. Where vectors have no values, it is the message itself."""


@dataclass
class Compressor(Parameters, Stateful, ABC):
    """Base class of compressors; a subclass is a dataclass whose fields are its parameters, as with an `Algorithm`.

    `start` creates the state of one stream of vectors (random draws, warm starts). The `Averager`, not the compressor,
    holds the residual.

    Attributes:
        kind, source: see `Parameters`. state: see `Stateful`.
        averages: messages can be averaged by an all_reduce.
        gathers: messages need an all_gather, whose bytes grow with the number of workers.
        feedback: elements that are not sent are added to the next vector (error feedback, Stich et al. 2018;
            Karimireddy et al. 2019). Off for unbiased compressors, whose error has mean zero.
        unbiased: E[decode(encode(v))] = v over the random draws.
        rounds_mean: messages are averaged in a narrow type, so the mean is rounded.
        needs_shapes: works on matrices, so the shapes of the parameter tensors must be known.
        ns_per_byte: on the simulated clock, how long a worker takes to compress a byte of a vector, and to restore it
            from a message. `benchmarks/compressors.py` measures it; 0 is a compressor that costs no time.
    """

    noun: ClassVar[str] = "compressor"
    error: ClassVar[type[ValueError]] = CompressorError
    averages: ClassVar[bool] = False
    gathers: ClassVar[bool] = False
    feedback: ClassVar[bool] = True
    unbiased: ClassVar[bool] = False
    rounds_mean: ClassVar[bool] = False
    needs_shapes: ClassVar[bool] = False

    ns_per_byte: float = field(default=0.0, metadata=at_least(0), kw_only=True)

    def start(self, shapes: Shapes, rank: int, world_size: int, seed: int) -> None:
        """Prepare. Called once before the first vector; `seed` is the same on all ranks."""

    def load(self, v: Vector) -> Vector:
        """Return the part of `v`, shape (numel,), to compress, before error feedback; by default all of it."""
        return v

    def sent(self, c: torch.Tensor) -> None:
        """Note that `c`, shape (numel,), is this worker's contribution to a mean."""

    @abstractmethod
    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        """Return the message size of each round, for a vector of `numel` elements of `bytes_each` bytes."""

    def sized_rounds(self, v: Vector, comm: Comm, messages: Sequence[Message]) -> SizedRounds:
        """As `rounds`, for a vector `v` without values and messages of these sizes."""
        for message in messages:
            if self.averages:
                yield comm.all_reduce(message), v
            else:
                yield comm.all_gather(message, [message] * comm.world_size), v
        return v

    @abstractmethod
    def rounds(self, v: torch.Tensor, comm: Comm) -> Rounds:
        """Average the compressed `v`, shape (numel,), over the workers; `v` is not changed.

        Raises:
            CommError: a peer is gone.
        """


class Gathered(Compressor):
    """Base class for messages that are not additive: every worker receives all of them, decodes and averages."""

    gathers = True

    @abstractmethod
    def encode(self, v: torch.Tensor) -> torch.Tensor:
        """Return the message for `v`, shape (numel,), as bytes; `v` is not changed."""

    @abstractmethod
    def decode(self, message: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return the vector that a message encodes, in the shape and type of `like`."""

    def rounds(self, v: torch.Tensor, comm: Comm) -> Rounds:
        message = self.encode(v)
        parts = [message.clone() for _ in range(comm.world_size)]
        yield comm.all_gather(message, parts), self.decode(message, v)
        # In the order of ranks, so all ranks get the same bits.
        mean = self.decode(parts[0], v)
        for part in parts[1:]:
            mean.add_(self.decode(part, v))
        return mean.div_(comm.world_size)


class Agreed(Compressor):
    """Base class for sending the same elements from every worker: only values travel, and an all_reduce adds them."""

    averages = True

    @abstractmethod
    def pick(self, v: torch.Tensor) -> torch.Tensor:
        """Return the indices to send of the next vector, shape (k,), the same on all ranks."""

    def rounds(self, v: torch.Tensor, comm: Comm) -> Rounds:
        indices = self.pick(v)
        message = v[indices]
        c = v.new_zeros(v.numel()).index_copy_(0, indices, message)
        yield comm.all_reduce(message), c
        return v.new_zeros(v.numel()).index_copy_(0, indices, message)
