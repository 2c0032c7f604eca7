"""Queues that messages share, computed for whole rounds of messages at once.

A message is fluid: it occupies a queue for size / rate, and its first bytes leave while its last are still waiting.
So a message through three queues takes the time of the slowest, as packets do, and not the sum. Messages that reach a
queue at the same time are interleaved like the packets of several connections: they begin and end together. All others
are served first come, first served.

Rounds of different operations are served one after another, in the order of their earliest message, although their
messages interleave. A queue therefore remembers its last idle gap. A message of a later round that arrived within the
gap is served there, and only the part that does not fit moves the end of the queue. The total service time is exact.
"""

import numpy as np

from wanbench.harness.emulators.plan import Queue
from wanbench.harness.testbeds.virtual import Ints

_FAR = np.int64(1) << np.int64(61)


class QueueStates:
    """Queues of one kind: the time when each is free again, and its last idle gap, in nanoseconds.

    Attributes:
        cost: nanoseconds per byte; 0 if the rate is unlimited. buffer_bytes: what each holds.
    """

    def __init__(self, count: int) -> None:
        self.end = np.zeros(count, np.int64)
        self.gap_begin = np.zeros(count, np.int64)
        self.gap_end = np.full(count, -1, np.int64)
        self.cost, self.buffer_bytes = np.zeros(count), np.zeros(count)

    def set(self, index: int, queue: Queue) -> None:
        """Set the rate and the buffer of a queue."""
        self.cost[index] = 0.0 if queue.rate_bytes_per_s is None else 1e9 / queue.rate_bytes_per_s
        self.buffer_bytes[index] = queue.buffer_bytes


class Turn:
    """The passage of a round's messages through queues of one kind, resolved once and used for every such round.

    Args:
        states: states of all queues of this kind.
        queue: the queue of each message, shape (messages,).
        service_ns: service time of each message.
    """

    def __init__(self, states: QueueStates, queue: Ints, service_ns: Ints) -> None:
        self._states = states
        order = np.argsort(queue, kind="stable")
        self._order: Ints | slice = slice(None) if (order == np.arange(len(order))).all() else order
        self._queue = queue[order]
        self._service = service_ns[order]
        self._segment, self._first = segments(self._queue)
        self._alone = len(self._first) == len(order)

    def serve(self, arrival: Ints) -> tuple[Ints, Ints]:
        """Return (begin, end) of each message's service for messages that arrive at these times."""
        arrival = arrival[self._order]
        begin, end = self._serve_alone(arrival) if self._alone else self._serve_shared(arrival)
        return _back(begin, self._order), _back(end, self._order)

    def _serve_alone(self, arrival: Ints) -> tuple[Ints, Ints]:
        """Serve at most one message per queue."""
        states, queue, service = self._states, self._queue, self._service
        free = states.end[queue]
        if (arrival < states.gap_end[queue]).any():
            return self._serve_late_round(arrival, service)
        begin = np.maximum(arrival, free)
        end = begin + service
        _note_gaps(states, queue, free, arrival)
        states.end[queue] = end
        return begin, end

    def _serve_shared(self, arrival: Ints) -> tuple[Ints, Ints]:
        late = arrival[1:] < arrival[:-1]
        late[self._first[1:] - 1] = False
        if not late.any():  # they are in the order of time
            return self._serve_sorted(arrival, self._service)
        order = np.lexsort((arrival, self._segment))
        begin, end = self._serve_sorted(arrival[order], self._service[order])
        return _back(begin, order), _back(end, order)

    def _serve_sorted(self, arrival: Ints, service: Ints) -> tuple[Ints, Ints]:
        states = self._states
        if (arrival < states.gap_end[self._queue]).any():
            return self._serve_late_round(arrival, service)
        end = _behind(states, self._queue, self._segment, self._first, arrival, service)
        return _interleaved(arrival, service, self._segment, end)

    def _serve_late_round(self, arrival: Ints, service: Ints) -> tuple[Ints, Ints]:
        """Serve a round in which some messages arrived before others already served: they fit into the gap."""
        states, queue = self._states, self._queue
        early = arrival < states.gap_end[queue]
        end = np.empty_like(arrival)
        end[early] = self._into_gaps(arrival[early], service[early], queue[early])
        rest = ~early
        if rest.any():
            end[rest] = _behind(states, queue[rest], *segments(queue[rest]), arrival[rest], service[rest])
        return _interleaved(arrival, service, self._segment, end)

    def _into_gaps(self, arrival: Ints, service: Ints, queue: Ints) -> Ints:
        states = self._states
        segment, first = segments(queue)
        heads = queue[first]
        ends = in_turn(arrival, service, segment, first, states.gap_begin[heads])
        filled = ends[lasts(first, len(ends))]
        states.end[heads] += np.maximum(filled - states.gap_end[heads], 0)
        states.gap_begin[heads] = np.minimum(filled, states.gap_end[heads])
        return ends


