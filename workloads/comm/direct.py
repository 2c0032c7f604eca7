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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch

from wanbench.workloads.comm.base import CommError, Vector, Work, nbytes_of
from wanbench.workloads.comm.blocks import LARGEST_BYTES
from wanbench.workloads.comm.mailbox import Mailbox
from wanbench.workloads.comm.mesh import ABORT, GATHER, HOP, LEAVE, MESSAGE, SCATTER, SHARE, WHOLE, Frame, Head, Mesh
from wanbench.workloads.comm.tensors import MEAN, Reduction, bytes_of, chunks_of, described, reduce
from wanbench.workloads.comm.work import DirectWork

Chunks = Sequence[torch.Tensor]
_LEFT = "this rank has left the group"
_LARGEST_REASON_BYTES = 64 << 10
_LARGEST_BODY = {
    SCATTER: LARGEST_BYTES,
    WHOLE: LARGEST_BYTES,
    HOP: LARGEST_BYTES,
    ABORT: _LARGEST_REASON_BYTES,
    LEAVE: 0,
}


class Part(NamedTuple):
    """A chunk that has arrived: its bytes, whether it is the last one, and, with the first one, what its rank does."""

    body: bytearray
    last: bool
    about: str


# What has arrived for an operation and is not used yet: by kind and number, then by rank.
Held = dict[tuple[int, int], dict[int, Part]]


class Send(NamedTuple):
    """A chunk that this rank sends."""

    kind: int
    peer: int
    number: int
    chunk: torch.Tensor
    last: bool


class Operation:
    """A collective in progress on one rank. It counts its frames, and ends when none is due, owed or unsent.

    By itself it is a transfer: what arrives is copied to where it belongs.

    Args:
        comm: of this rank.
        name: what messages call it, the same on all ranks.
        sends: by rank, the chunks that this rank sends it.
        expected: by rank, the chunks that it sends, as tensors of this rank.
        by: the name of the reduction, if any.

    Attributes:
        sequence, work: its number, and how the caller sees it; set when it begins.
        kind: of the frames that ranks send for it, except results.
        receivers: the ranks without which it cannot begin.
        due: by rank, the number of its frames that have not been taken for use, without results.
        using: the number of chunks that are being used.
        owed: rank and number of the results that have not arrived. arriving: of those that have begun to.
        unsent: kind, rank and number of the frames that have not left.
    """

    kind = SHARE
    sequence: int
    work: DirectWork

    def __init__(
        self, comm: DirectComm, name: str, sends: Mapping[int, Chunks], expected: Mapping[int, Chunks], by: str = ""
    ) -> None:
        self.name, self.sends, self.expected, self.receivers = name, sends, expected, set(sends)
        self._rank, self._names, self._by = comm.rank, comm.names, by and f" by {by}"
        self.due = Counter({peer: len(chunks) for peer, chunks in expected.items()})
        self.using = 0
        self.owed: set[tuple[int, int]] = set()
        self.arriving: set[tuple[int, int]] = set()
        self.unsent = {(self.kind, peer, number) for peer, chunks in sends.items() for number in range(len(chunks))}

    # What it does; subclasses differ here.

    def first(self) -> Iterable[Send]:
        """What this rank sends at first: the first chunk to each rank, then the second ones."""
        for number in range(max(map(len, self.sends.values()), default=0)):
            for peer, chunks in self.sends.items():
                if number < len(chunks):
                    yield Send(self.kind, peer, number, chunks[number], number == len(chunks) - 1)

    def waits(self, number: int, arrived: Mapping[int, Part]) -> bool:
        """Whether more must arrive or leave before these parts of a chunk can be used."""
        return False

    @torch.inference_mode()  # so that tensors made in this mode can be changed, too
    def use(self, number: int, arrived: Mapping[int, Part]) -> Iterable[Send]:
        """Use the parts of a chunk. Return what is sent next."""
        for peer, part in arrived.items():
            if part.body:
                into = self.expected[peer][number]
                into.copy_(torch.frombuffer(part.body, dtype=into.dtype))
        return ()

    def late(self, held: Held) -> list[int]:
        """The ranks that have sent nothing, rather than those that wait as well."""
        return self.missing(held)

    # What it waits for.

    def ended(self) -> bool:
        """Whether everything has arrived and left."""
        return not (self.using or self.owed or self.unsent or any(self.due.values()))

    def take(self, ranks: Iterable[int]) -> None:
        """Note that a chunk of these ranks is used from now on. If one of them leaves meanwhile, it is not missing."""
        self.using += 1
        for rank in ranks:
            self.due[rank] -= 1

    def used(self) -> None:
        """Note that a chunk was used."""
        self.using -= 1

    def missing(self, held: Held) -> list[int]:
        """The ranks whose contributions have not all arrived; `held` has those that are not used yet."""
        return [rank for rank, due in sorted(self.due.items()) if due > _unused(held, rank)]

    def owing(self) -> list[int]:
        """The ranks whose results have not all arrived, or, if there is none, that do not take what was sent."""
        return sorted({rank for rank, _ in self.owed} or {rank for _, rank, _ in self.unsent})

    def surplus(self, held: Held, rank: int) -> bool:
        """Whether a rank has sent more frames than this needs."""
        return _unused(held, rank) > self.due[rank]

    def needs(self, rank: int, held: Held) -> bool:
        """Whether it cannot end without a rank that sends nothing more."""
        return rank in self.missing(held) or any(rank == owner for owner, _ in self.owed)

    # What it says.

    def about(self, chunks: Chunks) -> str:
        """What this is, for a peer that sends or receives chunks like these."""
        return described(self.name + self._by, chunks)

    def disagreement(self, kind: int, number: int, arrived: Mapping[int, Part]) -> str | None:
        """Say on what a rank disagrees whose frame of this kind and number does not fit; None if all fit."""
        for peer, part in sorted(arrived.items()):
            chunks = self.expected.get(peer, ())
            about = self.about(chunks or next(filter(None, self.expected.values()), ()))
            who, this = f"rank {self._names[peer]}", f"rank {self._names[self._rank]}"
            if not number and part.about != about:
                both = f"{who} began {part.about}; {this} began {about}"
                return f"ranks disagree on what to do in operation {self.sequence}: {both}"
            fits = kind == self.kind and number < len(chunks)
            size = nbytes_of(chunks[number]) if fits else "nothing there"
            if (len(part.body), part.last) != (size, number == len(chunks) - 1):
                sizes = f"{who} sent {len(part.body)} bytes; {this} expected {size}"
                return f"ranks disagree on the size of {self.name} {self.sequence}: {sizes}"
        return None


