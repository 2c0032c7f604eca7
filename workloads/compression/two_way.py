"""Compression in both directions: to the owner of a piece, and back from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from wanbench.workloads.comm.base import Comm, Phantom, Vector, Work, nbytes_of
from wanbench.workloads.compression.base import Gathered, Message, Rounds, Shapes, SizedRounds


class AllOf:
    """Several operations as one."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works

    def done(self) -> bool:
        """True once `wait` would return at once."""
        return all(work.done() for work in self._works)

    def wait(self) -> None:
        """Block until all are finished. Raises: CommError."""
        for work in self._works:
            work.wait()


@dataclass
class TwoWay(Gathered):
    """Cuts the vector into N pieces, each owned by a rank: a parameter server spread over the workers.

    ::

        worker j:  sends C(piece i of u_j) to owner i                    one way
        owner i:   cbar = mean over j ;  c2 = C(cbar + E_i) ;  E_i <- cbar + E_i - c2
                   sends c2 to all workers, which apply it               the other way

    E_i is the owner's residual, for compressors with error feedback. A spec cannot name this compressor;
    `two_way = true` of an algorithm applies it to the algorithm's own.

    Attributes:
        inner: C.
    """

    kind = "two-way"
    state = ("inner", "_residual")
    gathers = False

    inner: Gathered

    def __post_init__(self) -> None:
        """Copy the properties of C."""
        self.feedback = self.inner.feedback  # type: ignore[misc]
        self.unbiased = self.inner.unbiased  # type: ignore[misc]
        self.ns_per_byte = self.inner.ns_per_byte

    def start(self, shapes: Shapes, rank: int, world_size: int, seed: int) -> None:
        self.inner.start((), rank, world_size, seed)
        self._world_size = world_size
        self._residual: torch.Tensor | None = None

    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        """Return the sizes of both rounds: from a worker to all owners together, and from an owner to each worker."""
        sizes = [self._size(piece, bytes_each) for piece in _pieces(numel, getattr(self, "_world_size", 1))]
        return [Message(sum(sizes), 1), Message(max(sizes), 1)]

    def encode(self, v: torch.Tensor) -> torch.Tensor:
        return self.inner.encode(v) if v.numel() else v.new_empty(0, dtype=torch.uint8)

    def decode(self, message: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return self.inner.decode(message, like) if like.numel() else like.clone()

    def rounds(self, v: torch.Tensor, comm: Comm) -> Rounds:
        pieces = v.tensor_split(comm.world_size)
        given = [self.encode(piece) for piece in pieces]
        received = [given[comm.rank].clone() for _ in range(comm.world_size)]
        work = _swap(comm, given, received)
        yield work, torch.cat([self.decode(message, piece) for message, piece in zip(given, pieces, strict=True)])
        owned = pieces[comm.rank]
        mean = self.decode(received[0], owned)
        for message in received[1:]:
            mean.add_(self.decode(message, owned))
        answer = self._answer(mean.div_(comm.world_size))
        answers = [answer if rank == comm.rank else torch.empty_like(given[rank]) for rank in range(comm.world_size)]
        yield _swap(comm, [answer] * comm.world_size, answers), None
        return torch.cat([self.decode(message, piece) for message, piece in zip(answers, pieces, strict=True)])

    def sized_rounds(self, v: Vector, comm: Comm, messages: Sequence[Message]) -> SizedRounds:
        pieces = [Phantom(self._size(n, v.element_size()), 1) for n in _pieces(v.numel(), comm.world_size)]
        own = [pieces[comm.rank]] * comm.world_size
        yield _swap(comm, pieces, own), v
        yield _swap(comm, own, pieces), v
        return v

    def _answer(self, mean: torch.Tensor) -> torch.Tensor:
        if self._residual is not None:
            mean = mean + self._residual
        answer = self.encode(mean)
        if self.feedback:
            self._residual = mean - self.decode(answer, mean)
        return answer

    def _size(self, numel: int, bytes_each: int) -> int:
        return sum(map(nbytes_of, self.inner.messages(numel, (), bytes_each))) if numel else 0


def _swap(comm: Comm, sends: Sequence[Vector], receives: Sequence[Vector]) -> AllOf:
    """Send each peer its vector, the next rank first, and fill that of each peer. This rank's own are not used."""
    peers = [(comm.rank + hop) % comm.world_size for hop in range(1, comm.world_size)]
    sent = [comm.send(sends[peer], peer) for peer in peers]
    return AllOf([*(comm.recv(receives[peer], peer) for peer in peers), *sent])


def _pieces(numel: int, count: int) -> list[int]:
    """Sizes of the pieces of `torch.tensor_split`."""
    return [numel // count + (index < numel % count) for index in range(count)]
