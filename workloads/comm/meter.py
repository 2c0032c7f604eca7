"""Counts what an algorithm communicates and how long it stalls."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.comm.base import Clock, Comm, Vector, Work


class MeteredWork:
    """A Work whose waiting time is added to the meter's stall."""

    def __init__(self, meter: MeteredComm, work: Work) -> None:
        self._meter = meter
        self._work = work

    def done(self) -> bool:
        """As the underlying work."""
        return self._work.done()

    def wait(self) -> None:
        """As the underlying work, measured."""
        begin = self._meter.clock.now()
        self._work.wait()
        self._meter.stall_ns += self._meter.clock.now() - begin


class MeteredComm:
    """A Comm that counts.

    Attributes:
        payload_bytes: bytes this worker handed over: the vector's size per all-reduce, all-gather and send, whatever
            the collective makes of it on the wire.
        messages_sent: all-reduces, all-gathers and sends issued.
        stall_ns: time spent inside `Work.wait`, the only place where a worker can stall.
    """

    def __init__(self, comm: Comm, clock: Clock) -> None:
        self._comm = comm
        self.clock = clock
        self.rank = comm.rank
        self.world_size = comm.world_size
        self.payload_bytes = 0
        self.messages_sent = 0
        self.stall_ns = 0

    def all_reduce(self, vector: Vector) -> MeteredWork:
        """As the underlying comm, counted; a lone worker sends nothing."""
        if self.world_size > 1:
            self._count(vector)
        return MeteredWork(self, self._comm.all_reduce(vector))

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> MeteredWork:
        """As the underlying comm, counted; a lone worker sends nothing."""
        if self.world_size > 1:
            self._count(vector)
        return MeteredWork(self, self._comm.all_gather(vector, parts))

    def send(self, vector: Vector, dst: int) -> MeteredWork:
        """As the underlying comm, counted."""
        self._count(vector)
        return MeteredWork(self, self._comm.send(vector, dst))

    def recv(self, vector: Vector, src: int) -> MeteredWork:
        """As the underlying comm."""
        return MeteredWork(self, self._comm.recv(vector, src))

    def close(self) -> None:
        """As the underlying comm."""
        self._comm.close()

    def _count(self, vector: Vector) -> None:
        self.payload_bytes += vector.numel() * vector.element_size()
        self.messages_sent += 1
