"""What runs beside a worker: messages with tags, also to itself, the first of several, and its errors."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from joined_ranks import groups, on_every_rank

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.comm.gloo import GroupComm
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.comm.meter import MeteredComm


@pytest.fixture(params=["direct", "hierarchical", "ring", "threads"])
def on_ranks(request, tmp_path):
    """Call a function with each of several ranks; return the results by rank."""
    if request.param == "threads":
        yield lambda workers, body: run_replicas(workers, body)
        return
    with groups(request.param, tmp_path) as make:
        places = {"hierarchical": {"site_of": lambda n: range(n)}, "ring": {"ring": lambda n: range(n)}}
        fields = places.get(request.param, {})
        yield lambda workers, body: on_every_rank(
            make(workers, **{name: tuple(of(workers)) for name, of in fields.items()}), body
        )


def number(value):
    return torch.tensor([float(value)])


def test_a_server_answers_while_its_worker_does_something_else(on_ranks):
    served, others_answered = threading.Event(), threading.Semaphore(0)

    def serve(comm):
        notes = {rank: number(0) for rank in range(3)}
        receives = {rank: comm.recv(note, rank, tag=1) for rank, note in notes.items()}
        while receives:
            rank = comm.first(receives)
            receives.pop(rank).wait()
            comm.send(notes[rank].mul_(10), rank, tag=2).wait()
        served.set()

    def body(comm):
        running = comm.background(serve) if comm.rank == 0 else None
        if comm.rank == 0:
            assert all(others_answered.acquire(timeout=20) for _ in (1, 2)), "its own message comes last"
        answer = number(0)
        answered = comm.recv(answer, 0, tag=2)
        comm.send(number(comm.rank + 1), 0, tag=1).wait()
        answered.wait()
        others_answered.release()
        if running is not None:
            running.wait()
            assert served.is_set()
        return float(answer)

    assert on_ranks(3, body) == [10, 20, 30]


def test_the_first_of_several_is_the_one_that_arrived_first_and_a_time_limit_ends_the_wait(on_ranks):
    may_send = {rank: threading.Event() for rank in (1, 2)}

    def body(comm):
        if comm.rank:
            assert may_send[comm.rank].wait(20)
            comm.send(number(comm.rank), 0, tag=3).wait()
            return []
        into = {rank: number(0) for rank in (1, 2)}
        receives = {rank: comm.recv(vector, rank, tag=3) for rank, vector in into.items()}
        order = [comm.first(receives, comm.now())]
        for sender in (2, 1):
            may_send[sender].set()
            order.append(comm.first(receives, comm.now() + 20_000_000_000))
            receives.pop(order[-1]).wait()
        return order

    assert on_ranks(3, body)[0] == [None, 2, 1]


def test_messages_of_different_tags_do_not_mix(on_ranks):
    def body(comm):
        for tag in (0, 5, 6):
            comm.send(number(10 * comm.rank + tag), 1 - comm.rank, *([tag] if tag else [])).wait()
        found = []
        for tag in (6, 5, 0):
            into = number(0)
            comm.recv(into, 1 - comm.rank, *([tag] if tag else [])).wait()
            found.append(float(into))
        return found

    assert on_ranks(2, body) == [[16, 15, 10], [6, 5, 0]]


def test_an_error_in_the_background_fails_the_waits_of_all_ranks(on_ranks):
    def broken(comm):
        raise ArithmeticError("not today")

    def body(comm):
        if comm.rank == 0:
            comm.background(broken)
        with pytest.raises(CommError) as caught:
            comm.recv(number(0), 1 - comm.rank, tag=1).wait()
        return str(caught.value)

    messages = on_ranks(2, body)
    assert all("the background of rank 0 failed: not today" in message for message in messages), messages


def test_the_meter_counts_what_the_background_sends_and_not_its_waits(tmp_path):
    def serve(comm):
        note = number(0)
        comm.recv(note, 1, tag=1).wait()
        comm.send(note, 1, tag=2).wait()

    answered = threading.Event()

    def body(plain):
        comm = MeteredComm(plain, MonotonicClock())
        if comm.rank == 0:
            running = comm.background(serve)
            assert answered.wait(20)
            running.wait()
        else:
            time.sleep(0.15)  # while the server waits
            comm.send(number(1), 0, tag=1).wait()
            comm.recv(number(0), 0, tag=2).wait()
            answered.set()
        comm.send(number(0), comm.rank, tag=9).wait()  # to itself: no message
        return comm.payload_bytes, comm.messages_sent, comm.stall_ns

    with groups("direct", tmp_path) as make:
        (server_bytes, server_sent, server_stall_ns), (*sent, _) = on_every_rank(make(2), body)
    assert (server_bytes, server_sent) == (4, 1)
    assert sent == [4, 1]
    assert server_stall_ns < 50e6


def test_a_comm_without_a_background_says_so():
    comm = MeteredComm(GroupComm(None, 0, 2), MonotonicClock())
    with pytest.raises(
        CommError, match=r"^GroupComm runs nothing in the background; expected a comm such as 'direct'$"
    ):
        comm.background(lambda beside: None)
