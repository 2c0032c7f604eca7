"""The `direct` collective: every worker sends its pieces to all others at once, over plain TCP.

An all-reduce is a reduce-scatter and an all-gather without rounds::

    rank i owns piece i.   i sends piece j of its vector to rank j          (half a round trip)
    rank j averages its N pieces and sends the result to all ranks          (half a round trip)

Pieces travel in chunks. An owner averages a chunk as soon as it has all N, and sends the mean while later chunks still
arrive. With T = all bytes through a worker's link / its rate, this takes max(T + RTT/2, T/2 + RTT) at any N; gloo's
ring takes 2(N-1) round trips.

A small vector goes one-shot: every worker sends all of it to all others, and each computes the mean itself. That takes
half a round trip plus (N-1) bytes / rate.

There is no rendezvous: a message is sent as soon as it is issued, and an early one waits in user space at the receiver.
Chunks are summed in the order of ranks, so all ranks get the same bits. Empty pieces are sent too, as headers only, so
that the owner of a piece sees if ranks disagree on the size. It then reports this to all ranks.

In an all-gather, each rank sends its vector to all others: half a round trip plus (N-1) bytes / rate.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import torch

from wanbench.workloads.comm.base import CommError, Vector
from wanbench.workloads.comm.mesh import ABORT, GATHER, MESSAGE, SCATTER, SHARE, WHOLE, Frame, Head, Mesh
from wanbench.workloads.comm.tensors import average, bytes_of, chunks_of
from wanbench.workloads.comm.work import DirectWork


@dataclass
class _Operation:
    """A collective in progress on this rank. It ends when nothing is `missing` and no frame is `unsent`.

    Attributes:
        kind: the kind of the frames that the other ranks send for it.
        chunks: by rank, where its chunks belong.
        unflushed: by chunk of this rank, the frames that still read from its memory.
        gathered: rank and number of every mean that has begun to arrive.
    """

    work: DirectWork
    kind: int
    chunks: Sequence[Sequence[torch.Tensor]]
    unflushed: list[int]
    missing: int
    unsent: int
    gathered: set[tuple[int, int]] = field(default_factory=set)

    def reads(self, chunk: int) -> bool:
        """Whether frames still read from the memory of a chunk, so that its mean must wait."""
        return chunk < len(self.unflushed) and self.unflushed[chunk] > 0


class DirectComm:
    """Workers with connections between all pairs; the module's docstring describes the collective.

    Args:
        mesh: connections to all peers, one or more per pair.
        timeout_s: an operation that takes longer raises CommError from its `wait`.
        one_shot_bytes: the largest vector that an all-reduce sends whole to every rank; the same on all ranks.
    """

    def __init__(self, mesh: Mesh, *, timeout_s: float, one_shot_bytes: int = 0) -> None:
        self.rank = mesh.rank
        self.world_size = mesh.world_size
        self._mesh, self._names = mesh, mesh.names
        self._timeout_s = timeout_s
        self._one_shot_bytes = one_shot_bytes
        self._lock = threading.Lock()
        self._sequence = 0
        self._sent = [0] * mesh.world_size
        self._received = [0] * mesh.world_size
        # Each rank starts with the next one. This spreads the load: no two ranks start with the same receiver.
        self._peers = [(mesh.rank + hop) % mesh.world_size for hop in range(1, mesh.world_size)]
        self._operations: dict[int, _Operation] = {}
        # Contributions to chunks that are not averaged yet: by operation, by kind and chunk, by rank.
        self._held: dict[int, dict[tuple[int, int], dict[int, tuple[bytearray, bool]]]] = {}
        self._early: dict[tuple[int, int], bytearray] = {}
        self._posted: dict[tuple[int, int], tuple[DirectWork, torch.Tensor]] = {}
        self._sending: set[DirectWork] = set()
        self._failed: str | None = None
        mesh.start(self._buffer_for, self._arrived, self.give_up)

    # ---------------------------------------------------------------- called by the worker

    def all_reduce(self, vector: Vector) -> DirectWork:
        """Compute the mean over all ranks, in place; the module's docstring says how long it takes."""
        tensor = cast(torch.Tensor, vector)
        if tensor.numel() * tensor.element_size() <= self._one_shot_bytes:
            return self._all_reduce_whole(tensor)
        chunks = [chunks_of(piece) for piece in tensor.tensor_split(self.world_size)]
        filled = sum(len(chunks[peer]) for peer in self._peers if chunks[peer][0].numel())
        unsent = sum(len(chunks[peer]) for peer in self._peers)
        own = len(chunks[self.rank])
        work, sequence = self._begin("all_reduce", SCATTER, chunks, [0] * own, filled + own, unsent)
        if sequence is not None:
            self._push(SCATTER, sequence, [(peer, chunks[peer]) for peer in self._peers])
            self._resume(sequence)
        return work

    def _all_reduce_whole(self, tensor: torch.Tensor) -> DirectWork:
        chunks, peers = chunks_of(tensor), len(self._peers)
        by_rank = [chunks if rank == self.rank else () for rank in range(self.world_size)]
        work, sequence = self._begin(
            "all_reduce", WHOLE, by_rank, [peers] * len(chunks), len(chunks), peers * len(chunks)
        )
        if sequence is not None:
            self._push(WHOLE, sequence, [(peer, chunks) for peer in self._peers])
            self._resume(sequence)
        return work

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> DirectWork:
        """Send the vector of each rank to all others at once."""
        tensor, into = cast(torch.Tensor, vector), cast(Sequence[torch.Tensor], parts)
        into[self.rank].copy_(tensor)
        peers = len(self._peers)
        work, sequence = self._begin("all_gather", SHARE, [(part,) for part in into], [], peers, peers)
        if sequence is not None:
            self._push(SHARE, sequence, [(peer, (tensor,)) for peer in self._peers])
            self._resume(sequence)
        return work

    def _begin(
        self,
        name: str,
        kind: int,
        chunks: Sequence[Sequence[torch.Tensor]],
        unflushed: list[int],
        missing: int,
        unsent: int,
    ) -> tuple[DirectWork, int | None]:
        """Begin a collective; return it with its number, or None if it is already complete."""
        work = DirectWork(name, self._timeout_s)
        with self._lock:
            if self._failed is not None or not self._peers:
                work.complete(self._failed)
                return work, None
            sequence = self._sequence
            self._sequence += 1
            self._operations[sequence] = _Operation(work, kind, chunks, unflushed, missing, unsent)
        return work, sequence

    def _push(self, kind: int, sequence: int, pieces: Sequence[tuple[int, Sequence[torch.Tensor]]]) -> None:
        """Send each rank its chunks, the first ones first."""
        frames = []
        for chunk in range(max(len(chunks) for _, chunks in pieces)):
            for peer, chunks in pieces:
                if chunk < len(chunks):
                    last = chunk == len(chunks) - 1
                    flushed = partial(self._flushed, sequence, chunk)
                    frames.append(
                        (peer, Frame(kind, sequence, bytes_of(chunks[chunk]), flushed, sequence, chunk, last))
                    )
        self._mesh.send_all(frames)

    def _resume(self, sequence: int) -> None:
        """Use what has arrived for an operation before this rank issued it."""
        with self._lock:
            early = list(self._held.get(sequence, ()))
        for kind, chunk in early:
            self._use(kind, sequence, chunk)

    def send(self, vector: Vector, dst: int) -> DirectWork:
        """Send a copy of `vector`; messages between two ranks keep their order. Done once the kernel has it."""
        work = DirectWork(f"send to rank {self._names[dst]}", self._timeout_s)
        payload = memoryview(bytes(bytes_of(cast(torch.Tensor, vector))))
        sequence = self._sent[dst]
        self._sent[dst] += 1
        with self._lock:
            if self._failed is not None:
                work.complete(self._failed)
                return work
            self._sending.add(work)
        self._mesh.send_all([(dst, Frame(MESSAGE, sequence, payload, lambda: self._finish_send(work), self._sequence))])
        return work

    def recv(self, vector: Vector, src: int) -> DirectWork:
        """Receive the next message from `src` into `vector`."""
        work = DirectWork(f"recv from rank {self._names[src]}", self._timeout_s)
        key = (src, self._received[src])
        self._received[src] += 1
        with self._lock:
            early = self._early.pop(key, None)
            if early is None and self._failed is None:
                self._posted[key] = (work, cast(torch.Tensor, vector))
                return work
        if early is None:
            work.complete(self._failed)
        else:
            self._deliver(work, cast(torch.Tensor, vector), early)
        return work

    def close(self) -> None:
        """Close all connections."""
        self._mesh.close()

    # ---------------------------------------------------------------- called by the mesh's I/O thread

    def _buffer_for(self, head: Head, peer: int) -> memoryview:
        """Return the memory for the body of an arriving frame; a mean goes straight into the vector."""
        if head.kind > WHOLE:
            raise CommError(f"rank {self._names[peer]} sent a frame of kind {head.kind}; expected 0 to {WHOLE}")
        if head.kind != GATHER:
            try:
                return memoryview(bytearray(head.nbytes))
            except (MemoryError, OverflowError):
                raise CommError(
                    f"rank {self._names[peer]} sent a frame of {head.nbytes} bytes, more than fits"
                ) from None
        with self._lock:
            operation = self._operations.get(head.sequence)
        if operation is None or operation.kind != SCATTER:
            raise CommError(
                self._failed or f"rank {self._names[peer]} answered an all_reduce that this rank did not issue"
            )
        chunks = operation.chunks[peer]
        if head.chunk >= len(chunks) or (peer, head.chunk) in operation.gathered:
            raise CommError(
                f"rank {self._names[peer]} sent the mean of chunk {head.chunk}, which this rank does not expect"
            )
        operation.gathered.add((peer, head.chunk))
        expected = bytes_of(chunks[head.chunk])
        if len(expected) != head.nbytes:
            raise CommError(f"rank {self._names[peer]} sent a mean of {head.nbytes} bytes; expected {len(expected)}")
        return expected

    def _arrived(self, head: Head, peer: int, body: memoryview) -> None:
        if head.kind == GATHER:
            self._count_down(head.sequence, missing=1)
        elif head.kind in (SCATTER, WHOLE, SHARE):
            with self._lock:
                chunks = self._held.setdefault(head.sequence, {})
                chunks.setdefault((head.kind, head.chunk), {})[peer] = cast(bytearray, body.obj), head.last
            self._use(head.kind, head.sequence, head.chunk)
        elif head.kind == ABORT:
            raise CommError(bytes(body).decode())
        else:
            with self._lock:
                posted = self._posted.pop((peer, head.sequence), None)
                if posted is None:
                    self._early[peer, head.sequence] = cast(bytearray, body.obj)
                    return
            self._deliver(posted[0], posted[1], cast(bytearray, body.obj))

    def _use(self, kind: int, sequence: int, chunk: int) -> None:
        """Use what has arrived of a chunk, if its operation is issued here and there is enough."""
        with self._lock:
            operation = self._operations.get(sequence)
            held = self._held.get(sequence, {})
            if operation is None or (kind, chunk) not in held:
                return
            arrived = held[kind, chunk]
            averaged = kind == operation.kind != SHARE
            if averaged and (len(arrived) < len(self._peers) or operation.reads(chunk)):
                return
            del held[kind, chunk]
        if self._wrong_size(operation, kind, sequence, chunk, arrived):
            return
        if kind == SHARE:
            self._copy(operation, arrived)
            self._count_down(sequence, missing=len(arrived))
            return
        own = operation.chunks[self.rank][chunk]
        average(own, self.rank, {peer: body for peer, (body, _) in arrived.items()})
        if kind == SCATTER and own.numel():
            self._send_mean(operation, sequence, chunk)
        self._count_down(sequence, missing=1)

    def _wrong_size(
        self, operation: _Operation, kind: int, sequence: int, chunk: int, arrived: Mapping[int, tuple[bytearray, bool]]
    ) -> bool:
        """Fail if ranks disagree on what they reduce or gather."""
        for peer, (body, last) in sorted(arrived.items()):
            chunks = operation.chunks[peer if kind == SHARE else self.rank]
            known = kind == operation.kind and chunk < len(chunks)
            expected = chunks[chunk].numel() * chunks[chunk].element_size() if known else None
            if (len(body), last) != (expected, chunk == len(chunks) - 1):
                what = operation.work.name
                wanted = "nothing there" if expected is None else expected
                sizes = (
                    f"rank {self._names[peer]} sent {len(body)} bytes; rank {self._names[self.rank]} expected {wanted}"
                )
                self.give_up(f"ranks disagree on the size of {what} {sequence}: {sizes}")
                return True
        return False

    def _copy(self, operation: _Operation, arrived: Mapping[int, tuple[bytearray, bool]]) -> None:
        for peer, (body, _) in arrived.items():
            if body:
                part = operation.chunks[peer][0]
                part.copy_(torch.frombuffer(body, dtype=part.dtype))

    def _send_mean(self, operation: _Operation, sequence: int, chunk: int) -> None:
        """Send the mean of a chunk to all ranks."""
        with self._lock:
            operation.unsent += len(self._peers)
        chunks = operation.chunks[self.rank]
        body, last = bytes_of(chunks[chunk]), chunk == len(chunks) - 1
        sent = partial(self._count_down, sequence, unsent=1)
        self._mesh.send_all(
            [(peer, Frame(GATHER, sequence, body, sent, sequence, chunk, last)) for peer in self._peers]
        )

    def _flushed(self, sequence: int, chunk: int) -> None:
        """Note that the kernel has a frame. The mean of a chunk replaces it only when all ranks have been sent it."""
        with self._lock:
            operation = self._operations.get(sequence)
            whole = operation is not None and operation.kind == WHOLE
            if operation is not None and whole:
                operation.unflushed[chunk] -= 1
        if whole:
            self._use(WHOLE, sequence, chunk)
        self._count_down(sequence, unsent=1)

    def _finish_send(self, work: DirectWork) -> None:
        with self._lock:
            self._sending.discard(work)
        work.complete()

    def _count_down(self, sequence: int, *, missing: int = 0, unsent: int = 0) -> None:
        """Count parts and frames of an operation. It ends when all have arrived and all have been sent."""
        with self._lock:
            operation = self._operations.get(sequence)
            if operation is None:  # it has already failed
                return
            operation.missing -= missing
            operation.unsent -= unsent
            if operation.missing or operation.unsent:
                return
            del self._operations[sequence]
            self._held.pop(sequence, None)
        operation.work.complete()

    def _deliver(self, work: DirectWork, tensor: torch.Tensor, body: bytearray) -> None:
        nbytes = tensor.numel() * tensor.element_size()
        if len(body) != nbytes:
            work.complete(f"the message has {len(body)} bytes; expected {nbytes}, the size of the buffer")
            return
        if body:
            tensor.view(-1).copy_(torch.frombuffer(body, dtype=tensor.dtype))
        work.complete()

    def give_up(self, reason: str) -> None:
        """Fail all pending operations, here and at the peers, because a connection broke or ranks disagree.

        If one rank gives up an operation, it can never end on the others. The first reason is kept.
        """
        with self._lock:
            if self._failed is not None:
                return
            self._failed = reason
            pending = [operation.work for operation in self._operations.values()]
            pending += [work for work, _ in self._posted.values()]
            pending += self._sending
            self._operations.clear()
            self._held.clear()
            self._posted.clear()
            self._sending.clear()
        for work in pending:
            work.complete(reason)
        body = memoryview(reason.encode())
        self._mesh.send_all([(peer, Frame(ABORT, 0, body, lambda: None, -1)) for peer in self._peers])
