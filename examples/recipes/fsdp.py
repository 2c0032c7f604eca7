"""FSDP2: parameters, gradients and optimizer states are sharded over all workers."""

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 10

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(1 + dist.get_rank())  # every rank has its own data
began = time.monotonic()
for _ in range(STEPS):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(10, (32,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
total = loss.detach()
dist.all_reduce(total)
if dist.get_rank() == 0:
    print(f"loss {total / dist.get_world_size():.5f}", flush=True)
    print(f"{1000 * (time.monotonic() - began) / STEPS:.0f} ms per step", flush=True)
dist.destroy_process_group()
time.sleep(0.2)  # gloo's threads can abort a Python that ends at once: pytorch/pytorch#179291
