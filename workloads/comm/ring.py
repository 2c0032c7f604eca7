"""The `ring` collective: each worker sends to the next one only, over plain TCP.

An all-reduce of N workers takes 2(N-1) hops. At place p of the ring, with piece p of N to begin with::

    hop 0 to N-2       send a piece to the next worker, which adds its own numbers to it      (reduce-scatter)
    hop N-1 to 2N-3    send a complete piece to the next worker, which keeps it               (all-gather)

Pieces travel in chunks. A worker sends a chunk on as soon as it has added its own, while later chunks still arrive.
With T = all bytes through a worker's link / its rate, and hops of one-way delay d, this takes about
max(T + d, 2(N-1) d).

There is no rendezvous. Each chunk is added up in the order of the ring, once, so all ranks get the same bits. An
all-gather is a turn of N-1 hops with the vector of each rank. Everything else goes directly, as in `direct`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import torch

from wanbench.workloads.comm.base import CommError, Vector
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.mesh import HOP, Frame, Mesh
from wanbench.workloads.comm.operation import Held, Operation, Part
from wanbench.workloads.comm.precision import in_single_precision
from wanbench.workloads.comm.tensors import HALF, MEAN, Reduction, bytes_of, chunks_of
from wanbench.workloads.comm.work import DirectWork

Chunks = Sequence[torch.Tensor]


@dataclass
class _Turns(Operation):
    """An operation of the ring. Chunks are numbered in the order in which they pass from one worker to the next.

    Attributes:
        begun_by: by chunk that arrives, the rank that was the first to send it.
        ahead: chunk n that arrives is sent on as chunk n + ahead.
        sent: the number of chunks that this rank sends.
        added: the number of chunks that arrive as sums, to which this rank adds its own numbers.
        summed: the number of the first chunk whose sum is then complete.
        workers: the number of ranks, by which a mean is divided.
        taken: the numbers of the chunks that have arrived.
    """

    begun_by: Sequence[int] = ()
    ahead: int = 0
    sent: int = 0
    added: int = 0
    summed: int = 0
    workers: int = 1
    taken: set[int] = field(default_factory=set)

    def late(self, held: Held) -> list[int]:
        """The rank that sent nothing: all between have sent on what was begun after its chunk."""
        arrived = self.taken | {chunk for _, chunk in held}
        return [rank for number, rank in enumerate(self.begun_by) if number not in arrived][:1]

    @torch.inference_mode()  # so that tensors made in this mode can be changed, too
    def put(self, number: int, chunk: torch.Tensor, body: bytearray) -> None:
        """Add a chunk that has arrived to that of this rank, or replace it."""
        self.taken.add(number)
        if not body:
            return
        arrived = torch.frombuffer(body, dtype=chunk.dtype)
        if number >= self.added:
            chunk.copy_(arrived)
            return
        self.reduction.accumulate(chunk, arrived)
        if self.reduction.mean and number >= self.summed:
            chunk.div_(self.workers)


class RingComm(DirectComm):
    """Workers in a ring; the module's docstring describes the collective.

    Args:
        mesh: connections to all peers.
        ring: all ranks, in the order of the ring.
        timeout_s: as in `DirectComm`.
    """

    def __init__(self, mesh: Mesh, ring: Sequence[int], *, timeout_s: float) -> None:
        self._ring, self._place = ring, ring.index(mesh.rank)
        self._before, self._next = ring[self._place - 1], ring[(self._place + 1) % len(ring)]
        super().__init__(mesh, timeout_s=timeout_s)

    def all_reduce(self, vector: Vector, reduction: Reduction = MEAN) -> DirectWork:
        """Reduce over all ranks, in place; the module's docstring says how long it takes."""
        tensor = cast(torch.Tensor, vector)
        if reduction.wide and tensor.dtype in HALF:
            return in_single_precision(self.all_reduce, tensor, reduction, self.timeout_s, self.give_up)
        return self._turn("all_reduce", tensor.tensor_split(self.world_size), self.world_size - 1, reduction)

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> DirectWork:
        """Send the vector of each rank around the ring."""
        into = cast(Sequence[torch.Tensor], parts)
        into[self.rank].copy_(cast(torch.Tensor, vector))
        return self._turn("all_gather", [into[rank] for rank in self._ring], 0, MEAN)

    def _turn(self, name: str, pieces: Sequence[torch.Tensor], adding: int, reduction: Reduction) -> DirectWork:
        """Send pieces around the ring: `adding` hops as sums, then N - 1 hops complete.

        Args:
            name: what messages call it.
            pieces: by place in the ring.
            adding: 0 or N - 1.
            reduction: how a sum is computed.
        """
        chunks = [chunks_of(piece) for piece in pieces]
        work = self._begin(
            lambda work: self._operation(work, chunks, adding, reduction),
            name,
            # It needs all ranks, also those to which this one sends nothing.
            [(peer, chunks[self._place] if peer == self._next else ()) for peer in self._peers],
        )
        work.then(self._tell)
        return work

    def _operation(self, work: DirectWork, chunks: Sequence[Chunks], adding: int, reduction: Reduction) -> _Turns:
        count = self.world_size
        hops = adding + count - 1
        places = [(self._place - 1 - hop) % count for hop in range(hops)]
        arriving = [chunk for place in places for chunk in chunks[place]]
        due, into = self._none(), cast(list[Chunks], [()] * count)
        due[self._before], into[self._before] = len(arriving), arriving
        sent, unsent = sum(len(chunks[(self._place - hop) % count]) for hop in range(hops)), self._none()
        unsent[self._next] = sent
        added = sum(len(chunks[place]) for place in places[:adding])
        return _Turns(
            work,
            HOP,
            into,
            due,
            self._none(),
            unsent,
            reduction=reduction,
            begun_by=[self._ring[place] for place in places for _ in chunks[place]],
            ahead=len(chunks[self._place]),
            sent=sent,
            added=added,
            summed=added - len(chunks[places[adding - 1]]) if adding else 0,
            workers=count,
        )

    def _tell(self, error: str | None) -> None:
        """Tell all ranks of a failure: only the next one would see it."""
        if error is not None:
            self.give_up(error)

    def _push(self, operation: Operation, sequence: int, pieces: Sequence[tuple[int, Chunks]]) -> None:
        if not isinstance(operation, _Turns):
            super()._push(operation, sequence, pieces)
            return
        first = next(chunks for peer, chunks in pieces if peer == self._next)
        self._send_on(operation, sequence, 0, first)

    def _take(self, operation: Operation, kind: int, sequence: int, chunk: int, arrived: Mapping[int, Part]) -> None:
        if not isinstance(operation, _Turns):
            super()._take(operation, kind, sequence, chunk, arrived)
            return
        ((peer, part),) = arrived.items()
        if chunk in operation.taken:
            raise CommError(f"rank {self.names[peer]} sent chunk {chunk} of {operation.work.name} {sequence} twice")
        own = operation.chunks[peer][chunk]
        operation.put(chunk, own, part.body)
        if chunk + operation.ahead < operation.sent:
            self._send_on(operation, sequence, chunk + operation.ahead, [own])

    def _send_on(self, operation: _Turns, sequence: int, first: int, chunks: Chunks) -> None:
        """Send chunks to the next rank; `first` is the number of the first one."""
        flushed = partial(self._count_down, sequence, unsent=self._next)
        self._mesh.send_all(
            (
                self._next,
                Frame(
                    HOP,
                    sequence,
                    bytes_of(chunk),
                    flushed,
                    sequence,
                    number,
                    number == operation.sent - 1,
                    b"" if number else operation.about(chunks).encode(),
                ),
            )
            for number, chunk in enumerate(chunks, start=first)
        )