def _behind(states: QueueStates, queue: Ints, segment: Ints, first: Ints, arrival: Ints, service: Ints) -> Ints:
    """The ends of messages that queue behind all earlier ones, sorted by queue and time as `segments` expects."""
    heads = queue[first]
    free = states.end[heads]
    end = in_turn(arrival, service, segment, first, free)
    previous = np.empty_like(end)
    previous[1:] = end[:-1]
    previous[first] = free
    _note_gaps(states, queue, previous, arrival)
    states.end[heads] = end[lasts(first, len(end))]
    return end


def _back(values: Ints, order: Ints | slice) -> Ints:
    """Sort values from the order of service back to the order of the messages."""
    out = np.empty_like(values)
    out[order] = values
    return out


def segments(queue: Ints) -> tuple[Ints, Ints]:
    """Number the queues of messages sorted by queue. Return each message's number, and each queue's first index."""
    new = np.empty(len(queue), np.bool_)
    new[:1] = True
    np.not_equal(queue[1:], queue[:-1], out=new[1:])
    return new.cumsum() - 1, new.nonzero()[0]


def lasts(first: Ints, count: int) -> Ints:
    """The index of the last message of each segment, given those of the first."""
    last = np.empty_like(first)
    last[:-1] = first[1:]
    last[-1] = count
    return last - 1


def in_turn(arrival: Ints, service: Ints, segment: Ints, first: Ints, free: Ints) -> Ints:
    """The end of each message's service: end_i = max(arrival_i, end_{i-1}) + service_i in every queue.

    With C the running sum of the service times, end_i - C_i is the running maximum of arrival_i - C_{i-1}.
    """
    total = np.cumsum(service)
    slack = arrival.copy()
    slack[first] = np.maximum(slack[first], free)
    slack -= total - service
    # Compute the running maximum of all queues at once by shifting each queue above the one before it.
    span = slack.max() - slack.min() + 1
    if int(span) * len(first) >= int(_FAR):
        for begin, last in zip(first, lasts(first, len(slack)), strict=True):
            np.maximum.accumulate(slack[begin : last + 1], out=slack[begin : last + 1])
        return slack + total
    lift = segment * span
    end: Ints = np.maximum.accumulate(slack + lift) - lift + total
    return end


def _interleaved(arrival: Ints, service: Ints, segment: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The (begin, end) of service, shared by messages that reached a queue at the same time; sorted by both."""
    new = np.empty(len(arrival), np.bool_)
    new[0] = True
    np.not_equal(arrival[1:], arrival[:-1], out=new[1:])
    new[1:] |= segment[1:] != segment[:-1]
    first = new.nonzero()[0]
    if len(first) == len(new):
        return end - service, end
    group = new.cumsum() - 1
    begin = (end - service)[first]
    return begin[group], end[lasts(first, len(end))][group]


def _note_gaps(states: QueueStates, queue: Ints, previous: Ints, arrival: Ints) -> None:
    """Remember the last idle gap of each queue. Messages are sorted by queue and time."""
    idle = (arrival > previous).nonzero()[0]
    # If a queue has several gaps, the last one remains, because it is assigned last.
    at = queue[idle]
    states.gap_begin[at] = previous[idle]
    states.gap_end[at] = arrival[idle]
