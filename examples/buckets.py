"""A DistributedDataParallel script with one setting: how large the buckets are in which gradients travel."""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 12
bucket_mb = float(sys.argv[1])

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [layer for _ in range(8) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())]
model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=bucket_mb)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())  # every rank has its own data
for _ in range(STEPS):
    optimizer.zero_grad()
    model(torch.randn(32, 512)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
time.sleep(0.2)  # gloo's threads can abort a Python that ends at once: pytorch/pytorch#179291
