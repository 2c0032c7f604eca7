"""The communication graphs of gossip algorithms."""

from __future__ import annotations

import pytest
import torch

from wanbench.workloads.algorithms.gossip import exponential, ring, turns


def mixing(world_size, step, peers):
    """Return the column-stochastic matrix of equal shares that ranks send to each other."""
    matrix = torch.zeros(world_size, world_size, dtype=torch.float64)
    for rank in range(world_size):
        outs, _ = exponential(rank, step, world_size, peers)
        for dst in [rank, *outs]:
            matrix[dst, rank] = 1 / (len(outs) + 1)
    return matrix


@pytest.mark.parametrize("world_size", [2, 4, 8, 16, 64])
def test_for_powers_of_two_one_round_with_one_peer_averages_over_all(world_size):
    product = torch.eye(world_size, dtype=torch.float64)
    for step in range(turns(world_size, 1)):
        product = mixing(world_size, step, 1) @ product
    torch.testing.assert_close(product, torch.full_like(product, 1 / world_size))


def test_sixteen_workers_hop_one_two_four_and_eight_ranks_in_turn():
    hops = [exponential(3, step, 16, 1)[0] for step in range(5)]
    assert hops == [[4], [5], [7], [11], [4]]


def test_with_two_peers_hops_are_powers_of_three_and_their_doubles():
    assert [exponential(0, step, 27, 2)[0] for step in range(3)] == [[1, 2], [3, 6], [9, 18]]
    assert turns(27, 2) == 3


@pytest.mark.parametrize("peers", [1, 2, 3])
@pytest.mark.parametrize("world_size", range(2, 13))
def test_every_receiver_expects_its_message_and_no_rank_sends_to_itself(world_size, peers):
    for step in range(6):
        sent = {(rank, dst) for rank in range(world_size) for dst in exponential(rank, step, world_size, peers)[0]}
        due = {(src, rank) for rank in range(world_size) for src in exponential(rank, step, world_size, peers)[1]}
        assert sent == due
        assert all(a != b for a, b in sent)
        assert sent
        matrix = mixing(world_size, step, peers)
        torch.testing.assert_close(matrix.sum(dim=0), matrix.sum(dim=1))


def test_a_ring_has_two_neighbours_except_with_two_workers():
    assert ring(0, 5) == [4, 1]
    assert ring(1, 2) == [0]
