"""The `direct` collective: every worker sends its pieces to all others at once, over plain TCP.

An all-reduce is a reduce-scatter and an all-gather without rounds::

    rank i owns piece i.   i sends piece j of its vector to rank j          (half a round trip)
    rank j averages its N pieces and sends the result to all ranks          (half a round trip)

It takes one round trip plus bytes / rate at any N; gloo's ring takes 2(N-1) round trips. There is no rendezvous: a
message is sent as soon as it is issued, and an early one waits in user space at the receiver. The owner of a piece
averages it once, in the order of ranks, so all ranks get the same bits. Empty pieces are sent too, as headers only, so
the owner of a piece sees if ranks disagree on the size. It then reports this to all ranks.

In an all-gather, each rank sends its vector to all others: half a round trip plus (N-1) bytes / rate.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from wanbench.workloads.comm.base import CommError, Vector
from wanbench.workloads.comm.mesh import ABORT, GATHER, MESSAGE, SCATTER, SHARE, Frame, Mesh


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor, without a copy."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise CommError("direct: a message must be a contiguous CPU tensor")
    size = tensor.numel() * tensor.element_size()
    memory: Any = (ctypes.c_char * size).from_address(tensor.data_ptr())
    memory.tensor = tensor  # keeps it alive as long as the I/O thread can access it, even if the operation fails
    return memoryview(memory).cast("B")


class DirectWork:
    """An operation of the direct comm. The mesh's I/O thread completes it."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._event = threading.Event()
        self._error: str | None = None
        self.ended_ns: int | None = None

    def done(self) -> bool:
        """True once `wait` would return, or raise, at once."""
        return self._event.is_set()

    def wait(self) -> None:
        """Block until finished. Raises: CommError if a peer is gone or the operation took too long."""
        if not self._event.wait(self._timeout_s):
            raise CommError(f"direct: {self._name} took longer than {self._timeout_s:g} s")
        if self._error is not None:
            raise CommError(f"direct: {self._name} failed: {self._error}")

    def wait_for(self, seconds: float) -> bool:
        if self._event.wait(seconds):
            self.wait()
        return self._event.is_set()

    def complete(self, error: str | None = None) -> None:
        """End the operation. Only the I/O thread calls this."""
        self._error = error
        self.ended_ns = time.monotonic_ns()
        self._event.set()


@dataclass
class _Operation:
    """A collective in progress on this rank. It ends when no part is `missing` and no frame is `unsent`."""

    work: DirectWork
    parts: Sequence[torch.Tensor]
    missing: int
    unsent: int


