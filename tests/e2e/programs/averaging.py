"""torch's own local SGD: periodic model averaging every four steps; this script does not use wanbench."""

import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging import averagers

dist.init_process_group("gloo")
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
averager = averagers.PeriodicModelAverager(period=4)
torch.manual_seed(dist.get_rank())
for _ in range(9):
    optimizer.zero_grad()
    model(torch.randn(8, 16)).square().sum().backward()
    optimizer.step()
    averager.average_parameters(model.parameters())
print(f"rank {dist.get_rank()} of {dist.get_world_size()} done", flush=True)
dist.destroy_process_group()
time.sleep(0.2)  # otherwise gloo's threads can outlive Python and abort: pytorch/pytorch#179291
