"""The interfaces every testbed implements: Comm, Work, Clock, and the Vector they carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable


@runtime_checkable
class Vector(Protocol):
    """A flat vector of numbers: `torch.Tensor` satisfies it, and so may a stand-in without payload.

    Algorithms and optimisers use no more than this. What needs the values themselves (a compressor, AdamW) works on
    tensors, and knows the sizes alone of a stand-in.
    """

    def add_(self, other: Self, *, alpha: float = 1.0) -> Self:
        """In place: self += alpha * other."""

    def mul_(self, factor: float) -> Self:
        """In place: self *= factor."""

    def div_(self, other: Self) -> Self:
        """In place: self /= other, element by element."""

    def copy_(self, other: Self) -> Self:
        """In place: self = other."""

    def zero_(self) -> Self:
        """In place: self = 0."""

    def fill_(self, value: float, /) -> Self:
        """In place: each element = value."""

    def clone(self) -> Self:
        """An independent copy."""

    def new_zeros(self, size: int, /) -> Self:
        """Another vector of `size` zeros."""

    def numel(self) -> int:
        """The number of elements."""

    def element_size(self) -> int:
        """Bytes of one element on the wire."""

    def __getitem__(self, part: slice) -> Any:
        """A part of it, which shares its memory."""


class Work(Protocol):
    """A communication under way."""

    def done(self) -> bool:
        """True once `wait` would return at once. Never blocks."""

    def wait(self) -> None:
        """Block until the result is there: the only place where a worker can stall.

        Raises:
            CommError: the peer is gone, or the deadline of the operation has passed.
        """


@runtime_checkable
class PatientWork(Work, Protocol):
    """A Work that can be waited for without waiting to its end."""

    def wait_for(self, seconds: float) -> bool:
        """As `wait`, but no longer than `seconds`; true if the result is there. Raises: CommError, as `wait`."""


class Comm(Protocol):
    """A worker's view of its peers. All ranks issue their operations in the same order."""

    rank: int
    world_size: int

    def all_reduce(self, vector: Vector) -> Work:
        """Replace `vector`, in place, by its mean over all ranks; returns at once.

        `vector` belongs to the operation until its `wait` returns.
        """

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> Work:
        """Fill `parts[rank]` with the `vector` of each rank, this one's too; returns at once.

        All vectors have one size and type. They and the parts belong to the operation until its `wait` returns.
        """

    def send(self, vector: Vector, dst: int) -> Work:
        """Send a copy of `vector` to rank `dst`; returns at once."""

    def recv(self, vector: Vector, src: int) -> Work:
        """Fill `vector` with the next message from rank `src`; returns at once."""

    def close(self) -> None:
        """Release connections. Nothing may be in flight."""


class Clock(Protocol):
    """Time as a worker sees it."""

    def now(self) -> int:
        """Nanoseconds since an arbitrary origin that all workers of a run share."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""


class CommError(RuntimeError):
    """A peer is gone, an operation timed out, or a message did not have the agreed size."""