def _unused(held: Held, rank: int) -> int:
    """The number of frames of a rank that have arrived and are not used yet."""
    return sum(rank in ranks for ranks in held.values())


class Reduce(Operation):
    """A reduction of pieces, each of which belongs to a rank.

    Args:
        comm, name, sends: as for `Operation`.
        own: the chunks of this rank's piece, which all others send as well.
        reduction: how a chunk of this rank is computed from those of all ranks.
        spreads: whether its result is sent to all others.
    """

    kind = SCATTER

    def __init__(
        self,
        comm: DirectComm,
        name: str,
        sends: Mapping[int, Chunks],
        own: Chunks,
        reduction: Reduction,
        *,
        spreads: bool = False,
    ) -> None:
        super().__init__(comm, name, sends, dict.fromkeys(sends, own), reduction.name)
        self._own, self._reduction, self.spreads = own, reduction, spreads
        if spreads:
            self.owed = {(peer, number) for peer, chunks in sends.items() for number in _filled(chunks)}
            self.unsent |= {(GATHER, peer, number) for peer in sends for number in _filled(own)}

    def waits(self, number: int, arrived: Mapping[int, Part]) -> bool:
        """Whether a rank has not sent it yet, or, of a whole vector, frames still read from the memory of the chunk."""
        return len(arrived) < len(self.sends) or any((WHOLE, peer, number) in self.unsent for peer in self.sends)

    def use(self, number: int, arrived: Mapping[int, Part]) -> Iterable[Send]:
        own = self._own[number]
        reduce(own, self._rank, {peer: part.body for peer, part in arrived.items()}, self._reduction)
        if self.spreads and own.numel():
            return [Send(GATHER, peer, number, own, number == len(self._own) - 1) for peer in self.sends]
        return ()


class ReduceWhole(Reduce):
    """A reduction of a whole vector on every rank."""

    kind = WHOLE


def _filled(chunks: Chunks) -> list[int]:
    """The numbers of the chunks that are not empty."""
    return [number for number, chunk in enumerate(chunks) if chunk.numel()]


