"""The direct collective on real TCP: means, order, and errors instead of hangs."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from joined_ranks import on_every_rank

from wanbench.workloads.comm import direct, mesh, tensors
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.direct import DirectComm

LOCALHOST = "127.0.0.1"


def connected(world_size: int, connections: int = 1, timeout_s: float = 10.0, **more: Any) -> list[DirectComm]:
    """Return the comm of each rank, over loopback."""
    paces = more.pop("paces", None)
    listeners = [mesh.listen(LOCALHOST) for _ in range(world_size)]
    addresses = [listener.getsockname()[:2] for listener in listeners]

    def one(rank: int) -> DirectComm:
        link = mesh.connect(listeners[rank], rank, addresses, connections=connections, timeout_s=timeout_s, paces=paces)
        return DirectComm(link, timeout_s=timeout_s, **more)

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(one, range(world_size)))


@pytest.fixture
def group():
    """Yield a factory of groups; close them at the end."""
    made: list[DirectComm] = []

    def make(world_size: int, connections: int = 1, timeout_s: float = 10.0, **more: Any) -> list[DirectComm]:
        made.extend(comms := connected(world_size, connections, timeout_s, **more))
        return comms

    yield make
    for comm in made:
        comm.close()


def failure(action: Callable[[], object]) -> str:
    with pytest.raises(CommError) as caught:
        action()
    return str(caught.value)


def given(rank: int, number: int, numel: int) -> torch.Tensor:
    """The random contribution of a rank, which every rank can compute."""
    return torch.randn(numel, generator=torch.Generator().manual_seed(1000 * number + rank))


# ---------------------------------------------------------------- all_reduce


@pytest.mark.parametrize("one_shot_bytes", [0, 1 << 30])
@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("numel", [0, 1, 2, 3, 4, 7, 1001, 300_001])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_an_all_reduce_is_the_mean_with_the_same_bits_on_every_rank(
    group, world_size, numel, connections, one_shot_bytes
):
    def body(comm: DirectComm) -> torch.Tensor:
        vector = given(comm.rank, 0, numel)
        comm.all_reduce(vector).wait()
        return vector

    results = on_every_rank(group(world_size, connections, one_shot_bytes=one_shot_bytes), body)
    total = given(0, 0, numel)
    for rank in range(1, world_size):  # in the order of ranks, so every run has the same bits
        total += given(rank, 0, numel)
    assert all(torch.equal(result, total / world_size) for result in results)


def test_an_all_reduce_works_on_a_slice_and_does_not_change_its_neighbours(group):
    def body(comm: DirectComm) -> list[float]:
        vector = torch.full((9,), float(comm.rank))
        comm.all_reduce(vector[3:6]).wait()
        return vector.tolist()

    assert on_every_rank(group(2), body) == [[0] * 3 + [0.5] * 3 + [0] * 3, [1] * 3 + [0.5] * 3 + [1] * 3]


@pytest.mark.parametrize("connections", [1, 2])
def test_many_operations_in_flight_do_not_mix_and_can_be_awaited_in_any_order(group, connections):
    numels = [(37 * number) % 501 for number in range(120)] + [70_000, 3, 100_000]

    def body(comm: DirectComm) -> list[torch.Tensor]:
        vectors = [given(comm.rank, number, numel) for number, numel in enumerate(numels)]
        works = [comm.all_reduce(vector) for vector in vectors]
        for work in works[:: -1 if comm.rank % 2 else 1]:
            work.wait()
        return vectors

    results = on_every_rank(group(3, connections, one_shot_bytes=1000), body)  # some of them one-shot
    for number, numel in enumerate(numels):
        expected = torch.stack([given(rank, number, numel) for rank in range(3)]).mean(0)
        torch.testing.assert_close(results[0][number], expected)
        assert torch.equal(results[0][number], results[1][number])
        assert torch.equal(results[0][number], results[2][number])


def test_early_contributions_are_kept_until_the_operation_is_issued(group):
    early, late = group(2)
    vectors = [torch.full((10_000,), float(number)) for number in range(5)]
    works = [early.all_reduce(vector) for vector in vectors]
    time.sleep(0.05)
    assert not any(work.done() for work in works)
    for number in range(5):
        vector = torch.full((10_000,), number + 1.0)
        late.all_reduce(vector).wait()
        works[number].wait()
        assert torch.equal(vector, torch.full((10_000,), number + 0.5))
        assert torch.equal(vectors[number], vector)


def test_all_reduces_and_messages_can_be_interleaved(group):
    def body(comm: DirectComm) -> list[float]:
        received, vector = torch.zeros(3), torch.full((3,), float(comm.rank))
        works = [
            comm.recv(received, 1 - comm.rank),
            comm.all_reduce(vector),
            comm.send(torch.full((3,), 10.0 + comm.rank), 1 - comm.rank),
        ]
        for work in works:
            work.wait()
        return [*received.tolist(), *vector.tolist()]

    assert on_every_rank(group(2), body) == [[11.0] * 3 + [0.5] * 3, [10.0] * 3 + [0.5] * 3]


def test_one_worker_alone_has_its_mean_at_once(group):
    (comm,) = group(1)
    vector = torch.ones(3)
    work = comm.all_reduce(vector)
    assert work.done()
    work.wait()
    assert vector.tolist() == [1.0] * 3


def test_a_vector_with_gaps_is_refused(group):
    first, _ = group(2)
    message = "direct: a message must be a contiguous CPU tensor"
    assert failure(lambda: first.all_reduce(torch.zeros(4, 4)[:, 1])) == message


# ---------------------------------------------------------------- send and recv


@pytest.mark.parametrize("connections", [1, 2])
def test_messages_between_two_ranks_keep_their_order(group, connections):
    first, second = group(2, connections)
    for number in range(50):
        first.send(torch.full((5_000 if number % 3 == 0 else 1,), float(number)), 1)
    for number in range(50):
        vector = torch.zeros(5_000 if number % 3 == 0 else 1)
        second.recv(vector, 0).wait()
        assert torch.equal(vector, torch.full_like(vector, float(number)))


def test_receives_posted_first_are_filled_in_order_and_by_sender(group):
    zero, one, two = group(3)
    from_one, from_two = [torch.zeros(1) for _ in range(3)], [torch.zeros(1) for _ in range(3)]
    works = [two_way for i in range(3) for two_way in (zero.recv(from_one[i], 1), zero.recv(from_two[i], 2))]
    for number in range(3):
        two.send(torch.tensor([20.0 + number]), 0).wait()
        one.send(torch.tensor([10.0 + number]), 0).wait()
    for work in works:
        work.wait()
    assert [v.item() for v in from_one] == [10.0, 11.0, 12.0]
    assert [v.item() for v in from_two] == [20.0, 21.0, 22.0]


def test_a_sent_vector_can_be_changed_at_once(group):
    first, second = group(2)
    vector = torch.arange(2_000_000.0)
    work = first.send(vector, 1)
    vector.zero_()
    received = torch.zeros(2_000_000)
    second.recv(received, 0).wait()
    work.wait()
    assert torch.equal(received, torch.arange(2_000_000.0))


def test_an_empty_message_is_delivered(group):
    first, second = group(2)
    first.send(torch.zeros(0), 1).wait()
    first.send(torch.ones(1), 1).wait()
    second.recv(torch.zeros(0), 0).wait()
    after = torch.zeros(1)
    second.recv(after, 0).wait()
    assert after.item() == 1.0


def test_done_shows_when_a_message_has_arrived(group):
    first, second = group(2)
    vector = torch.zeros(1)
    work = second.recv(vector, 0)
    assert not work.done()
    first.send(torch.ones(1), 1)
    work.wait()
    assert work.done()
    work.wait()  # waiting again changes nothing
    assert vector.item() == 1.0


@pytest.mark.parametrize("early", [True, False])
def test_a_message_of_another_size_is_an_error_at_the_receiver(group, early):
    first, second = group(2)
    if early:
        first.send(torch.zeros(3), 1).wait()
        time.sleep(0.02)
    work = second.recv(torch.zeros(2), 0)
    first.send(torch.zeros(3), 1)
    sizes = "rank 0 sent a message of 12 bytes; expected 8, the size of the buffer"
    assert failure(work.wait) == f"direct: recv from rank 0 failed: {sizes}"


# ---------------------------------------------------------------- ranks that disagree


@pytest.mark.parametrize("one_shot_bytes", [0, 16, 1 << 20])
@pytest.mark.parametrize(
    "sizes",
    [(10, 20), (1, 2), (2, 1), (0, 5), (3, 3, 4), (4, 3, 3), (5, 6, 5), (1, 1, 0), (32_768, 49_152), (60_000, 100)],
)
def test_different_sizes_are_an_error_on_every_rank_and_not_a_hang(group, sizes, one_shot_bytes):
    def both(comm: DirectComm) -> None:
        # If a rank's pieces happen to have the sizes of the others, its first operation can succeed, but not the next.
        comm.all_reduce(torch.zeros(sizes[comm.rank])).wait()
        comm.all_reduce(torch.zeros(10)).wait()

    def body(comm: DirectComm) -> str:
        return failure(lambda: both(comm))

    for message in on_every_rank(group(len(sizes), one_shot_bytes=one_shot_bytes), body):
        assert message.startswith("direct: all_reduce failed: ranks disagree on the size of all_reduce 0: rank ")


def test_the_error_names_the_ranks_that_disagree(group):
    first, second = group(2)
    works = [first.all_reduce(torch.zeros(3)), second.all_reduce(torch.zeros(4))]  # pieces of 2 + 1 and 2 + 2
    for work in works:
        assert failure(work.wait) == (
            "direct: all_reduce failed: ranks disagree on the size of all_reduce 0: "
            "rank 0 sent 4 bytes; rank 1 expected 8"
        )


def test_after_an_error_everything_else_fails_with_the_first_reason(group):
    first, second = group(2)
    waiting = [first.all_reduce(torch.zeros(5)), first.recv(torch.zeros(1), 1)]
    second.all_reduce(torch.zeros(6))
    for action in (*[work.wait for work in waiting], lambda: first.all_reduce(torch.zeros(1)).wait()):
        assert "ranks disagree on the size of all_reduce 0" in failure(action)
    assert "ranks disagree" in failure(first.send(torch.zeros(1), 1).wait)
    assert "ranks disagree" in failure(first.recv(torch.zeros(1), 1).wait)


# ---------------------------------------------------------------- peers that disconnect


def test_a_peer_that_closes_fails_everything_pending_and_is_named(group):
    staying, going, third = group(3)
    pending = {
        "all_reduce": staying.all_reduce(torch.zeros(100)),
        "recv from rank 2": staying.recv(torch.zeros(1), 2),
        "send to rank 1": staying.send(torch.zeros(20_000_000), 1),  # more than the sockets hold
    }
    going.close()
    for what, work in pending.items():
        message = failure(work.wait)
        assert message.startswith(f"direct: {what} failed: "), message
        assert "rank 1" in message
    assert "rank 1" in failure(staying.all_reduce(torch.zeros(1)).wait)
    assert "rank 1" in failure(third.recv(torch.zeros(1), 0).wait)


def test_a_rank_can_leave_while_another_still_reduces_what_it_sent(group, monkeypatch):
    staying, going = group(2)
    reducing, may_end = threading.Event(), threading.Event()

    def reduce_slowly(own: torch.Tensor, rank: int, *others: Any) -> None:
        if rank == staying.rank:
            reducing.set()
            assert may_end.wait(10)
        tensors.reduce(own, rank, *others)

    monkeypatch.setattr(direct, "reduce", reduce_slowly)

    def body(comm: DirectComm) -> float:
        pieces = [torch.full((3,), 1.0 + comm.rank) for _ in range(2)]
        if comm is staying:
            time.sleep(0.1)  # what the other sends arrives first, so this thread reduces it
        comm.reduce_scatter(pieces).wait()
        if comm is going:
            assert reducing.wait(10)
            comm.leave()
            time.sleep(0.1)
            may_end.set()
        return pieces[comm.rank][0].item()

    assert on_every_rank([staying, going], body) == [1.5, 1.5]


def test_a_finished_operation_stays_finished_when_the_peer_disconnects(group):
    first, second = group(2)
    works = [comm.all_reduce(torch.zeros(3)) for comm in (first, second)]
    for work in works:
        work.wait()
    second.close()
    assert "rank 1 closed the connection" in failure(first.recv(torch.zeros(1), 1).wait)
    works[0].wait()


def test_a_silent_peer_is_a_timeout(group):
    first, _ = group(2, timeout_s=0.1)
    late = "direct: all_reduce did not end within its timeout of 0.1 s; it waits for rank 1"
    assert failure(first.all_reduce(torch.zeros(3)).wait) == late


def test_the_error_names_the_ranks_that_did_not_connect():
    listeners = [mesh.listen(LOCALHOST) for _ in range(3)]
    addresses = [listener.getsockname()[:2] for listener in listeners]
    messages: queue.Queue[str] = queue.Queue()

    def join(rank: int) -> None:
        messages.put(failure(lambda: mesh.connect(listeners[rank], rank, addresses, connections=1, timeout_s=2.0)))

    threads = [threading.Thread(target=join, args=(rank,)) for rank in (0, 1)]  # rank 2 never connects
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listeners[2].close()
    assert sorted([messages.get(), messages.get()]) == [
        "direct: rank 0 has no connection to ranks [2]: timed out",
        "direct: rank 1 has no connection to ranks [2]: timed out",
    ]


def test_connecting_to_a_rank_that_is_gone_is_an_error_at_once():
    gone, listener = mesh.listen(LOCALHOST), mesh.listen(LOCALHOST)
    addresses = [gone.getsockname()[:2], listener.getsockname()[:2]]
    gone.close()
    message = failure(lambda: mesh.connect(listener, 1, addresses, connections=1, timeout_s=5.0))
    assert message == "direct: rank 1 has no connection to ranks [0]: [Errno 111] Connection refused"


def test_a_rank_that_gives_up_tells_its_reason_behind_half_sent_frames(group):
    """At 2 MB/s, most of a vector has not left when rank 0 no longer hears rank 1."""
    paces = {rank: mesh.Pace(2e6, 2e6) for rank in range(3)}

    def body(comm: DirectComm) -> str:
        part = torch.zeros(1_000_000)
        comm.all_gather(part, [part.clone() for _ in range(3)])
        if comm.rank == 0:
            time.sleep(0.1)  # the gather is under way
            comm._mesh._connections[1, 0].sock.shutdown(socket.SHUT_RD)
        return failure(comm.all_reduce(torch.zeros(3)).wait)

    of_rank = on_every_rank(group(3, paces=paces, one_shot_bytes=100), body)
    assert of_rank[0] == "direct: all_reduce failed: rank 1 closed the connection"
    assert of_rank[2] != "direct: all_reduce failed: rank 0 closed the connection", "it only told the reason"


# ---------------------------------------------------------------- cleaning up


def resources() -> tuple[set[str], int]:
    return {thread.name for thread in threading.enumerate()}, len(os.listdir("/proc/self/fd"))


def test_close_leaves_no_thread_and_no_descriptor():
    before = resources()
    comms = connected(3, connections=2)
    for comm in comms:
        comm.all_reduce(torch.zeros(10))
    assert resources() != before
    for comm in comms:
        comm.close()
    assert resources() == before


def test_a_group_that_failed_can_be_closed_and_leaves_nothing():
    before = resources()
    first, second = connected(2)
    first.all_reduce(torch.zeros(3))
    second.all_reduce(torch.zeros(4))
    assert failure(first.all_reduce(torch.zeros(3)).wait)
    first.close()
    second.close()
    assert resources() == before


def test_a_failed_connect_leaves_no_descriptor():
    before = resources()
    listeners = [mesh.listen(LOCALHOST) for _ in range(2)]
    addresses = [listener.getsockname()[:2] for listener in listeners]
    # Rank 1 of three connects to rank 0 and then waits for rank 2, which never connects.
    failure(lambda: mesh.connect(listeners[1], 1, [*addresses, (LOCALHOST, 1)], connections=1, timeout_s=0.05))
    listeners[0].close()
    assert resources() == before


def test_small_messages_are_sent_at_once(group):
    for comm in group(2):
        for connection in comm._mesh._connections.values():
            assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
