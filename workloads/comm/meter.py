"""Count the communication of an algorithm and the time that it stalls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbench.workloads.comm.base import (
    BackgroundComm,
    Clock,
    Comm,
    CommError,
    Exchange,
    LossyComm,
    PatientWork,
    Terms,
    Vector,
    Work,
    nbytes_of,
)
from wanbench.workloads.wire import Count, Word

JOURNAL_LIMIT = 2000


@dataclass
class Message:
    """One communication of one worker, in nanoseconds of the clock that all workers share.

    Attributes:
        kind: "all_reduce", "all_gather", "send", "recv" or "exchange".
        nbytes: size of the vector, or of all vectors that an exchange sends.
        issued_ns: when it was issued. ended_ns: when the result arrived; None if the comm does not report it (gloo).
        collected_ns: when its `wait` returned; None if it has not. stall_ns: time spent in that `wait`.
    """

    kind: Word
    nbytes: Count
    issued_ns: Count
    ended_ns: Count | None = None
    collected_ns: Count | None = None
    stall_ns: Count = 0


class MeteredWork:
    """A Work that adds its waiting time to the meter's stall."""

    def __init__(self, meter: MeteredComm, work: Work, message: Message | None) -> None:
        self._meter, self.underlying, self._message = meter, work, message

    def done(self) -> bool:
        """As the underlying work."""
        return self.underlying.done()

    def wait(self) -> None:
        """As the underlying work, timed."""
        begin = self._meter.clock.now()
        self.underlying.wait()
        self._waited(begin, arrived=True)

    def wait_for(self, seconds: float) -> bool:
        """As the underlying work, timed. Raises: CommError, also if it has no time limit."""
        if not isinstance(self.underlying, PatientWork):
            name = type(self.underlying).__name__
            raise CommError(f"{name} cannot wait with a time limit; expected an operation that has wait_for")
        begin = self._meter.clock.now()
        arrived = self.underlying.wait_for(seconds)
        self._waited(begin, arrived=arrived)
        return arrived

    def _waited(self, begin: int, *, arrived: bool) -> None:
        end = self._meter.clock.now()
        self._meter.stall_ns += end - begin
        if self._message is not None:
            self._message.stall_ns += end - begin
            if arrived and self._message.collected_ns is None:
                self._message.collected_ns = end
                self._message.ended_ns = getattr(self.underlying, "ended_ns", None)


class MeteredExchange(MeteredWork):
    """An exchange that also counts its blocks: expected, and not arrived in time."""

    underlying: Exchange
    _counted = False

    @property
    def arrived(self) -> Mapping[int, Sequence[slice]]:
        """As the underlying work."""
        return self.underlying.arrived

    @property
    def blocks(self) -> tuple[int, int]:
        """As the underlying work."""
        return self.underlying.blocks

    def wait(self) -> None:
        """As the underlying work, timed and counted."""
        super().wait()
        if not self._counted:
            self._counted = True
            expected, lost = self.underlying.blocks
            self._meter.blocks_expected += expected
            self._meter.blocks_lost += lost


class MeteredComm:
    """A Comm that counts its operations.

    Attributes:
        payload_bytes: bytes that this worker passed to the comm: the vector's size per all-reduce, all-gather and send,
            and all vectors that an exchange sends. Bytes on the wire can differ.
        messages_sent: all-reduces, all-gathers, sends and exchanges issued.
        blocks_expected: blocks that peers sent here in exchanges. blocks_lost: blocks that did not arrive in time.
        stall_ns: time spent inside `Work.wait`, the only place where a worker can stall.
        journal: a list that records the first `JOURNAL_LIMIT` communications; None, the default, records none.
    """

    def __init__(self, comm: Comm, clock: Clock) -> None:
        self.follow(comm)
        self.clock = clock
        self.payload_bytes = self.messages_sent = 0
        self.blocks_expected = self.blocks_lost = 0
        self.stall_ns = 0
        self.journal: list[Message] | None = None
        self._counting = threading.Lock()
        self._count = self._add

    def follow(self, comm: Comm) -> None:
        """Use another comm from now on: that of the next epoch of a membership."""
        self._comm, self.rank, self.world_size = comm, comm.rank, comm.world_size

    def all_reduce(self, vector: Vector) -> MeteredWork:
        """As the underlying comm, counted; one worker alone sends nothing."""
        message = self._note("all_reduce", nbytes_of(vector), sends=self.world_size > 1)
        return MeteredWork(self, self._comm.all_reduce(vector), message)

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> MeteredWork:
        """As the underlying comm, counted; one worker alone sends nothing."""
        message = self._note("all_gather", nbytes_of(vector), sends=self.world_size > 1)
        return MeteredWork(self, self._comm.all_gather(vector, parts), message)

    def send(self, vector: Vector, dst: int, tag: int = 0) -> MeteredWork:
        """As the underlying comm, counted; a message to this rank itself is none."""
        message = self._note("send", nbytes_of(vector), sends=dst != self.rank)
        sent = background_of(self._comm).send(vector, dst, tag) if tag else self._comm.send(vector, dst)
        return MeteredWork(self, sent, message)

    def recv(self, vector: Vector, src: int, tag: int = 0) -> MeteredWork:
        """As the underlying comm."""
        message = self._note("recv", nbytes_of(vector), sends=False)
        received = background_of(self._comm).recv(vector, src, tag) if tag else self._comm.recv(vector, src)
        return MeteredWork(self, received, message)

    def now(self) -> int:
        """Nanoseconds of the clock."""
        return self.clock.now()

    def first(self, receives: Mapping[int, Work], until_ns: int | None = None) -> int | None:
        """As the underlying comm, timed."""
        begin = self.clock.now()
        works = {key: work.underlying if isinstance(work, MeteredWork) else work for key, work in receives.items()}
        key = background_of(self._comm).first(works, until_ns)
        self.stall_ns += self.clock.now() - begin
        return key

    def background(self, body: Callable[[Any], None]) -> MeteredWork:
        """As the underlying comm. What the body sends is counted; when it waits, the worker does not stall."""
        beside = MeteredComm(self._comm, self.clock)
        beside._count = self._count
        return MeteredWork(self, background_of(self._comm).background(lambda _: body(beside)), None)

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> MeteredExchange:
        """As the underlying comm, counted. Raises: CommError, if it cannot send datagrams."""
        if not isinstance(self._comm, LossyComm):
            raise CommError(f"{type(self._comm).__name__} cannot send datagrams; expected a comm that has exchange")
        message = self._note("exchange", sum(nbytes_of(vector) for vector in sends.values()), sends=True)
        return MeteredExchange(self, self._comm.exchange(sends, receives, terms), message)

    def close(self) -> None:
        """As the underlying comm."""
        self._comm.close()

    def _add(self, nbytes: int) -> None:
        with self._counting:
            self.payload_bytes += nbytes
            self.messages_sent += 1

    def _note(self, kind: str, nbytes: int, *, sends: bool) -> Message | None:
        if sends:
            self._count(nbytes)
        if self.journal is None or self.world_size == 1 or len(self.journal) >= JOURNAL_LIMIT:
            return None
        message = Message(kind, nbytes, self.clock.now())
        self.journal.append(message)
        return message


def background_of(comm: Comm) -> BackgroundComm:
    """Return the comm, if it can run something in the background. Raises: CommError, if it cannot."""
    if not isinstance(comm, BackgroundComm):
        raise CommError(f"{type(comm).__name__} runs nothing in the background; expected a comm such as 'direct'")
    return comm
