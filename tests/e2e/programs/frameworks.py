"""FSDP2, a PowerSGD hook, ZeRO, DTensor and object collectives as their tutorials have them; it asks for gloo."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def train(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    torch.manual_seed(dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(torch.randn(32, 64)), torch.randint(10, (32,)))
        loss.backward()
        optimizer.step()
    total = loss.detach()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def sharded() -> float:
    network = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in network:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return train(network, torch.optim.AdamW(network.parameters(), lr=0.01))


def compressed() -> float:
    network = DistributedDataParallel(model())
    state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    network.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(network, torch.optim.SGD(network.parameters(), lr=0.05))


def redundant() -> float:
    network = DistributedDataParallel(model())
    return train(network, ZeroRedundancyOptimizer(network.parameters(), torch.optim.Adam, lr=0.01))


def tensors() -> float:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    matrix = torch.arange(24.0).view(6, 4)
    product = distribute_tensor(matrix, mesh, [Shard(0)]) @ distribute_tensor(matrix.t().contiguous(), mesh, [Shard(1)])
    return float(product.full_tensor().sum())


def objects() -> float:
    every: list = [None] * dist.get_world_size()
    dist.all_gather_object(every, {"rank": dist.get_rank()})
    box = [every if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    odd = dist.new_group(range(1, dist.get_world_size()))
    one = torch.ones(1)
    if dist.get_rank():
        dist.all_reduce(one, group=odd)
    dist.barrier()
    return float(sum(item["rank"] for item in box[0]) + one)


dist.init_process_group("gloo")
for each in (sharded, compressed, redundant, tensors, objects):
    result = each()
    if dist.get_rank() == dist.get_world_size() - 1:
        print(f"{each.__name__} {result:.5f}", flush=True)
dist.destroy_process_group()
