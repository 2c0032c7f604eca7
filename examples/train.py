"""An ordinary DistributedDataParallel script: it knows nothing of wanbench, and torchrun starts it as well."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 10

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(rank)  # every rank has its own data
began = time.monotonic()
for _ in range(STEPS):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(10, (32,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank}: {1000 * (time.monotonic() - began) / STEPS:.0f} ms per step", flush=True)
dist.destroy_process_group()
time.sleep(0.2)  # gloo's threads can abort a Python that ends at once: pytorch/pytorch#179291
