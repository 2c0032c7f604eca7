"""The places that a packet passes in the relay: queues with a rate and a buffer, and paths with a delay.

Pure: the caller passes the time, in nanoseconds of any monotonic clock. All state is kept as absolute times (when a
queue is free again, when a packet is due), computed from exact arrival times. A late call therefore delays the packets
that are due, and none after them.

A segment of several packets keeps the times of its first and its last packet at each place, so it occupies the queues
one after another as its packets would. It is due with its last packet.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count, islice

from wanbench.harness.emulators.impairments.base import Impairment
from wanbench.harness.emulators.impairments.loss import Losses
from wanbench.harness.emulators.plan import Link, Queue
from wanbench.harness.emulators.relay.segment import Segment

_serial = count()


class TailDrop:
    """A first-in first-out queue with a constant rate. Packets that do not fit into its buffer are dropped."""

    __slots__ = ("buffer_ns", "busy", "drops", "ns_per_byte", "scale")

    def __init__(self, queue: Queue) -> None:
        self.busy = 0.0  # when the last byte accepted so far will have left
        self.drops = 0
        self.ns_per_byte = 0.0
        self.scale = 1.0  # factor on the backlog's remaining time, applied by the next packet
        self.configure(queue)

    def configure(self, queue: Queue) -> None:
        """Set the rate and buffer for new packets.

        Packets already queued keep their due times and their order. New packets queue behind their bytes.
        """
        before = self.ns_per_byte
        unlimited = queue.rate_bytes_per_s is None
        self.ns_per_byte = 0.0 if queue.rate_bytes_per_s is None else 1e9 / queue.rate_bytes_per_s
        if before and before != self.ns_per_byte:
            self.scale *= self.ns_per_byte / before
        # A buffer of B bytes holds B/rate seconds. Comparing times saves a conversion for every packet.
        self.buffer_ns = float("inf") if unlimited else queue.buffer_bytes * self.ns_per_byte

    def admit(self, segment: Segment) -> bool:
        """Move a segment to the end of the queue, when its packets have left. Return false if not all of them fit."""
        first, last, ns = segment.first, segment.last, self.ns_per_byte
        start = self.busy
        if self.scale != 1.0:
            start = first + (start - first) * self.scale
            self.scale = 1.0
        if start < first:
            start = first
        if segment.packets == 1:
            left = start + segment.nbytes * ns
            if left - first > self.buffer_ns:
                self.busy = start
                return False
            self.busy = segment.first = segment.last = left
            return True
        head_left = start + segment.head * ns
        left = max(start + segment.nbytes * ns, last + segment.tail * ns)
        if segment.tail < segment.head:  # a short last packet can have to wait for the one before it
            left = max(left, segment.at(segment.packets - 2) + (segment.head + segment.tail) * ns)
        # The backlog grows or shrinks evenly while the packets arrive, so it is largest at one of the ends.
        if left - last > self.buffer_ns or head_left - first > self.buffer_ns:
            self.busy = start
            return False
        segment.first, segment.last = head_left, left
        self.busy = left
        return True

    def admit_some(self, segment: Segment) -> Iterable[Segment]:
        """Return the packets that fit, as few segments, at the end of the queue. The others are dropped."""
        if segment.packets == 1:
            self.drops += 1
            return ()
        left: list[float] = []
        lost: list[int] = []
        for index in range(segment.packets):
            nbytes = segment.tail if index == segment.packets - 1 else segment.head
            arrival = segment.at(index)
            due = max(self.busy, arrival) + nbytes * self.ns_per_byte
            if due - arrival <= self.buffer_ns:
                self.busy = due
                left.append(due)
            else:
                lost.append(index)
        self.drops += len(lost)
        leaving, pieces = iter(left), list(segment.without(lost))
        for piece in pieces:
            dues = list(islice(leaving, piece.packets))
            piece.first, piece.last = dues[0], dues[-1]
        return pieces

    def through(self, segment: Segment) -> Iterable[Segment]:
        """Return the packets that pass, at the end of the queue."""
        return (segment,) if self.admit(segment) else self.admit_some(segment)


class Stage:
    """Packets that wait in order for their time. Then they enter a down queue or leave to their worker.

    A segment leaves as a whole, with its last packet. It enters a queue with its first packet, because the packets
    from other sites arrive between its own.
    """

    __slots__ = ("down", "fifo", "serial")

    def __init__(self) -> None:
        self.fifo: deque[Segment] = deque()  # each is due when its last packet is
        self.down: Down | None = None
        self.serial = next(_serial)  # breaks ties between equal due times

    def next_time(self) -> float:
        """When the first segment leaves or enters its queue."""
        return self.fifo[0].last if self.down is None else self.fifo[0].first


class Down(Stage):
    """The down queue that all paths into one site share.

    Attributes:
        margin: bytes that can arrive between the packets of one segment: a segment of every path.
    """

    __slots__ = ("margin", "queue")

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = TailDrop(queue)
        self.margin = 0.0

    def nearly_full(self, segment: Segment) -> bool:
        """Whether a segment can be more than fits, so that the order of its packets among others decides."""
        queue = self.queue
        backlog = queue.busy - segment.first + (segment.nbytes + self.margin) * queue.ns_per_byte
        return segment.packets > 1 and backlog > queue.buffer_ns


class DirectedPath(Stage):
    """One directed path: the source site's up queue, its own queue, loss, then the delay with its jitter."""

    __slots__ = ("bytes", "delay", "effects", "last", "longest", "losses", "lost", "packets", "queue", "rng", "up")

    def __init__(self, link: Link, last: float) -> None:
        super().__init__()
        self.up: TailDrop | None = None
        self.queue = TailDrop(link.queue)
        self.last = last  # the latest due time: nothing overtakes it
        self.rng = random.Random(0)
        self.packets = self.bytes = self.lost = 0
        self.longest = float("inf")  # IP bytes of a segment
        self.losses: Losses | None = None
        self.configure(link)

    def restart(self, seed: str) -> None:
        """Restart the random numbers."""
        self.rng = random.Random(seed)
        if self.losses is not None:
            self.losses = Losses(*self.losses.values, self.rng)

    def configure(self, link: Link) -> None:
        """Set the values for new packets."""
        self.delay = float(link.delay_ns)
        self.effects = [
            (impairment.relay, value)
            for impairment, value in link.impairments()
            if type(impairment).relay is not Impairment.relay
        ]
        self.queue.configure(link.queue)
        if not link.loss:
            self.losses = None
        elif self.losses is None or self.losses.values != (link.loss, link.loss_burst):
            self.losses = Losses(link.loss, link.loss_burst, self.rng)

    def survivors(self, segment: Segment) -> Iterable[Segment]:
        """Return the packets that are not lost, as few segments."""
        lost: Sequence[int] = self.losses.of(segment.packets) if self.losses is not None else ()
        self.lost += len(lost)
        return segment.without(lost) if lost else (segment,)

    def send(self, segment: Segment) -> None:
        """Delay a segment. Nothing overtakes the one before it."""
        delay = self.delay
        for effect, value in self.effects:
            # Its last packet cannot overtake those before it, which leave within `span`.
            delay = effect(value, self.rng, delay, segment.packets, segment.last - segment.first)
        due = max(self.last, segment.last + delay)
        segment.first += due - segment.last
        segment.last = self.last = due
        self.packets += segment.packets
        self.bytes += segment.nbytes
        self.fifo.append(segment)
