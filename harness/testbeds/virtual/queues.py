"""Queues that messages share, for whole rounds of messages at once.

A message is fluid: it occupies a queue for size / rate, and its first bytes go on while its last are still waiting.
So what passes three queues takes the time of the slowest, as packets do, and not the sum. Messages that come to a queue
at one time are interleaved, as the packets of several connections are: they begin and end together. Otherwise, first
come, first served.

Rounds of different operations are served one after the other, in the order of their earliest message, although their
messages interleave. A queue therefore remembers its last idle gap: a message of a later round that came within it is
served there, and only what does not fit moves the end of the queue. Work is neither lost nor invented.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_FAR = np.int64(1) << np.int64(61)


class QueueStates:
    """When each of some queues is free again, and its last idle gap; nanoseconds."""

    def __init__(self, count: int) -> None:
        self.end = np.zeros(count, np.int64)
        self.gap_begin = np.zeros(count, np.int64)
        self.gap_end = np.full(count, -1, np.int64)


class Turn:
    """How the messages of a round meet some queues, resolved once and used for every such round.

    Args:
        states: of all queues of this kind.
        queue: the queue of each message, shape (messages,).
        service_ns: how long each occupies it.
    """

    def __init__(self, states: QueueStates, queue: Ints, service_ns: Ints) -> None:
        self._states = states
        order = np.argsort(queue, kind="stable")
        self._presorted = bool((order == np.arange(len(order))).all())
        self._order = order
        self._queue = queue[order]
        self._service = service_ns[order]
        self._segment, self._first = segments(self._queue)
        self._alone = len(self._first) == len(order)

    def serve(self, arrival: Ints) -> tuple[Ints, Ints]:
        """(when each message's service begins, when it ends) for messages that arrive at these times."""
        order = self._order
        arrival = arrival if self._presorted else arrival[order]
        if self._alone:
            begin, end = self._serve_alone(arrival)
        else:
            inner = self._by_time(arrival)
            if inner is not None:
                order, arrival = order[inner], arrival[inner]
            service = self._service if inner is None else self._service[inner]
            begin, end = self._serve_sorted(arrival, service)
            if inner is not None:
                return _back(begin, order), _back(end, order)
        return (begin, end) if self._presorted else (_back(begin, order), _back(end, order))

    def _by_time(self, arrival: Ints) -> Ints | None:
        """The order by queue and time; None if it is the order of the messages already."""
        late = arrival[1:] < arrival[:-1]
        late[self._first[1:] - 1] = False
        return np.lexsort((arrival, self._segment)) if late.any() else None

    def _serve_alone(self, arrival: Ints) -> tuple[Ints, Ints]:
        """At most one message a queue."""
        states, queue, service = self._states, self._queue, self._service
        free = states.end[queue]
        gap_end = states.gap_end[queue]
        early = arrival < gap_end
        if early.any():
            return self._serve_late_round(arrival, service)
        begin = np.maximum(arrival, free)
        end = begin + service
        _note_gaps(states, queue, free, arrival)
        states.end[queue] = end
        return begin, end

    def _serve_sorted(self, arrival: Ints, service: Ints) -> tuple[Ints, Ints]:
        states = self._states
        if (arrival < states.gap_end[self._queue]).any():
            return self._serve_late_round(arrival, service)
        end = _behind(states, self._queue, self._segment, self._first, arrival, service)
        return _interleaved(arrival, service, self._segment, end)

    def _serve_late_round(self, arrival: Ints, service: Ints) -> tuple[Ints, Ints]:
        """Some messages came before ones that were served already: they go into the gap, the others behind."""
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
        filled = ends[_lasts(first, len(ends))]
        states.end[heads] += np.maximum(filled - states.gap_end[heads], 0)
        states.gap_begin[heads] = np.minimum(filled, states.gap_end[heads])
        return ends


def _behind(states: QueueStates, queue: Ints, segment: Ints, first: Ints, arrival: Ints, service: Ints) -> Ints:
    """When messages end that are served behind all before them; sorted by queue and time, as `segments` has them."""
    heads = queue[first]
    free = states.end[heads]
    end = in_turn(arrival, service, segment, first, free)
    previous = np.empty_like(end)
    previous[1:] = end[:-1]
    previous[first] = free
    _note_gaps(states, queue, previous, arrival)
    states.end[heads] = end[_lasts(first, len(end))]
    return end


def _back(values: Ints, order: Ints) -> Ints:
    """From the order of service to the order of the messages."""
    out = np.empty_like(values)
    out[order] = values
    return out


def segments(queue: Ints) -> tuple[Ints, Ints]:
    """(number of the queue among those present, index of each one's first message) of messages sorted by queue."""
    new = np.empty(len(queue), np.bool_)
    new[0] = True
    np.not_equal(queue[1:], queue[:-1], out=new[1:])
    return new.cumsum() - 1, new.nonzero()[0]


def _lasts(first: Ints, count: int) -> Ints:
    """The index of the last message of each segment, given those of the first ones."""
    last = np.empty_like(first)
    last[:-1] = first[1:]
    last[-1] = count
    return last - 1


def in_turn(arrival: Ints, service: Ints, segment: Ints, first: Ints, free: Ints) -> Ints:
    """When each message has been served: end_i = max(arrival_i, end_{i-1}) + service_i, in every queue.

    With C the running sum of the service times, end_i - C_i is the running maximum of arrival_i - C_{i-1}.
    """
    total = np.cumsum(service)
    slack = arrival.copy()
    slack[first] = np.maximum(slack[first], free)
    slack -= total - service
    # A running maximum over all queues at once: each is lifted above the one before it.
    span = slack.max() - slack.min() + 1
    if int(span) * len(first) >= int(_FAR):
        for begin, last in zip(first, _lasts(first, len(slack)), strict=True):
            np.maximum.accumulate(slack[begin : last + 1], out=slack[begin : last + 1])
        return slack + total
    lift = segment * span
    end: Ints = np.maximum.accumulate(slack + lift) - lift + total
    return end


def _interleaved(arrival: Ints, service: Ints, segment: Ints, end: Ints) -> tuple[Ints, Ints]:
    """(begin, end) of service where messages that came to a queue at one time share it; sorted by queue and time."""
    new = np.empty(len(arrival), np.bool_)
    new[0] = True
    np.not_equal(arrival[1:], arrival[:-1], out=new[1:])
    new[1:] |= segment[1:] != segment[:-1]
    first = new.nonzero()[0]
    if len(first) == len(new):
        return end - service, end
    group = new.cumsum() - 1
    begin = (end - service)[first]
    return begin[group], end[_lasts(first, len(end))][group]


def _note_gaps(states: QueueStates, queue: Ints, previous: Ints, arrival: Ints) -> None:
    """Remember the last idle time of each queue; messages are sorted by queue and time."""
    idle = (arrival > previous).nonzero()[0]
    # Of several gaps of a queue the last one stays, because it is assigned last.
    at = queue[idle]
    states.gap_begin[at] = previous[idle]
    states.gap_end[at] = arrival[idle]
