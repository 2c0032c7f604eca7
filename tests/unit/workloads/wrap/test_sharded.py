"""FSDP2 inside a site, an algorithm between sites: two sites of two shards, four real processes, train as two workers.

The two workers are not sharded. Each has the model of a site, and the batches of both its ranks.
"""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from real_ranks import on_processes
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from wanbench import DTS, SSGD, Delayed, DiLoCo, LocalSGD, StreamingDiLoCo, WrapError, wrap
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.wrap.wrapped import Wrapped

SITES, SHARDS, STEPS, DRAINED = 2, 2, 9, 4
MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01)
ADAMW = partial(torch.optim.AdamW, lr=0.01)

METHODS = {
    "diloco": (partial(DiLoCo, 3), ADAMW),
    "localsgd": (partial(LocalSGD, 2), partial(torch.optim.RMSprop, lr=0.01)),
    "dts in model space": (partial(DTS, 2, 2, form="model"), ADAMW),
    "ssgd": (SSGD, ADAMW),
    "delayed": (partial(Delayed, 2), MOMENTUM),
    "dts": (partial(DTS, 2, 2), MOMENTUM),
}


def module_of(dtype):
    torch.manual_seed(0)
    layers = [nn.BatchNorm1d(6), nn.Linear(6, 15), nn.Tanh(), nn.Linear(15, 3)]  # 15 and 3: shards of unequal size
    return nn.Sequential(*layers).to(dtype)


def batch(step, site, shard, dtype):
    draw = torch.Generator().manual_seed(100 * step + 10 * site + shard)
    return torch.randn(12, 6, generator=draw, dtype=dtype)


def loss_of(model, inputs):
    return nn.functional.cross_entropy(model(inputs), inputs[:, :3].argmax(dim=1))


def sharded_run(make, make_optimizer, mesh, *, dtype=torch.float64, folder=None, resumed=False):
    """Return the losses of this rank, and the whole parameters after `drain` and after `final`."""

    def begin():
        model = module_of(dtype)
        for layer in (model[1], model[3], model):
            fully_shard(layer, mesh=mesh["shard"])
        optimizer = make_optimizer(model.parameters())
        training = wrap(model, optimizer, make(), mesh=mesh["site"])
        return {"model": model, "optimizer": optimizer, "training": training}

    parts = begin()
    losses = []
    for step in range(STEPS):
        parts["optimizer"].zero_grad()
        loss = loss_of(parts["model"], batch(step, *mesh.get_coordinate(), dtype))
        loss.backward()
        parts["optimizer"].step()
        losses.append(loss.detach())
        if step == DRAINED:
            parts["training"].drain()
            if resumed:
                path = Path(folder) / f"checkpoint-{dist.get_rank()}.pt"
                torch.save({name: part.state_dict() for name, part in parts.items()}, path)
                parts, saved = begin(), torch.load(path)
                for name, part in parts.items():
                    part.load_state_dict(saved[name])
    parts["training"].drain()
    drained = whole(parts["model"])
    parts["training"].final()
    return torch.stack(losses), drained, whole(parts["model"])


def whole(model):
    return torch.cat([p.full_tensor().detach().reshape(-1) for p in model.parameters()])


def everything():
    """What all tests of four ranks need, so that these start once."""
    mesh = init_device_mesh("cpu", (SITES, SHARDS), mesh_dim_names=("site", "shard"))
    results = {name: sharded_run(*pair, mesh) for name, pair in METHODS.items()}
    return results | {"ddp": ddp_run(mesh), "refused": refusals(mesh)}


def two_workers(make, make_optimizer):
    """The same with two workers and whole models; the gradient is the mean over both ranks of a site."""
    base = module_of(torch.float64)

    def body(comm):
        model = copy.deepcopy(base)
        optimizer = make_optimizer(model.parameters())
        training = Wrapped(model, optimizer, make(), comm)
        history = []
        for step in range(STEPS):
            optimizer.zero_grad()
            losses = [loss_of(model, batch(step, comm.rank, shard, torch.float64)) for shard in range(SHARDS)]
            (sum(losses) / SHARDS).backward()
            optimizer.step()
            history.append(torch.stack(losses).detach())
            if step == DRAINED:
                training.drain()
        training.drain()
        return torch.stack(history), torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    return run_replicas(SITES, body)


