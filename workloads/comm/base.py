"""The interfaces that every testbed implements: Comm, Work, Clock, and the Vector that they carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable


@runtime_checkable
class Vector(Protocol):
    """A flat vector of numbers: a `torch.Tensor`, or a stand-in without payload.

    Algorithms and optimisers use only these methods. Code that needs the values (a compressor, AdamW) works on tensors;
    for a stand-in it knows only the sizes.
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
        """Return an independent copy."""

    def new_zeros(self, size: int, /) -> Self:
        """Return a new vector of `size` zeros."""

    def numel(self) -> int:
        """The number of elements."""

    def element_size(self) -> int:
        """Bytes of one element on the wire."""

    def __getitem__(self, part: slice) -> Any:
        """Return a part of the vector, which shares its memory."""


class Work(Protocol):
    """A communication in progress."""

    def done(self) -> bool:
        """True once `wait` would return at once. Never blocks."""

    def wait(self) -> None:
        """Block until the result has arrived. This is the only place where a worker can stall.

        Raises:
            CommError: the peer is gone, or the operation has timed out.
        """


@runtime_checkable
class PatientWork(Work, Protocol):
    """A Work whose wait can have a time limit."""

    def wait_for(self, seconds: float) -> bool:
        """Wait for at most `seconds`; return True if the result has arrived. Raises: CommError, as `wait`."""


class Comm(Protocol):
    """A worker's view of its peers. All ranks issue their operations in the same order."""

    rank: int
    world_size: int

    def all_reduce(self, vector: Vector) -> Work:
        """Replace `vector`, in place, with its mean over all ranks; returns at once.

        `vector` belongs to the operation until its `wait` returns.
        """

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> Work:
        """Fill `parts[rank]` with the `vector` of each rank, including this one; returns at once.

        All vectors have the same size and type. They and the parts belong to the operation until its `wait` returns.
        """

    def send(self, vector: Vector, dst: int) -> Work:
        """Send a copy of `vector` to rank `dst`; returns at once."""

    def recv(self, vector: Vector, src: int) -> Work:
        """Fill `vector` with the next message from rank `src`; returns at once."""

    def close(self) -> None:
        """Release connections. No operation must be in progress."""


class Clock(Protocol):
    """The time of a worker."""

    def now(self) -> int:
        """Nanoseconds since an arbitrary origin that all workers of a run share."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""

    def process(self, seconds: float) -> None:
        """Let the time pass that a processor needs: only simulated time, since real work takes real time."""


class CommError(RuntimeError):
    """A peer is gone, an operation timed out, or a message has the wrong size."""
