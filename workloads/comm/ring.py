"""The `ring` collective: each worker sends to the next one only, over plain TCP.

An all-reduce of N workers takes 2(N-1) hops. At position p of the ring, with piece p of N to begin with::

    hop 0 to N-2       send a piece to the next worker, which adds its own numbers to it      (reduce-scatter)
    hop N-1 to 2N-3    send a complete piece to the next worker, which keeps it               (all-gather)

Pieces travel in chunks. A worker sends a chunk on as soon as it has added its own, while later chunks still arrive.
With T = all bytes through a worker's link / its rate, and hops of one-way delay d, this takes about
max(T + d, 2(N-1) d).

There is no rendezvous. Each chunk is added up in the order of the ring, once, so all ranks get the same bits. An
all-gather is a turn of N-1 hops with the vector of each rank. Everything else goes directly, as in `direct`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch

from wanbench.workloads.comm.base import CommError, Vector
from wanbench.workloads.comm.direct import Chunks, DirectComm, Held, Operation, Part, Send
from wanbench.workloads.comm.mesh import HOP, Mesh
from wanbench.workloads.comm.tensors import HALF, MEAN, Reduction, chunks_of
from wanbench.workloads.comm.work import DirectWork


class RingComm(DirectComm):
    """Workers in a ring; the module's docstring describes the collective.

    Args:
        mesh: connections to all peers.
        ring: all ranks, in the order of the ring.
        timeout_s: as in `DirectComm`.
    """

    def __init__(self, mesh: Mesh, ring: Sequence[int], *, timeout_s: float) -> None:
        self.ring = ring
        super().__init__(mesh, timeout_s=timeout_s)

    def all_reduce(self, vector: Vector, reduction: Reduction = MEAN) -> DirectWork:
        """Reduce over all ranks, in place; the module's docstring says how long it takes."""
        tensor = cast(torch.Tensor, vector)
        if reduction.wide and tensor.dtype in HALF:
            return self._in_single_precision(tensor, reduction)
        return self._turn("all_reduce", tensor.tensor_split(self.world_size), self.world_size - 1, reduction)

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> DirectWork:
        """Send the vector of each rank around the ring."""
        into = cast(Sequence[torch.Tensor], parts)
        into[self.rank].copy_(cast(torch.Tensor, vector))
        return self._turn("all_gather", [into[rank] for rank in self.ring], 0, MEAN)

    def _turn(self, name: str, pieces: Sequence[torch.Tensor], adding: int, reduction: Reduction) -> DirectWork:
        """Send pieces around the ring: `adding` hops as sums, then N - 1 hops complete.

        Args:
            name: what messages call it.
            pieces: by position in the ring.
            adding: 0 or N - 1.
            reduction: how a sum is computed.
        """
        work = self._begin(_Turns(self, name, [chunks_of(piece) for piece in pieces], adding, reduction))
        # Tell all ranks of a failure: only the next one would see it.
        work.then(lambda error: None if error is None else self.give_up(error))
        return work


class _Turns(Operation):
    """An operation of the ring. Chunks are numbered in the order in which they pass from one worker to the next.

    Args:
        comm, name: as for `Operation`.
        chunks: of each piece, by position in the ring.
        adding: the number of hops as sums.
        reduction: how a sum is computed.
    """

    kind = HOP

    def __init__(self, comm: RingComm, name: str, chunks: Sequence[Chunks], adding: int, reduction: Reduction) -> None:
        count, own = comm.world_size, comm.ring.index(comm.rank)
        positions = [(own - 1 - hop) % count for hop in range(adding + count - 1)]  # of the pieces that arrive
        self._before, self._next = comm.ring[own - 1], comm.ring[(own + 1) % count]
        self._arriving = [chunk for piece in positions for chunk in chunks[piece]]
        super().__init__(comm, name, {self._next: chunks[own]}, {self._before: self._arriving}, reduction.name)
        self.receivers = set(comm.peers)  # it needs all ranks, also those to which this one sends nothing
        self._reduction, self._workers = reduction, count
        self._begun_by = [comm.ring[piece] for piece in positions for _ in chunks[piece]]
        self._ahead = len(chunks[own])  # chunk n that arrives is sent on as chunk n + ahead
        self._count = self._ahead + sum(len(chunks[piece]) for piece in positions[:-1])  # of the chunks that it sends
        self.unsent = {(HOP, self._next, number) for number in range(self._count)}
        self._added = sum(len(chunks[piece]) for piece in positions[:adding])  # chunks that arrive as sums
        self._summed = self._added - len(chunks[positions[adding - 1]]) if adding else 0  # the first complete sum
        self._taken: set[int] = set()

    def first(self) -> Iterable[Send]:
        return [self._send(number, chunk) for number, chunk in enumerate(self.sends[self._next])]

    def _send(self, number: int, chunk: torch.Tensor) -> Send:
        return Send(HOP, self._next, number, chunk, number == self._count - 1)

    @torch.inference_mode()  # so that tensors made in this mode can be changed, too
    def use(self, number: int, arrived: Mapping[int, Part]) -> Iterable[Send]:
        """Add a chunk that has arrived to that of this rank, or replace it, and send it on."""
        if number in self._taken:
            raise CommError(
                f"rank {self._names[self._before]} sent chunk {number} of {self.name} {self.sequence} twice"
            )
        self._taken.add(number)
        chunk, body = self._arriving[number], arrived[self._before].body
        if body and number < self._added:
            self._reduction.accumulate(chunk, torch.frombuffer(body, dtype=chunk.dtype))
            if self._reduction.mean and number >= self._summed:
                chunk.div_(self._workers)
        elif body:
            chunk.copy_(torch.frombuffer(body, dtype=chunk.dtype))
        following = number + self._ahead
        return [self._send(following, chunk)] if following < self._count else []

    def late(self, held: Held) -> list[int]:
        """The rank that sent nothing: all between have sent on what was begun after its chunk."""
        arrived = self._taken | {number for _, number in held}
        return [rank for number, rank in enumerate(self._begun_by) if number not in arrived][:1]
