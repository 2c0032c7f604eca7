"""Replicas in threads average vectors, in any interleaving, and fail instead of hanging."""

from __future__ import annotations

import pytest
import torch

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.local import run_replicas


def test_all_ranks_get_the_mean_with_the_same_bits():
    def body(comm):
        vector = torch.randn(50, generator=torch.Generator().manual_seed(comm.rank))
        work = comm.all_reduce(vector)
        work.wait()
        return vector

    results = run_replicas(3, body)
    expected = torch.stack([torch.randn(50, generator=torch.Generator().manual_seed(r)) for r in range(3)]).mean(0)
    torch.testing.assert_close(results[0], expected)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_results_can_be_awaited_in_any_order():
    def body(comm):
        first, second = torch.full((2,), float(comm.rank)), torch.full((3,), 10.0 * comm.rank)
        works = [comm.all_reduce(first), comm.all_reduce(second)]
        for work in reversed(works) if comm.rank else works:
            work.wait()
            work.wait()
        return first.tolist(), second.tolist(), comm.outstanding, comm.max_outstanding

    assert run_replicas(2, body) == [([0.5, 0.5], [5.0, 5.0, 5.0], 0, 2)] * 2


def test_a_vector_in_flight_cannot_be_read():
    def body(comm):
        vector = torch.ones(2)
        work = comm.all_reduce(vector)
        hidden = bool(vector.isnan().all())
        work.wait()
        return hidden, work.done()

    assert run_replicas(2, body) == [(True, True)] * 2


def test_different_sizes_are_refused_on_every_rank():
    def body(comm):
        with pytest.raises(
            CommError, match=r"^ranks disagree on all_reduce 0: rank \d gave \d+ bytes to all_reduce 0, others \d+$"
        ):
            comm.all_reduce(torch.ones(4 + comm.rank)).wait()
        return True

    assert run_replicas(2, body) == [True, True]


def test_messages_between_two_ranks_keep_their_order():
    def body(comm):
        peer = 1 - comm.rank
        for number in range(3):
            comm.send(torch.tensor([10.0 * comm.rank + number]), peer).wait()
        inbox = [torch.empty(1) for _ in range(3)]
        for work in [comm.recv(letter, peer) for letter in inbox]:
            work.wait()
        return [letter.item() for letter in inbox]

    assert run_replicas(2, body) == [[10.0, 11.0, 12.0], [0.0, 1.0, 2.0]]


def test_a_message_of_another_size_is_refused():
    def body(comm):
        comm.send(torch.ones(2), 0).wait()
        comm.recv(torch.ones(3), 0).wait()

    with pytest.raises(CommError) as error:
        run_replicas(1, body)
    assert str(error.value) == "message 0 from rank 0 has 2 elements; expected 3"


def test_a_peer_that_never_joins_is_reported():
    def body(comm):
        if comm.rank == 0:
            comm.all_reduce(torch.ones(2)).wait()

    with pytest.raises(CommError) as error:
        run_replicas(2, body, timeout_s=0.05)
    assert str(error.value) == "all_reduce 0: peers did not join within 0.05 s"


def test_a_replica_that_fails_releases_the_others_and_its_error_is_raised():
    def body(comm):
        if comm.rank == 0:
            raise ZeroDivisionError("lost")
        with pytest.raises(CommError, match=r"^rank 0 failed: lost$"):
            comm.all_reduce(torch.ones(2)).wait()

    with pytest.raises(ZeroDivisionError, match="lost"):
        run_replicas(2, body)
