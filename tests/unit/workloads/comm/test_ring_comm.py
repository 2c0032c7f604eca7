"""The ring on real TCP: every worker sends to the next one only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from joined_ranks import groups, on_every_rank

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.mesh import HOP, MESSAGE, Frame
from wanbench.workloads.comm.ring import RingComm
from wanbench.workloads.comm.tensors import REDUCTIONS

T = TypeVar("T")
ORDERS = [[0, 1], [0, 1, 2], [0, 2, 1, 3], [3, 1, 4, 0, 2, 5]]


@pytest.fixture
def group(tmp_path: Path):
    """A factory of groups."""
    with groups("ring", tmp_path) as make:
        yield lambda ring, **fields: make(len(ring), ring=ring, **fields)


def failures(comms: list[RingComm], body: Callable[[RingComm], T], besides: int) -> list[str]:
    """The errors of all ranks but one, which may have none."""

    def caught(comm: RingComm) -> str:
        try:
            body(comm)
        except CommError as error:
            return str(error)
        assert comm.rank == besides, f"rank {comm.rank} saw no error"
        return ""

    messages = on_every_rank(comms, caught)
    return [message for rank, message in enumerate(messages) if rank != besides]


def given(rank: int, number: int, numel: int) -> torch.Tensor:
    """The random contribution of a rank, which every rank can compute."""
    return torch.randn(numel, generator=torch.Generator().manual_seed(1000 * number + rank))


@pytest.mark.parametrize("numel", [0, 1, 3, 1001, 300_001, 1_500_007])
@pytest.mark.parametrize("ring", ORDERS)
def test_an_all_reduce_is_the_mean_with_the_same_bits_on_every_rank(group, ring, numel):
    def body(comm: RingComm) -> torch.Tensor:
        vector = given(comm.rank, 0, numel)
        comm.all_reduce(vector).wait()
        return vector

    results = on_every_rank(group(ring), body)
    expected = torch.stack([given(rank, 0, numel) for rank in range(len(ring))]).mean(0)
    torch.testing.assert_close(results[0], expected)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("channels", [1, 3])
def test_operations_in_flight_do_not_mix_and_can_be_awaited_in_any_order(group, channels):
    numels = [(37 * number) % 501 for number in range(60)] + [70_000, 3, 100_000]

    def body(comm: RingComm) -> list[torch.Tensor]:
        vectors = [given(comm.rank, number, numel) for number, numel in enumerate(numels)]
        works = [comm.all_reduce(vector) for vector in vectors]
        for work in works[:: -1 if comm.rank % 2 else 1]:
            work.wait()
        return vectors

    results = on_every_rank(group([0, 3, 1, 4, 2], channels=channels), body)
    for number, numel in enumerate(numels):
        expected = torch.stack([given(rank, number, numel) for rank in range(5)]).mean(0)
        torch.testing.assert_close(results[0][number], expected)
        assert all(torch.equal(result[number], results[0][number]) for result in results)


def test_a_worker_sends_nothing_but_its_chunks_and_those_to_the_next_one_only(group, monkeypatch):
    comms = group([0, 2, 1, 3])
    receivers: set[tuple[int, int]] = set()
    for comm in comms:
        send_all = comm._mesh.send_all

        def noted(frames, rank=comm.rank, send_all=send_all):
            frames = list(frames)
            receivers.update((rank, peer) for peer, _ in frames)
            send_all(frames)

        monkeypatch.setattr(comm._mesh, "send_all", noted)
    on_every_rank(comms, lambda comm: comm.all_reduce(torch.ones(100_000)).wait())
    assert receivers == {(0, 2), (2, 1), (1, 3), (3, 0)}


@pytest.mark.parametrize("ring", ORDERS)
def test_an_all_gather_goes_around_the_ring(group, ring):
    def body(comm: RingComm) -> list[torch.Tensor]:
        parts = [torch.zeros(50_001) for _ in ring]
        comm.all_gather(given(comm.rank, 0, 50_001), parts).wait()
        return parts

    for parts in on_every_rank(group(ring), body):
        assert all(torch.equal(part, given(rank, 0, 50_001)) for rank, part in enumerate(parts))


def test_messages_go_directly(group):
    def body(comm: RingComm) -> float:
        received = torch.zeros(1)
        works = [comm.recv(received, (comm.rank - 2) % 4), comm.send(torch.ones(1) * comm.rank, (comm.rank + 2) % 4)]
        for work in works:
            work.wait()
        return received.item()

    assert on_every_rank(group([0, 1, 2, 3]), body) == [2, 3, 0, 1]


def test_half_precision_is_added_up_in_single_precision_where_that_is_asked(group):
    def body(comm: RingComm) -> torch.Tensor:
        vector = torch.full((5,), 2048.0 if comm.rank == 0 else 1.0, dtype=torch.float16)
        comm.all_reduce(vector, REDUCTIONS["sum"]).wait()
        return vector

    for result in on_every_rank(group([0, 1, 2]), body):
        assert result.tolist() == [2050.0] * 5  # 2048 + 1 is 2048 in half precision


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("how", ["close", "leave"])
@pytest.mark.parametrize("gone", range(4))
def test_a_peer_that_is_gone_is_named_on_every_rank(group, gone, how):
    all_have_it = threading.Barrier(4)

    def body(comm: RingComm) -> None:
        comm.all_reduce(torch.ones(10)).wait()
        all_have_it.wait()
        if comm.rank == gone:
            getattr(comm, how)()
        else:
            comm.all_reduce(torch.ones(10)).wait()

    for message in failures(group([0, 2, 1, 3]), body, gone):
        assert f"rank {gone}" in message


@pytest.mark.parametrize("gone", range(4))
def test_a_rank_can_leave_as_soon_as_it_has_its_own_result(group, gone):
    def body(comm: RingComm) -> torch.Tensor:
        vector = given(comm.rank, 0, 400_000)
        comm.all_reduce(vector).wait()
        if comm.rank == gone:
            comm.leave()
        return vector

    results = on_every_rank(group([0, 2, 1, 3]), body)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("late", range(4))
def test_a_late_rank_is_named_on_every_rank(group, late):
    def body(comm: RingComm) -> None:
        if comm.rank != late:
            comm.all_reduce(torch.ones(10)).wait()

    comms = group([0, 2, 1, 3])
    for comm in comms:
        comm.timeout_s = 1.0
    for message in failures(comms, body, late):
        assert message.endswith(f"did not end within its timeout of 1 s; it waits for rank {late}")


def test_ranks_that_disagree_on_the_size_are_named_on_every_rank(group):
    def body(comm: RingComm) -> None:
        comm.all_reduce(torch.ones(40 if comm.rank == 1 else 30)).wait()

    for message in failures(group([0, 1, 2]), body, besides=-1):
        assert "ranks disagree on the size of all_reduce 0: rank " in message


MEAN = b"all_reduce by mean of float32"


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (Frame(HOP + 2, 0, memoryview(b""), lambda: None, 0), "rank 0 sent a frame of kind 9; expected 0 to 7"),
        (
            Frame(HOP, 0, memoryview(b"12345"), lambda: None, 0, last=False, about=MEAN),
            "rank 0 sent 5 bytes; rank 1 expected 16",
        ),
        (
            Frame(HOP, 0, memoryview(bytes(16)), lambda: None, 0, chunk=99),
            "rank 0 sent 16 bytes; rank 1 expected nothing",
        ),
        (Frame(MESSAGE + 1, 0, memoryview(b"a reason"), lambda: None, 0), "a reason"),
    ],
)
def test_a_malformed_frame_names_its_sender_on_every_rank(group, frame, message):
    comms = group([0, 1, 2])

    def body(comm: RingComm) -> None:
        if comm.rank == 0:
            comm._mesh.send_all([(1, frame)])
        else:
            comm.all_reduce(torch.ones(12)).wait()

    for caught in failures(comms, body, besides=0):
        assert message in caught


def test_a_frame_of_a_rank_that_is_not_the_one_before_is_an_error(group):
    issued = threading.Barrier(3)

    def body(comm: RingComm) -> None:
        work = comm.all_reduce(torch.ones(12)) if comm.rank != 2 else None
        issued.wait()
        if work is not None:
            work.wait()
            return
        comm._mesh.send_all([(1, Frame(HOP, 0, memoryview(bytes(16)), lambda: None, 0, last=False, about=MEAN))])

    for caught in failures(group([0, 1, 2]), body, besides=2):
        assert "rank 2 sent more than operation 0 needs" in caught


def test_a_chunk_that_comes_twice_is_an_error(group):
    issued = threading.Barrier(3)

    def body(comm: RingComm) -> None:
        work = comm.all_reduce(torch.ones(12)) if comm.rank else None
        issued.wait()
        if work is not None:
            work.wait()
            return
        twice = Frame(HOP, 0, memoryview(bytes(16)), lambda: None, 0, last=False, about=MEAN)
        comm._mesh.send_all([(1, twice), (1, twice)])

    for caught in failures(group([0, 1, 2]), body, besides=0):
        assert "rank 0 sent chunk 0 of all_reduce 0 twice" in caught


def test_closing_leaves_no_thread(group):
    before = threading.active_count()
    for comm in group([0, 1, 2]):
        comm.close()
    assert threading.active_count() == before
