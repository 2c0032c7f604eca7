"""`final` leaves the mean model of all ranks on each of them, and ends the training."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from wanbench import DTS, SGP, SSGD, LocalSGD
from wanbench.workloads.algorithms.base import Algorithm
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.wrap.flat import WrapError
from wanbench.workloads.wrap.wrapped import Wrapped

RANKS, STEPS = 3, 7


def model_of(rank):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    model.register_buffer("table", torch.arange(3) + rank)
    model[0].bias.requires_grad_(False)
    return model


def trained(comm, make):
    model = model_of(comm.rank)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    training = Wrapped(model, optimizer, make(), comm, make_equal=partial(from_rank_0, comm))
    draw = torch.Generator().manual_seed(comm.rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(5, 3, generator=draw, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
    return model, training, optimizer


def from_rank_0(comm, tensors):
    """A broadcast by messages."""
    for tensor in tensors:
        value = tensor.reshape(-1).double()
        works = (
            [comm.send(value, peer) for peer in range(1, comm.world_size)] if not comm.rank else [comm.recv(value, 0)]
        )
        for work in works:
            work.wait()
        tensor.copy_(value.view(tensor.shape))


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize(
    ("make", "agrees"),
    [(SSGD, True), (partial(LocalSGD, 4), True), (SGP, False), (partial(DTS, 2, 2, compression="topk"), False)],
)
def test_every_rank_holds_the_mean_of_the_drained_models_to_the_bit(make, agrees):
    def body(comm):
        model, training, _ = trained(comm, make)
        training.drain()
        before = state(model)
        training.final()
        return before, state(model)

    results = run_replicas(RANKS, body)
    drained, finals = [before for before, _ in results], [after for _, after in results]
    for name, first in finals[0].items():
        assert all(torch.equal(other[name], first) for other in finals)
        values = [before[name] for before in drained]
        if first.is_floating_point():
            assert torch.allclose(first, sum(values) / RANKS, rtol=0, atol=1e-12)
        else:
            assert torch.equal(first, values[0])
    spread = max(float((before["2.weight"] - finals[0]["2.weight"]).abs().max()) for before in drained)
    assert (spread < 1e-12) == agrees
    assert (drained[0]["1.running_mean"] - drained[1]["1.running_mean"]).abs().max() > 1e-3


def test_ranks_that_never_communicated_keep_the_model_of_rank_0():
    def body(comm):
        model, training, _ = trained(comm, Algorithm)
        own = state(model)
        training.final()
        return own, state(model)

    (own, first), (_, second), _ = run_replicas(RANKS, body)
    for name, value in own.items():
        assert torch.equal(value, first[name])
        assert torch.equal(value, second[name])


@pytest.mark.parametrize("act", ["step", "drain", "final", "state_dict"])
def test_nothing_follows_final(act):
    def body(comm):
        _, training, optimizer = trained(comm, SSGD)
        training.final()
        {"step": optimizer.step}.get(act, getattr(training, act, None))()

    with pytest.raises(WrapError, match=r"^final\(\) has ended this training; wrap a new optimizer to go on from its"):
        run_replicas(1, body)