@pytest.fixture(scope="module")
def of_four(tmp_path_factory):
    return on_processes(SITES * SHARDS, tmp_path_factory.mktemp("four"), everything)


@pytest.mark.parametrize("name", METHODS)
def test_two_sites_of_two_shards_train_as_two_workers(of_four, name):
    sites = two_workers(*METHODS[name])
    for rank, results in enumerate(of_four):
        losses, drained, final = results[name]
        site, shard = divmod(rank, SHARDS)
        expected, w = sites[site]
        assert torch.allclose(losses, expected[:, shard], rtol=0, atol=1e-12)
        assert torch.allclose(drained, w, rtol=0, atol=1e-12)
        assert torch.allclose(final, sum(w for _, w in sites) / SITES, rtol=0, atol=1e-12)
        assert torch.equal(final, of_four[0][name][2])
    first, last = (sum(float(losses[step].sum()) for losses, _ in sites) for step in (0, -1))
    assert last < first - 0.1


OF_EACH_SHARD = {  # the largest elements and the fragments are those of the shard, not of the model
    "dts with topk": (partial(DTS, 2, 2, form="model", compression="topk"), ADAMW),
    "streaming diloco": (partial(StreamingDiLoCo, 4, 2, delay=1), ADAMW),
}


def ddp_run(mesh):
    """Return the parameters after training with DDP inside a site, and DiLoCo between sites."""
    make, make_optimizer = METHODS["diloco"]
    module = module_of(torch.float64)
    model = DistributedDataParallel(module, process_group=mesh["shard"].get_group())
    optimizer = make_optimizer(module.parameters())
    training = wrap(module, optimizer, make(), mesh=mesh["site"])
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, batch(step, *mesh.get_coordinate(), torch.float64)).backward()
        optimizer.step()
        if step == DRAINED:
            training.drain()
    training.drain()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def test_ddp_inside_a_site_trains_as_two_workers_too(of_four):
    sites = two_workers(*METHODS["diloco"])
    for rank, results in enumerate(of_four):
        assert torch.allclose(results["ddp"], sites[rank // SHARDS][1], rtol=0, atol=1e-12)


RESUMED = ("diloco", "localsgd", "delayed", *OF_EACH_SHARD)


def resumed(folder):
    mesh = init_device_mesh("cpu", (SITES, SHARDS), mesh_dim_names=("site", "shard"))
    run = partial(sharded_run, mesh=mesh, dtype=torch.float32, folder=folder)
    return {name: [run(*(METHODS | OF_EACH_SHARD)[name], resumed=again) for again in (False, True)] for name in RESUMED}


@pytest.mark.long  # a run without shards is resumed each time
def test_a_run_resumed_from_a_checkpoint_equals_a_whole_one_to_the_bit(tmp_path):
    for results in on_processes(SITES * SHARDS, tmp_path, resumed, str(tmp_path)):
        for name, (one, again) in results.items():
            assert all(map(torch.equal, one, again)), name


def refusals(mesh):
    messages = []
    for over, between in ((mesh["shard"], None), (mesh["shard"], mesh["shard"]), (mesh, mesh["site"])):
        model = module_of(torch.float32)
        fully_shard(model, mesh=over)
        with pytest.raises(WrapError) as error:
            wrap(model, ADAMW(model.parameters()), "diloco", period=2, mesh=between)
        messages.append(str(error.value))
    return messages


def test_a_dimension_over_which_parameters_are_sharded_is_refused(of_four):
    for rank, results in enumerate(of_four):
        site, shard = divmod(rank, SHARDS)
        peers = [2 * site, 2 * site + 1]
        others = [peers, peers, [shard, 2 + shard]]
        assert results["refused"] == [
            f"parameter '0.weight' is sharded over ranks {ranks}, which would be averaged; pass "
            'mesh=mesh["site"], the dimension along which ranks hold the same shard'
            for ranks in others
        ]
