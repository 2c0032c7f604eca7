"""DistributedDataParallel as its tutorial has it; this script does not use wanbench."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    began = time.monotonic()
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(10, (32,)))
        loss.backward()
        optimizer.step()
    seconds = (time.monotonic() - began) / 10
    total = sum(float(p.detach().sum()) for p in model.parameters())
    print(f"rank {rank} of {size} local {os.environ['LOCAL_RANK']} step {seconds:.4f} sum {total:.6f}", flush=True)


dist.init_process_group("gloo")
train()
dist.destroy_process_group()
time.sleep(0.2)  # otherwise gloo's threads can outlive Python and abort: pytorch/pytorch#179291
