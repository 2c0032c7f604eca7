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

In a transfer, each rank sends other ranks a tensor each: half a round trip plus the bytes / rate. An all-gather is one.

A rank that closes its connections says goodbye. The others then finish what it took part in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch

from wanbench.workloads.comm.base import CommError, Vector, Work
from wanbench.workloads.comm.mailbox import Mailbox, Outbox
from wanbench.workloads.comm.mesh import ABORT, GATHER, HOP, LEAVE, MESSAGE, SCATTER, SHARE, WHOLE, Frame, Head, Mesh
from wanbench.workloads.comm.operation import LARGEST_REASON_BYTES, Held, Operation, Part, reason_of, unfit
from wanbench.workloads.comm.tensors import MEAN, Reduction, bytes_of, chunks_of, described, reduce
from wanbench.workloads.comm.work import DirectWork

_LEFT = "this rank has left the group"


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
        self._mesh, self.names = mesh, mesh.names
        self.timeout_s = timeout_s
        self._one_shot_bytes = one_shot_bytes
        self._lock = threading.Lock()
        self._sequence = 0
        # Each rank starts with the next one. This spreads the load: no two ranks start with the same receiver.
        self._peers = [(mesh.rank + hop) % mesh.world_size for hop in range(1, mesh.world_size)]
        self._operations: dict[int, Operation] = {}
        self._held: dict[int, Held] = {}  # by operation
        self._mailbox, self._outbox = Mailbox(mesh.names), Outbox()
        self._left: set[int] = set()
        self._failed: str | None = None
        mesh.start(self._buffer_for, self._arrived, self.give_up)

    # ---------------------------------------------------------------- called by the worker

    def all_reduce(self, vector: Vector, reduction: Reduction = MEAN) -> DirectWork:
        """Reduce over all ranks, in place; the module's docstring says how long it takes."""
        tensor = cast(torch.Tensor, vector)
        if tensor.numel() * tensor.element_size() <= self._one_shot_bytes:
            return self._all_reduce_whole(tensor, reduction)
        return self._reduce("all_reduce", tensor.tensor_split(self.world_size), reduction, spreads=True)

    def _all_reduce_whole(self, tensor: torch.Tensor, reduction: Reduction) -> DirectWork:
        chunks = chunks_of(tensor)
        by_rank = [chunks if rank == self.rank else () for rank in range(self.world_size)]
        due = [len(chunks) * (rank != self.rank) for rank in range(self.world_size)]
        unflushed = [len(self._peers)] * len(chunks)
        return self._begin(
            lambda work: Operation(work, WHOLE, by_rank, due, self._none(), due.copy(), unflushed, reduction),
            "all_reduce",
            [(peer, chunks) for peer in self._peers],
        )

    def reduce_scatter(
        self, pieces: Sequence[torch.Tensor], reduction: Reduction = MEAN, name: str = "reduce_scatter"
    ) -> DirectWork:
        """Reduce the piece of each rank over all ranks: in place, on this rank its own piece only.

        Args:
            pieces: by rank, flat tensors of any size, which are the same on all ranks.
            reduction: how; the same on all ranks.
            name: what messages call it, and the same on all ranks.
        """
        return self._reduce(name, pieces, reduction, spreads=False)

    def _reduce(self, name: str, pieces: Sequence[torch.Tensor], reduction: Reduction, *, spreads: bool) -> DirectWork:
        chunks = [chunks_of(piece) for piece in pieces]
        own = len(chunks[self.rank])
        due = [own] * self.world_size
        unsent = [len(of_rank) for of_rank in chunks]
        owed = [len(of_rank) * spreads * (of_rank[0].numel() > 0) for of_rank in chunks]
        due[self.rank] = owed[self.rank] = unsent[self.rank] = 0
        return self._begin(
            lambda work: Operation(work, SCATTER, chunks, due, owed, unsent, [0] * own, reduction, spreads),
            name,
            [(peer, chunks[peer]) for peer in self._peers],
        )

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> DirectWork:
        """Send the vector of each rank to all others at once."""
        tensor, into = cast(torch.Tensor, vector), cast(Sequence[torch.Tensor], parts)
        into[self.rank].copy_(tensor)
        return self.transfer(
            "all_gather", dict.fromkeys(self._peers, tensor), {peer: into[peer] for peer in self._peers}
        )

    def transfer(
        self,
        name: str,
        sends: Mapping[int, torch.Tensor],
        receives: Mapping[int, torch.Tensor],
        *,
        after: DirectWork | None = None,
    ) -> DirectWork:
        """Send tensors to other ranks, and receive from others. All ranks take part, even if with nothing.

        Args:
            name: what messages call it, and the same on all ranks.
            sends: by receiver, what this rank sends. receives: by sender, what it fills.
            after: an operation that must have ended before anything is sent.
        """
        into = [(receives[rank],) if rank in receives else () for rank in range(self.world_size)]
        due = [int(rank in receives) for rank in range(self.world_size)]
        unsent = [int(rank in sends) for rank in range(self.world_size)]
        return self._begin(
            lambda work: Operation(work, SHARE, into, due, self._none(), unsent),
            name,
            [(peer, (sends[peer],)) for peer in self._peers if peer in sends],
            after,
        )

    def _begin(
        self,
        operation_of: Callable[[DirectWork], Operation],
        name: str,
        pieces: Sequence[tuple[int, Sequence[torch.Tensor]]],
        after: DirectWork | None = None,
    ) -> DirectWork:
        """Begin a collective, and send each rank its chunks."""
        with self._lock:
            sequence = self._sequence
            self._sequence += 1
            work = DirectWork(name, self.timeout_s, partial(self._late, sequence, after), self.give_up)
            operation = operation_of(work)
            reason = self._failed or self._without(operation, sequence, [peer for peer, _ in pieces])
            if reason is None and not operation.ended():
                self._operations[sequence] = operation
        if reason is not None or operation.ended():
            work.complete(reason)
        elif after is None:
            self._push(operation, sequence, pieces)
            self._resume(sequence)
        else:
            after.then(lambda error: None if error else self._push(operation, sequence, pieces))
            self._resume(sequence)
        return work

    def _none(self) -> list[int]:
        return [0] * self.world_size

    def _without(self, operation: Operation, sequence: int, receivers: Sequence[int]) -> str | None:
        """The reason why an operation cannot end: a rank that it needs has left."""
        held = self._held.get(sequence, {})
        needed = (rank for rank in sorted(self._left) if rank in receivers or operation.needs(rank, held))
        return next(map(self._goodbye, needed), None)

    def _goodbye(self, rank: int) -> str:
        return f"rank {self.names[rank]} has left the group"

    def _late(self, sequence: int, after: DirectWork | None, patience_s: float) -> Sequence[int]:
        """The ranks that an operation waits for: those that have sent nothing, rather than those that wait as well."""
        if after is not None and not after.done():
            return after.late(patience_s)
        with self._lock:
            operation = self._operations.get(sequence)
            late = [] if operation is None else operation.late(self._held.get(sequence, {}))
        if operation is not None and not late:
            operation.work.ends_within(patience_s)  # who waits for a rank that has sent nothing speaks first
            late = operation.owing()
        return [self.names[rank] for rank in late]

    def _push(self, operation: Operation, sequence: int, pieces: Sequence[tuple[int, Sequence[torch.Tensor]]]) -> None:
        """Send each rank its chunks, the first ones first."""
        frames = []
        for chunk in range(max((len(chunks) for _, chunks in pieces), default=0)):
            for peer, chunks in pieces:
                if chunk < len(chunks):
                    body, last = bytes_of(chunks[chunk]), chunk == len(chunks) - 1
                    flushed = partial(self._flushed, sequence, peer, chunk)
                    about = b"" if chunk else operation.about(chunks).encode()
                    frames.append((peer, Frame(operation.kind, sequence, body, flushed, sequence, chunk, last, about)))
        self._mesh.send_all(frames)

    def _resume(self, sequence: int) -> None:
        """Use what has arrived for an operation before this rank issued it."""
        with self._lock:
            early = list(self._held.get(sequence, ()))
        for kind, chunk in early:
            self._use(kind, sequence, chunk)

    def send(self, vector: Vector, dst: int, tag: int = 0, about: str = "message") -> DirectWork:
        """Send a copy of `vector`. Messages of one tag keep their order. Done once the kernel has it.

        The receiver must say the same `about` it, and take the same type.
        """
        work = DirectWork(f"send to rank {self.names[dst]}", self.timeout_s, give_up=self.give_up)
        tensor = cast(torch.Tensor, vector)
        payload, about = memoryview(bytes(bytes_of(tensor))), described(about, [tensor])
        number = self._outbox.add(work, dst, tag)
        if number is not None and dst == self.rank:
            self._mailbox.arrived(dst, tag, number, bytearray(payload), about)
            self._outbox.left(work)
        elif number is not None:
            flushed = partial(self._outbox.left, work)
            frame = Frame(MESSAGE, number, payload, flushed, self._sequence, tag, about=about.encode())
            self._mesh.send_all([(dst, frame)])
        return work

    def recv(self, vector: Vector, src: int | None, tag: int = 0, about: str = "message") -> DirectWork:
        """Receive the next message with this tag from `src`, or from any rank, into `vector`."""
        sources = self._peers if src is None else [src]
        sender = "any rank" if src is None else f"rank {self.names[src]}"
        work = DirectWork(f"recv from {sender}", self.timeout_s, give_up=self.give_up)
        self._mailbox.receive(work, cast(torch.Tensor, vector), sources, tag, about)
        return work

    @property
    def failed(self) -> bool:
        """Whether this rank has given up, so that all later operations fail."""
        return self._failed is not None

    def now(self) -> int:
        """Nanoseconds of the host's monotonic clock."""
        return time.monotonic_ns()

    def first(self, receives: Mapping[int, Work], until_ns: int | None = None) -> int | None:
        seconds = None if until_ns is None else max(0.0, (until_ns - self.now()) / 1e9)
        return self._mailbox.first({key: cast(DirectWork, work) for key, work in receives.items()}, seconds)

    def background(self, body: Callable[[Any], None]) -> DirectWork:
        work = DirectWork("background", self.timeout_s, give_up=self.give_up)

        def run() -> None:
            reason = None
            try:
                body(self)
            except Exception as error:
                reason = f"the background of rank {self.names[self.rank]} failed: {error}"
                self.give_up(reason)
            work.complete(reason)

        threading.Thread(target=run, name="background", daemon=True).start()
        return work

    def leave(self) -> None:
        """Say goodbye to all ranks once they have what this rank sent, then close. They finish without this rank."""
        failed = self._failed is not None
        self._end_all(_LEFT)  # nothing may follow the goodbye
        if not failed:
            self._mesh.say_goodbye(self.timeout_s)
        self._mesh.close()

    def close(self) -> None:
        """Close all connections."""
        self._end_all(_LEFT)
        self._mesh.close()

    # ---------------------------------------------------------------- called by the mesh's I/O thread

    def _buffer_for(self, head: Head, peer: int) -> memoryview:
        """Return the memory for the body of an arriving frame; a mean goes straight into the vector."""
        if (wrong := unfit(head)) is not None:
            raise CommError(f"rank {self.names[peer]} sent {wrong}")
        if head.kind != GATHER:
            try:
                return memoryview(bytearray(head.nbytes))
            except (MemoryError, OverflowError):
                raise CommError(
                    f"rank {self.names[peer]} sent a frame of {head.nbytes} bytes, more than fits"
                ) from None
        with self._lock:
            operation = self._operations.get(head.sequence)
        if operation is None or not operation.spreads:
            raise CommError(
                self._failed or f"rank {self.names[peer]} answered an all_reduce that this rank did not issue"
            )
        chunks = operation.chunks[peer]
        if head.chunk >= len(chunks) or not operation.owed[peer] or (peer, head.chunk) in operation.gathered:
            raise CommError(
                f"rank {self.names[peer]} sent the mean of chunk {head.chunk}, which this rank does not expect"
            )
        operation.gathered.add((peer, head.chunk))
        expected = bytes_of(chunks[head.chunk])
        if len(expected) != head.nbytes:
            raise CommError(f"rank {self.names[peer]} sent a mean of {head.nbytes} bytes; expected {len(expected)}")
        return expected

    def _arrived(self, head: Head, peer: int, body: memoryview) -> None:
        if head.kind == GATHER:
            self._count_down(head.sequence, owed=peer)
            return
        whole, size = cast(bytearray, body.obj), head.nbytes - head.about
        body.release()  # otherwise its memory cannot be cut
        about = whole[size:].decode(errors="replace")
        del whole[size:]
        if head.kind in (SCATTER, WHOLE, SHARE, HOP):
            self._hold(head, peer, Part(whole, head.last, about))
            self._use(head.kind, head.sequence, head.chunk, peer)
        elif head.kind == ABORT:
            raise CommError(reason_of(whole) or f"rank {self.names[peer]} gave up without a reason")
        elif head.kind == LEAVE:
            self._has_left(peer)
        else:
            self._mailbox.arrived(peer, head.chunk, head.sequence, whole, about)

    def _has_left(self, peer: int) -> None:
        """A rank has left, and sends nothing more. What still needs it can never end."""
        with self._lock:
            self._left.add(peer)
            held = self._held
            stuck = any(each.needs(peer, held.get(number, {})) for number, each in self._operations.items())
        self._outbox.lose(peer, self._goodbye(peer))
        self._mailbox.lose(peer, self._goodbye(peer))
        if stuck:
            raise CommError(self._goodbye(peer))

    def _hold(self, head: Head, peer: int, part: Part) -> None:
        """Keep what has arrived for an operation. Raises: CommError: it has ended."""
        with self._lock:
            if self._failed is not None:
                return
            operation = self._operations.get(head.sequence)
            held = self._held.setdefault(head.sequence, {})
            frames = held.setdefault((head.kind, head.chunk), {})
            twice = peer in frames
            frames[peer] = part
            # Without a rank that has left, this rank can have refused an operation that others have begun.
            ended = operation is None and head.sequence < self._sequence and not self._left
            surplus = operation is not None and operation.surplus(held, peer)
        if ended or surplus or twice:
            what = f": {part.about}" if part.about else ""
            raise CommError(f"rank {self.names[peer]} sent more than operation {head.sequence} needs{what}")

    def _use(self, kind: int, sequence: int, chunk: int, new: int | None = None) -> None:
        """Use what has arrived of a chunk, if its operation is issued here and there is enough.

        `new` is the rank of a frame that has just arrived. Its size is checked although others are still missing.
        """
        with self._lock:
            operation = self._operations.get(sequence)
            held = self._held.get(sequence, {})
            if operation is None or (kind, chunk) not in held:
                return
            arrived = held[kind, chunk]
            reduced = kind == operation.kind and kind in (SCATTER, WHOLE)
            waits = reduced and (len(arrived) < len(self._peers) or operation.reads(chunk))
            if not waits:
                del held[kind, chunk]
                operation.take(arrived)
            unchecked = {peer: frame for peer, frame in arrived.items() if not waits or new in (None, peer)}
        reason = operation.disagreement(self.rank, self.names, kind, sequence, chunk, unchecked)
        if reason is not None:
            self.give_up(reason)
        if reason is not None or waits:
            return
        self._take(operation, kind, sequence, chunk, arrived)
        self._count_down(sequence, used=1)

    def _take(self, operation: Operation, kind: int, sequence: int, chunk: int, arrived: Mapping[int, Part]) -> None:
        """Use frames that fit."""
        if kind == SHARE:
            operation.receive(arrived)
        else:
            own = operation.chunks[self.rank][chunk]
            reduce(own, self.rank, {peer: part.body for peer, part in arrived.items()}, operation.reduction)
            if operation.spreads and own.numel():
                self._send_result(operation, sequence, chunk)

    def _send_result(self, operation: Operation, sequence: int, chunk: int) -> None:
        """Send the result of a chunk to all ranks."""
        with self._lock:
            for peer in self._peers:
                operation.unsent[peer] += 1
        chunks = operation.chunks[self.rank]
        body, last = bytes_of(chunks[chunk]), chunk == len(chunks) - 1
        sent = {peer: partial(self._count_down, sequence, unsent=peer) for peer in self._peers}
        self._mesh.send_all(
            [(peer, Frame(GATHER, sequence, body, sent[peer], sequence, chunk, last)) for peer in self._peers]
        )

    def _flushed(self, sequence: int, peer: int, chunk: int) -> None:
        """Note that the kernel has a frame. The mean of a chunk replaces it only when all ranks have been sent it."""
        with self._lock:
            operation = self._operations.get(sequence)
            whole = operation is not None and operation.kind == WHOLE
            if operation is not None and whole:
                operation.unflushed[chunk] -= 1
        if whole:
            self._use(WHOLE, sequence, chunk)
        self._count_down(sequence, unsent=peer)

    def _count_down(self, sequence: int, *, used: int = 0, owed: int | None = None, unsent: int | None = None) -> None:
        """Count frames of an operation. It ends when all have been used and all have been sent."""
        with self._lock:
            operation = self._operations.get(sequence)
            if operation is None:  # it has already failed
                return
            operation.using -= used
            if owed is not None:
                operation.owed[owed] -= 1
            if unsent is not None:
                operation.unsent[unsent] -= 1
            if not operation.ended():
                return
            del self._operations[sequence]
            self._held.pop(sequence, None)
        operation.work.complete()

    def give_up(self, reason: str) -> None:
        """Fail all pending operations, here and at the peers, because a connection broke or ranks disagree.

        If one rank gives up an operation, it can never end on the others. The first reason is kept.
        """
        if self._end_all(reason):
            body = memoryview(reason.encode()[:LARGEST_REASON_BYTES])
            self._mesh.send_all([(peer, Frame(ABORT, 0, body, lambda: None, -1)) for peer in self._peers])

    def _end_all(self, reason: str) -> bool:
        """Fail all pending operations here, and all later ones; false if they have failed already."""
        with self._lock:
            if self._failed is not None:
                return False
            self._failed = reason
            pending = [operation.work for operation in self._operations.values()]
            self._operations.clear()
            self._held.clear()
        for work in pending:
            work.complete(reason)
        for peer in (self.rank, *self._peers):
            self._outbox.lose(peer, reason)
            self._mailbox.lose(peer, reason)
        return True
