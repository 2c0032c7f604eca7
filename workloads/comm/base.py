"""The interfaces that every testbed implements: Comm, Work, Clock, and the Vector that they carry.

Some comms can do more: run something beside a worker (`BackgroundComm`), and send datagrams (`LossyComm`). A `Phantom`
is a vector without values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from wanbench.workloads.comm.blocks import Blocks


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


@dataclass(frozen=True, slots=True)
class Phantom:
    """A `Vector` of `size` elements of `bytes_each` bytes, without values: arithmetic changes nothing.

    A workload that does not train a model uses it when thousands of workers share one process.
    """

    size: int
    bytes_each: int = 4

    def add_(self, *operands: object, **options: object) -> Self:
        """Return itself, as all arithmetic does. Equal phantoms cannot be distinguished, so it is its own copy, too."""
        return self

    mul_ = div_ = copy_ = zero_ = fill_ = clone = add_

    def new_zeros(self, size: int, /) -> Self:
        """Return a phantom of `size` elements."""
        return type(self)(size, self.bytes_each)

    def numel(self) -> int:
        """The number of elements."""
        return self.size

    def element_size(self) -> int:
        """Bytes of one element on the wire."""
        return self.bytes_each

    def __getitem__(self, part: slice) -> Phantom:
        """Return a part of it."""
        return Phantom(len(range(*part.indices(self.size))), self.bytes_each)


def nbytes_of(vector: Vector) -> int:
    """Bytes of a vector on the wire."""
    return vector.numel() * vector.element_size()


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


@runtime_checkable
class BackgroundComm(Comm, Protocol):
    """A Comm whose worker can run a part of an algorithm beside its training loop, such as a server.

    On real sockets that is a thread of the worker, on the simulated clock a greenlet. It is sequential: it waits for
    messages, computes, and sends. An error in it fails all operations of its worker, and those of the peers. Messages
    have tags, and a rank can send to itself.
    """

    def now(self) -> int:
        """Nanoseconds of the clock that all workers share."""

    def send(self, vector: Vector, dst: int, tag: int = 0) -> Work:
        """As `Comm.send`; messages to the same rank keep their order for each tag. One to itself takes no time."""

    def recv(self, vector: Vector, src: int, tag: int = 0) -> Work:
        """As `Comm.recv`, of the messages with this tag."""

    def first(self, receives: Mapping[int, Work], until_ns: int | None = None) -> int | None:
        """Wait until the first of several receives has ended, and return its key; None at `until_ns`.

        If several have ended, it is the one that ended first, then the one with the smallest key. Its `wait` returns
        or raises at once.

        Raises:
            CommError: all peers are gone.
        """

    def background(self, body: Callable[[Any], None]) -> Work:
        """Run `body` beside the worker, with a view of this comm; the operation ends with it."""


@dataclass(frozen=True)
class Terms:
    """The settings of an exchange, the same on all ranks.

    Attributes:
        block_bytes: size of a block, the unit of loss.
        deadline_ns: maximum duration of an exchange after the worker has sent its own datagrams.
        silence_ns: how long an exchange goes on after the last datagram, once all peers have been heard.
    """

    block_bytes: int
    deadline_ns: int
    silence_ns: int

    def blocks(self, vector: Vector) -> Blocks:
        """How a vector is cut."""
        return Blocks(vector.numel(), vector.element_size(), self.block_bytes)

    def end_ns(self, sent_ns: int, latest_ns: int | None) -> int:
        """When an incomplete exchange ends, if nothing more arrives.

        Args:
            sent_ns: when the worker sent its last datagram.
            latest_ns: when the latest datagram arrived, or the last peer was first heard; None until all were heard.
        """
        deadline = sent_ns + self.deadline_ns
        return deadline if latest_ns is None else min(deadline, max(sent_ns, latest_ns) + self.silence_ns)


class Exchange(Work, Protocol):
    """Each worker sends a vector in blocks to each peer, once, and uses the blocks that arrive in time.

    Once a worker has sent its last datagram, its exchange ends:

    * at once, when all expected datagrams have arrived;
    * when every peer has been heard, and nothing more has arrived for `Terms.silence_ns`. Datagrams of a peer's later
      exchanges count too, because that peer has finished this one;
    * after `Terms.deadline_ns` at the latest.

    So workers stay together, although no worker waits for another longer than the deadline, and a lost datagram costs
    the silence. Datagrams that arrive before a worker begins its exchange are kept for it.

    Attributes, after `wait`:
        arrived: by peer, the elements of its vector that have arrived, as runs.
        blocks: the number of blocks expected, and the number of blocks that did not arrive in time.
    """

    @property
    def arrived(self) -> Mapping[int, Sequence[slice]]: ...

    @property
    def blocks(self) -> tuple[int, int]: ...


@runtime_checkable
class LossyComm(Comm, Protocol):
    """A Comm that can also send datagrams."""

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> Exchange:
        """Send `sends[peer]` to each peer and fill `receives[peer]` with the vector from that peer; returns at once.

        Lost blocks are not sent again. Empty vectors are not sent. All vectors belong to the operation until its `wait`
        returns; then the elements of `receives` listed in `arrived` are valid, and the others have any value.
        """