class DirectComm:
    """Workers with connections between all pairs; the module's docstring describes the collective.

    Args:
        mesh: connections to all peers, one or more per pair.
        timeout_s: an operation that takes longer raises CommError from its `wait`.
        one_shot_bytes: the largest vector that an all-reduce sends whole to every rank; the same on all ranks.

    Attributes:
        failed: why this rank has given up, so that all later operations fail; None if it has not.
    """

    def __init__(self, mesh: Mesh, *, timeout_s: float, one_shot_bytes: int = 0) -> None:
        self.rank, self.world_size, self.names = mesh.rank, mesh.world_size, mesh.names
        self._mesh, self.timeout_s, self._one_shot_bytes = mesh, timeout_s, one_shot_bytes
        self._lock = threading.Lock()
        self._sequence = 0
        # Each rank starts with the next one. This spreads the load: no two ranks start with the same receiver.
        self.peers = [(mesh.rank + hop) % mesh.world_size for hop in range(1, mesh.world_size)]
        self._operations: dict[int, Operation] = {}
        self._held: dict[int, Held] = {}  # by operation
        self._mailbox = Mailbox(mesh.names)
        self._departed: set[int] = set()
        self.failed: str | None = None
        mesh.start(self._buffer_for, self._arrived, self.give_up)

    # ---------------------------------------------------------------- called by the worker

    def all_reduce(self, vector: Vector, reduction: Reduction = MEAN) -> DirectWork:
        """Reduce over all ranks, in place; the module's docstring says how long it takes."""
        tensor = cast(torch.Tensor, vector)
        if nbytes_of(tensor) > self._one_shot_bytes:
            return self._reduce("all_reduce", tensor.tensor_split(self.world_size), reduction, spreads=True)
        chunks = chunks_of(tensor)
        return self._begin(ReduceWhole(self, "all_reduce", dict.fromkeys(self.peers, chunks), chunks, reduction))

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
        sends = {peer: chunks[peer] for peer in self.peers}
        return self._begin(Reduce(self, name, sends, chunks[self.rank], reduction, spreads=spreads))

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> DirectWork:
        """Send the vector of each rank to all others at once."""
        tensor, into = cast(torch.Tensor, vector), cast(Sequence[torch.Tensor], parts)
        into[self.rank].copy_(tensor)
        return self.transfer("all_gather", dict.fromkeys(self.peers, tensor), {peer: into[peer] for peer in self.peers})

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
        given = {peer: (sends[peer],) for peer in self.peers if peer in sends}
        return self._begin(Operation(self, name, given, {peer: (into,) for peer, into in receives.items()}), after)

    def _in_single_precision(self, tensor: torch.Tensor, reduction: Reduction) -> DirectWork:
        """Reduce a copy in single precision, and round once: for collectives that add up in the type of the vector."""
        wide = tensor.to(torch.float32)
        work = DirectWork("all_reduce", self.timeout_s, lambda patience_s: inner.late(patience_s), self.give_up)

        @torch.inference_mode()
        def round_it(error: str | None) -> None:
            if error is None:
                tensor.copy_(wide)
            work.complete(error)

        inner = self.all_reduce(wide, reduction)
        inner.then(round_it)
        return work

    def _begin(self, operation: Operation, after: DirectWork | None = None) -> DirectWork:
        """Begin a collective, and send each rank its chunks."""
        with self._lock:
            operation.sequence = self._sequence
            self._sequence += 1
            late = partial(self._late, operation, after)
            work = operation.work = DirectWork(operation.name, self.timeout_s, late, self.give_up)
            reason, ended = self.failed or self._without(operation), operation.ended()
            if reason is None and not ended:
                self._operations[operation.sequence] = operation
        if reason is not None or ended:
            work.complete(reason)
            return work
        if after is None:
            self._send(operation, operation.first())
        else:
            after.then(lambda error: None if error else self._send(operation, operation.first()))
        with self._lock:
            early = list(self._held.get(operation.sequence, ()))
        for kind, number in early:  # what has arrived before this rank issued it
            self._use(kind, operation.sequence, number)
        return work

    def _without(self, operation: Operation) -> str | None:
        """The reason why an operation cannot end: a rank that it needs has left."""
        held = self._held.get(operation.sequence, {})
        needed = (rank for rank in sorted(self._departed) if rank in operation.receivers or operation.needs(rank, held))
        return next(map(self._goodbye, needed), None)

    def _goodbye(self, rank: int) -> str:
        return f"rank {self.names[rank]} has left the group"

    def _late(self, operation: Operation, after: DirectWork | None, patience_s: float) -> Sequence[int]:
        """The ranks that an operation waits for: those that have sent nothing, rather than those that wait as well."""
        if after is not None and not after.done():
            return after.late(patience_s)
        with self._lock:
            runs = self._operations.get(operation.sequence) is operation
            late = operation.late(self._held.get(operation.sequence, {})) if runs else []
        if runs and not late:
            operation.work.ends_within(patience_s)  # who waits for a rank that has sent nothing speaks first
            late = operation.owing()
        return [self.names[rank] for rank in late]

    def _send(self, operation: Operation, sends: Iterable[Send]) -> None:
        """Send chunks of an operation; the first one of a rank says what it is."""
        frames, sequence = [], operation.sequence
        for send in sends:
            about = operation.about([send.chunk]).encode() if send.number == 0 and send.kind != GATHER else b""
            flushed = partial(self._has_left_for, operation, send)
            frame = Frame(send.kind, sequence, bytes_of(send.chunk), flushed, sequence, send.number, send.last, about)
            frames.append((send.peer, frame))
        if frames:
            self._mesh.send_all(frames)

    def send(self, vector: Vector, dst: int, tag: int = 0, about: str = "message") -> DirectWork:
        """Send a copy of `vector`. Messages of one tag keep their order. Done once the kernel has it.

        The receiver must say the same `about` it, and take the same type.
        """
        work = DirectWork(f"send to rank {self.names[dst]}", self.timeout_s, give_up=self.give_up)
        tensor = cast(torch.Tensor, vector)
        payload, about = memoryview(bytes(bytes_of(tensor))), described(about, [tensor])
        number = self._mailbox.number(work, dst, tag)
        if number is not None and dst == self.rank:
            self._mailbox.arrived(dst, tag, number, bytearray(payload), about)
            work.complete()
        elif number is not None:
            frame = Frame(MESSAGE, number, payload, work.complete, self._sequence, tag, about=about.encode())
            self._mesh.send_all([(dst, frame)])
        return work

    def recv(self, vector: Vector, src: int | None, tag: int = 0, about: str = "message") -> DirectWork:
        """Receive the next message with this tag from `src`, or from any rank, into `vector`."""
        sources = self.peers if src is None else [src]
        sender = "any rank" if src is None else f"rank {self.names[src]}"
        work = DirectWork(f"recv from {sender}", self.timeout_s, give_up=self.give_up)
        self._mailbox.receive(work, cast(torch.Tensor, vector), sources, tag, about)
        return work

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
        if self._end_all(_LEFT):  # nothing may follow the goodbye
            self._mesh.say_goodbye(self.timeout_s)
        self._mesh.close()

    def close(self) -> None:
        """Close all connections."""
        self._end_all(_LEFT)
        self._mesh.close()

    # ---------------------------------------------------------------- called by the mesh's I/O thread

    def _buffer_for(self, head: Head, peer: int) -> memoryview:
        """Return the memory for the body of an arriving frame; a mean goes straight into the vector."""
        who = f"rank {self.names[peer]}"
        if head.kind > HOP:
            raise CommError(f"{who} sent a frame of kind {head.kind}; expected 0 to {HOP}")
        if head.kind != GATHER:
            try:
                if head.nbytes - head.about <= _LARGEST_BODY.get(head.kind, head.nbytes):
                    return memoryview(bytearray(head.nbytes))
            except (MemoryError, OverflowError):
                pass
            raise CommError(f"{who} sent a frame of {head.nbytes} bytes, more than fits")
        with self._lock:
            operation = self._operations.get(head.sequence)
        if not isinstance(operation, Reduce) or not operation.spreads:
            raise CommError(self.failed or f"{who} answered an all_reduce that this rank did not issue")
        result = peer, head.chunk
        if result not in operation.owed or result in operation.arriving:
            raise CommError(f"{who} sent the mean of chunk {head.chunk}, which this rank does not expect")
        operation.arriving.add(result)
        expected = bytes_of(operation.sends[peer][head.chunk])
        if len(expected) != head.nbytes:
            raise CommError(f"{who} sent a mean of {head.nbytes} bytes; expected {len(expected)}")
        return expected

    def _arrived(self, head: Head, peer: int, body: memoryview) -> None:
        if head.kind == GATHER:
            operation = self._operations.get(head.sequence)
            if operation is not None:
                self._note(operation, partial(operation.owed.discard, (peer, head.chunk)))
            return
        whole, size = cast(bytearray, body.obj), head.nbytes - head.about
        body.release()  # otherwise its memory cannot be cut
        about = whole[size:].decode(errors="replace")
        del whole[size:]
        if head.kind in (SCATTER, WHOLE, SHARE, HOP):
            self._hold(head, peer, Part(whole, head.last, about))
            self._use(head.kind, head.sequence, head.chunk, peer)
        elif head.kind == ABORT:
            raise CommError(whole.decode(errors="ignore") or f"rank {self.names[peer]} gave up without a reason")
        elif head.kind == LEAVE:
            self._has_left(peer)
        else:
            self._mailbox.arrived(peer, head.chunk, head.sequence, whole, about)

    def _has_left(self, peer: int) -> None:
        """A rank has left, and sends nothing more. What still needs it can never end."""
        with self._lock:
            self._departed.add(peer)
            held = self._held
            stuck = any(running.needs(peer, held.get(number, {})) for number, running in self._operations.items())
        self._mailbox.lose(peer, self._goodbye(peer))
        if stuck:
            raise CommError(self._goodbye(peer))

    def _hold(self, head: Head, peer: int, part: Part) -> None:
        """Keep what has arrived for an operation. Raises: CommError: it has ended."""
        with self._lock:
            if self.failed is not None:
                return
            operation = self._operations.get(head.sequence)
            held = self._held.setdefault(head.sequence, {})
            frames = held.setdefault((head.kind, head.chunk), {})
            twice = peer in frames
            frames[peer] = part
            # Without a rank that has left, this rank can have refused an operation that others have begun.
            ended = operation is None and head.sequence < self._sequence and not self._departed
            surplus = operation is not None and operation.surplus(held, peer)
        if ended or surplus or twice:
            what = f": {part.about}" if part.about else ""
            raise CommError(f"rank {self.names[peer]} sent more than operation {head.sequence} needs{what}")

    def _use(self, kind: int, sequence: int, number: int, new: int | None = None) -> None:
        """Use what has arrived of a chunk, if its operation is issued here and there is enough.

        `new` is the rank of a frame that has just arrived. Its size is checked although others are still missing.
        """
        with self._lock:
            operation = self._operations.get(sequence)
            held = self._held.get(sequence, {})
            if operation is None or (kind, number) not in held:
                return
            arrived = held[kind, number]
            waits = kind == operation.kind and operation.waits(number, arrived)
            if not waits:
                del held[kind, number]
                operation.take(arrived)
            unchecked = {peer: part for peer, part in arrived.items() if not waits or new in (None, peer)}
        reason = operation.disagreement(kind, number, unchecked)
        if reason is not None:
            self.give_up(reason)
        elif not waits:
            self._send(operation, operation.use(number, arrived))
            self._note(operation, operation.used)

    def _has_left_for(self, operation: Operation, send: Send) -> None:
        """The kernel has a frame. The result of a whole vector replaces it only when all ranks have been sent it."""
        self._note(operation, partial(operation.unsent.discard, send[:3]))
        if send.kind == WHOLE:
            self._use(WHOLE, operation.sequence, send.number)

    def _note(self, operation: Operation, change: Callable[[], None]) -> None:
        """Let an operation note that a frame has arrived, was used or has left. It ends with the last one."""
        with self._lock:
            if self._operations.get(operation.sequence) is not operation:  # it has already failed
                return
            change()
            if not operation.ended():
                return
            del self._operations[operation.sequence]
            self._held.pop(operation.sequence, None)
        operation.work.complete()

    def give_up(self, reason: str) -> None:
        """Fail all pending operations, here and at the peers, because a connection broke or ranks disagree.

        If one rank gives up an operation, it can never end on the others. The first reason is kept.
        """
        if self._end_all(reason):
            body = memoryview(reason.encode()[:_LARGEST_REASON_BYTES])
            self._mesh.send_all([(peer, Frame(ABORT, 0, body, lambda: None, -1)) for peer in self.peers])

    def _end_all(self, reason: str) -> bool:
        """Fail all pending operations here, and all later ones; false if they have failed already."""
        with self._lock:
            if self.failed is not None:
                return False
            self.failed = reason
            pending = [operation.work for operation in self._operations.values()]
            self._operations.clear()
            self._held.clear()
        for work in pending:
            work.complete(reason)
        for peer in (self.rank, *self.peers):
            self._mailbox.lose(peer, reason)
        return True
