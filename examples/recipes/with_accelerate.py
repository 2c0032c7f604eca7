"""Hugging Face accelerate."""

import os
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

STEPS = 10

accelerator = Accelerator(cpu=True)
set_seed(0)
examples = torch.utils.data.TensorDataset(torch.randn(2048, 64), torch.randint(10, (2048,)))
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = torch.utils.data.DataLoader(examples, batch_size=32)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
if "WANBENCH_ALGORITHM" in os.environ:  # otherwise plain DDP
    import wanbench

    training = wanbench.attach(model, optimizer)
began = time.monotonic()
for _, (inputs, labels) in zip(range(STEPS), loader, strict=False):
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
mean = accelerator.reduce(loss.detach(), "mean")
if accelerator.is_main_process:
    print(f"loss {mean:.5f}", flush=True)
    print(f"{1000 * (time.monotonic() - began) / STEPS:.0f} ms per step", flush=True)
if "WANBENCH_ALGORITHM" in os.environ:
    training.final()
accelerator.end_training()
time.sleep(0.2)  # gloo's threads can abort a Python that ends at once: pytorch/pytorch#179291
