"""The hierarchical collective on real TCP: inside each site, then across sites."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from joined_ranks import groups, on_every_rank

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.hierarchical import HierarchicalComm, members_of
from wanbench.workloads.comm.work import DirectWork

T = TypeVar("T")
LAYOUTS = [[0, 0], [0, 1], [0, 0, 1, 1], [0, 1, 0, 2], [2, 0, 0, 1, 1, 1]]


@pytest.fixture
def group(tmp_path: Path):
    """A factory of groups."""
    with groups("hierarchical", tmp_path) as make:
        yield lambda site_of: make(len(site_of), site_of=site_of)


def given(rank: int, number: int, numel: int) -> torch.Tensor:
    """The random contribution of a rank, which every rank can compute."""
    return torch.randn(numel, generator=torch.Generator().manual_seed(1000 * number + rank))


def test_the_first_worker_of_each_site_is_its_leader():
    assert members_of([2, 0, 0, 1, 1, 1], rank=4) == ([3, 4, 5], [0, 1, 3])


@pytest.mark.parametrize("numel", [0, 1, 3, 1001, 300_001])
@pytest.mark.parametrize("site_of", LAYOUTS)
def test_an_all_reduce_is_the_mean_with_the_same_bits_on_every_rank(group, site_of, numel):
    def body(comm: HierarchicalComm) -> torch.Tensor:
        vector = given(comm.rank, 0, numel)
        comm.all_reduce(vector).wait()
        return vector

    results = on_every_rank(group(site_of), body)
    expected = torch.stack([given(rank, 0, numel) for rank in range(len(site_of))]).mean(0)
    torch.testing.assert_close(results[0], expected)
    assert all(torch.equal(result, results[0]) for result in results)


def test_operations_in_flight_do_not_mix_and_can_be_awaited_in_any_order(group):
    numels = [(37 * number) % 501 for number in range(60)] + [70_000, 3, 100_000]

    def body(comm: HierarchicalComm) -> list[torch.Tensor]:
        vectors = [given(comm.rank, number, numel) for number, numel in enumerate(numels)]
        works = [comm.all_reduce(vector) for vector in vectors]
        for work in works[:: -1 if comm.rank % 2 else 1]:
            work.wait()
        return vectors

    results = on_every_rank(group([0, 0, 1, 1, 1]), body)
    for number, numel in enumerate(numels):
        expected = torch.stack([given(rank, number, numel) for rank in range(5)]).mean(0)
        torch.testing.assert_close(results[0][number], expected)
        assert all(torch.equal(result[number], results[0][number]) for result in results)


def test_messages_and_all_gathers_go_directly(group):
    def body(comm: HierarchicalComm) -> list[float]:
        received, parts = torch.zeros(1), [torch.zeros(1) for _ in range(4)]
        works = [comm.recv(received, (comm.rank - 1) % 4), comm.all_gather(torch.full((1,), float(comm.rank)), parts)]
        works += [comm.send(torch.full((1,), 10.0 + comm.rank), (comm.rank + 1) % 4)]
        for work in works:
            work.wait()
        return [received.item(), *(part.item() for part in parts)]

    assert on_every_rank(group([0, 0, 1, 1]), body) == [[10.0 + (rank - 1) % 4, 0, 1, 2, 3] for rank in range(4)]


@pytest.mark.parametrize("gone", range(4))
def test_a_peer_that_is_gone_is_named_on_every_rank_of_every_site(group, gone):
    all_have_it = threading.Barrier(4)

    def body(comm: HierarchicalComm) -> str:
        comm.all_reduce(torch.ones(10)).wait()
        all_have_it.wait()
        if comm.rank == gone:
            comm.close()
            return ""
        with pytest.raises(CommError) as caught:
            comm.all_reduce(torch.ones(10)).wait()
        return str(caught.value)

    messages = on_every_rank(group([0, 0, 1, 1]), body)
    assert all(f"rank {gone}" in message for rank, message in enumerate(messages) if rank != gone), messages


def test_a_mean_that_waits_for_an_earlier_one_fails_with_it(group, monkeypatch):
    leader, _ = group([0, 1])
    across = [DirectWork("all_reduce", 10.0) for _ in range(2)]
    issued = iter(across)
    monkeypatch.setattr(leader._across, "all_reduce", lambda vector, reduction: next(issued))
    works = [leader.all_reduce(torch.ones(10)) for _ in range(2)]
    across[1].complete()
    assert not works[1].done()
    across[0].complete("rank 1 is gone")
    for work in works:
        assert work.done()
        with pytest.raises(CommError, match="rank 1 is gone"):
            work.wait()


def test_closing_leaves_no_thread(group):
    before = threading.active_count()
    for comm in group([0, 0, 1]):
        comm.close()
    assert threading.active_count() == before