class DirectComm:
    """Workers with connections between all pairs; the module's docstring describes the collective.

    Args:
        mesh: connections to all peers, one or more per pair.
        timeout_s: an operation that takes longer raises CommError from its `wait`.
    """

    def __init__(self, mesh: Mesh, *, timeout_s: float) -> None:
        self.rank = mesh.rank
        self.world_size = mesh.world_size
        self._mesh = mesh
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._sequence = 0
        self._sent = [0] * mesh.world_size
        self._received = [0] * mesh.world_size
        # Each rank starts with the next one. This spreads the load: no two ranks start with the same receiver.
        self._peers = [(mesh.rank + hop) % mesh.world_size for hop in range(1, mesh.world_size)]
        self._operations: dict[int, _Operation] = {}
        self._held: dict[tuple[int, int], dict[int, bytearray]] = {}  # parts received early, by kind and operation
        self._early: dict[tuple[int, int], bytearray] = {}
        self._posted: dict[tuple[int, int], tuple[DirectWork, torch.Tensor]] = {}
        self._sending: set[DirectWork] = set()
        self._failed: str | None = None
        mesh.start(self._buffer_for, self._arrived, self._fail)

    # ---------------------------------------------------------------- called by the worker

    def all_reduce(self, vector: Vector) -> DirectWork:
        """Compute the mean over all ranks, in place, in one round trip plus bytes / rate."""
        pieces = cast(torch.Tensor, vector).tensor_split(self.world_size)
        work, sequence = self._begin("all_reduce", pieces, sum(1 for piece in pieces if piece.numel()))
        if sequence is not None:
            self._push(SCATTER, sequence, [pieces[peer] for peer in self._peers])
            self._try_reduce(sequence)
        return work

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> DirectWork:
        """Send the vector of each rank to all others at once."""
        tensor, into = cast(torch.Tensor, vector), cast(Sequence[torch.Tensor], parts)
        into[self.rank].copy_(tensor)
        work, sequence = self._begin("all_gather", into, len(self._peers))
        if sequence is not None:
            self._push(SHARE, sequence, [tensor] * len(self._peers))
            with self._lock:
                early = self._held.pop((SHARE, sequence), {})
            for peer, part in early.items():
                self._take_shared(sequence, peer, part)
        return work

    def _begin(self, name: str, parts: Sequence[torch.Tensor], missing: int) -> tuple[DirectWork, int | None]:
        """Begin a collective; return it with its number, or None if it is already complete."""
        work = DirectWork(name, self._timeout_s)
        with self._lock:
            if self._failed is not None or not self._peers:
                work.complete(self._failed)
                return work, None
            sequence = self._sequence
            self._sequence += 1
            self._operations[sequence] = _Operation(work, parts, missing, len(self._peers))
        return work, sequence

    def _push(self, kind: int, sequence: int, tensors: Sequence[torch.Tensor]) -> None:
        """Send each peer its tensor of a collective."""

        def flushed() -> None:
            self._count_down(sequence, unsent=1)

        frames = [Frame(kind, sequence, bytes_of(tensor), flushed) for tensor in tensors]
        self._mesh.send_all(zip(self._peers, frames, strict=True))

    def send(self, vector: Vector, dst: int) -> DirectWork:
        """Send a copy of `vector`; messages between two ranks keep their order. Done once the kernel has it."""
        work = DirectWork(f"send to rank {dst}", self._timeout_s)
        payload = memoryview(bytes(bytes_of(cast(torch.Tensor, vector))))
        sequence = self._sent[dst]
        self._sent[dst] += 1
        with self._lock:
            if self._failed is not None:
                work.complete(self._failed)
                return work
            self._sending.add(work)
        self._mesh.send_all([(dst, Frame(MESSAGE, sequence, payload, lambda: self._finish_send(work)))])
        return work

    def recv(self, vector: Vector, src: int) -> DirectWork:
        """Receive the next message from `src` into `vector`."""
        work = DirectWork(f"recv from rank {src}", self._timeout_s)
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

    def _buffer_for(self, kind: int, sequence: int, peer: int, nbytes: int) -> memoryview:
        """Return the memory for the body of an arriving frame; a gathered piece goes straight into the vector."""
        if kind == GATHER:
            with self._lock:
                operation = self._operations.get(sequence)
            if operation is None:
                raise CommError(self._failed or f"rank {peer} answered an all_reduce that this rank did not issue")
            piece = bytes_of(operation.parts[peer])
            if len(piece) != nbytes:
                raise CommError(f"rank {peer} sent a reduced piece of {nbytes} bytes; expected {len(piece)}")
            return piece
        return memoryview(bytearray(nbytes))

    def _arrived(self, kind: int, sequence: int, peer: int, body: memoryview) -> None:
        if kind == GATHER:
            self._count_down(sequence, missing=1)
        elif kind in (SCATTER, SHARE):
            part = cast(bytearray, body.obj)
            with self._lock:
                early = kind == SCATTER or sequence not in self._operations
                if early:
                    self._held.setdefault((kind, sequence), {})[peer] = part
            if kind == SCATTER:
                self._try_reduce(sequence)
            elif not early:
                self._take_shared(sequence, peer, part)
        elif kind == ABORT:
            raise CommError(bytes(body).decode())
        else:
            with self._lock:
                posted = self._posted.pop((peer, sequence), None)
                if posted is None:
                    self._early[peer, sequence] = cast(bytearray, body.obj)
                    return
            self._deliver(posted[0], posted[1], cast(bytearray, body.obj))

    def _try_reduce(self, sequence: int) -> None:
        """Average this rank's piece once all contributions have arrived and the operation is issued here."""
        with self._lock:
            operation = self._operations.get(sequence)
            arrived = self._held.get((SCATTER, sequence), {})
            if operation is None or len(arrived) < len(self._peers):
                return
            del self._held[SCATTER, sequence]
        own = operation.parts[self.rank]
        nbytes = own.numel() * own.element_size()
        for rank, contribution in sorted(arrived.items()):
            if len(contribution) != nbytes:
                pieces = f"rank {rank} sent a piece of {len(contribution)} bytes; rank {self.rank} expected {nbytes}"
                self._fail(f"ranks disagree on the size of all_reduce {sequence}: {pieces}")
                return
        if not nbytes:
            return
        parts = [
            own if rank == self.rank else torch.frombuffer(arrived[rank], dtype=own.dtype)
            for rank in range(self.world_size)
        ]
        total = parts[0].clone()
        for part in parts[1:]:
            total.add_(part)
        own.copy_(total.div_(self.world_size))
        with self._lock:
            operation.unsent += len(self._peers)
        self._push(GATHER, sequence, [own] * len(self._peers))
        self._count_down(sequence, missing=1)

    def _take_shared(self, sequence: int, peer: int, body: bytearray) -> None:
        """Take a peer's vector for an all-gather that is issued here."""
        with self._lock:
            operation = self._operations.get(sequence)
        if operation is None:  # it has already failed
            return
        part = operation.parts[peer]
        nbytes = part.numel() * part.element_size()
        if len(body) != nbytes:
            sizes = f"rank {peer} sent {len(body)} bytes; rank {self.rank} expected {nbytes}"
            self._fail(f"ranks disagree on the size of all_gather {sequence}: {sizes}")
            return
        if nbytes:
            part.copy_(torch.frombuffer(body, dtype=part.dtype))
        self._count_down(sequence, missing=1)

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
        operation.work.complete()

    def _deliver(self, work: DirectWork, tensor: torch.Tensor, body: bytearray) -> None:
        nbytes = tensor.numel() * tensor.element_size()
        if len(body) != nbytes:
            work.complete(f"the message has {len(body)} bytes; expected {nbytes}, the size of the buffer")
            return
        if body:
            tensor.view(-1).copy_(torch.frombuffer(body, dtype=tensor.dtype))
        work.complete()

    def _fail(self, reason: str) -> None:
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
            self._posted.clear()
            self._sending.clear()
        for work in pending:
            work.complete(reason)
        body = memoryview(reason.encode())
        self._mesh.send_all([(peer, Frame(ABORT, 0, body, lambda: None)) for peer in self._peers])
