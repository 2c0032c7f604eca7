"""Queues of the virtual network: serving whole rounds gives the same times as serving one message at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbench.harness.testbeds.virtual.queues import QueueStates, Turn

messages = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=25)


def ints(values):
    return np.array(values, np.int64)


def turn(states, queue, service):
    return Turn(states, ints(queue), ints(service))


def one_by_one(queue, arrival, service, free):
    """The end of each service, first come, first served. Messages of the same time and queue end together."""
    end = [0] * len(queue)
    for i in sorted(range(len(queue)), key=lambda i: arrival[i]):
        free[queue[i]] = max(free[queue[i]], arrival[i]) + service[i]
        end[i] = free[queue[i]]
    together = {}
    for q, a, e in zip(queue, arrival, end, strict=True):
        together[q, a] = max(e, together.get((q, a), 0))
    return [together[q, a] for q, a in zip(queue, arrival, strict=True)]


@given(rounds=st.lists(messages, min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_a_round_is_served_like_its_messages_one_by_one(rounds):
    states, free, offset = QueueStates(4), [0] * 4, 0
    for batch in rounds:
        queue, arrival, service = (list(values) for values in zip(*batch, strict=True))
        arrival = [a + offset for a in arrival]
        begin, end = turn(states, queue, service).serve(ints(arrival))
        assert end.tolist() == one_by_one(queue, arrival, service, free)
        assert (begin >= ints(arrival)).all()
        assert (end - begin >= ints(service)).all()
        offset = max(arrival)  # later rounds do not arrive earlier here


@given(batch=messages)
@settings(max_examples=200, deadline=None)
def test_rounds_in_the_wrong_order_take_the_same_total_service_time(batch):
    """Two rounds in the wrong order occupy a queue as long as in the right one, if it is not idle between them."""
    queue, _, service = (list(values) for values in zip(*batch, strict=True))
    arrival = [0] * len(queue)
    right, wrong = QueueStates(4), QueueStates(4)
    turn(right, queue, service).serve(ints(arrival))
    turn(right, [0, 1, 2, 3], [5] * 4).serve(ints([3] * 4))
    turn(wrong, [0, 1, 2, 3], [5] * 4).serve(ints([3] * 4))
    turn(wrong, queue, service).serve(ints(arrival))
    for q in range(4):
        work = sum(s for s, which in zip(service, queue, strict=True) if which == q)
        assert wrong.end[q] == right.end[q] == max(3, work) + 5


def test_a_message_of_a_late_round_fits_into_the_gap():
    states = QueueStates(1)
    first = turn(states, [0], [10])
    first.serve(ints([100]))
    begin, end = first.serve(ints([20]))
    assert (begin.tolist(), end.tolist(), states.end.tolist()) == ([20], [30], [110])


def test_the_part_that_does_not_fit_the_gap_moves_the_end():
    states = QueueStates(1)
    turn(states, [0], [10]).serve(ints([100]))
    _, end = turn(states, [0], [50]).serve(ints([80]))
    assert (end.tolist(), states.end.tolist()) == ([130], [140])


def test_messages_that_arrive_together_are_interleaved():
    begin, end = turn(QueueStates(1), [0, 0, 0], [10, 10, 10]).serve(ints([5, 5, 5]))
    assert (begin.tolist(), end.tolist()) == ([5, 5, 5], [35, 35, 35])


def test_very_distant_times_do_not_overflow():
    year = 365 * 86400 * 10**9
    queue = list(range(400)) * 2
    arrival = [0] * 400 + [year * 100] * 400
    _, end = turn(QueueStates(400), queue, [7] * 800).serve(ints(arrival))
    assert end.tolist() == [7] * 400 + [year * 100 + 7] * 400
