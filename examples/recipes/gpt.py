"""A training loop in the style of nanoGPT: DDP, gradient accumulation, a byte-level model of Python's own sources."""

import argparse
import os
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

CONTEXT, WIDTH, HEADS, LAYERS = 64, 64, 4, 2

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--accumulate", type=int, default=2)
options = parser.parse_args()


class Block(torch.nn.Module):
    """Causal attention and a feed-forward network, each after a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention, self.merge = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.wide = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, CONTEXT, WIDTH) to the same shape."""
        batch, length, _ = x.shape
        heads = self.attention(self.norms[0](x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.wide(self.norms[1](x))


class Gpt(torch.nn.Module):
    """A decoder over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(256, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = torch.nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """Return the mean loss."""
        hidden = self.tokens(text) + self.places(torch.arange(text.shape[1]))
        return functional.cross_entropy(self.head(self.blocks(hidden)).flatten(0, 1), following.flatten())


def batch_of(text: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random pieces of the text, and the same pieces one byte later."""
    begins = torch.randint(len(text) - CONTEXT - 1, (options.batch,), generator=generator)
    pieces = torch.stack([text[begin : begin + CONTEXT + 1] for begin in begins.tolist()]).long()
    return pieces[:, :-1], pieces[:, 1:]


dist.init_process_group("gloo")
rank = dist.get_rank()
sources = sorted(Path(os.__file__).parent.glob("*.py"))
text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in sources)), dtype=torch.uint8)
torch.manual_seed(0)
model = DistributedDataParallel(Gpt())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if "WANBENCH_ALGORITHM" in os.environ:  # otherwise plain DDP
    import wanbench

    training = wanbench.attach(model, optimizer)
generator = torch.Generator().manual_seed(rank)
ends = []
for _ in range(options.steps):
    for part in range(options.accumulate):
        with model.no_sync() if part < options.accumulate - 1 else nullcontext():
            loss = model(*batch_of(text, generator)) / options.accumulate
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    ends.append(time.monotonic())
if "WANBENCH_ALGORITHM" in os.environ:
    training.final()
total = loss.detach() * options.accumulate
dist.all_reduce(total)
if rank == 0:
    warm = 3  # connections open, and TCP starts
    print(f"loss {total / dist.get_world_size():.5f}", flush=True)
    print(f"{1000 * (ends[-1] - ends[warm - 1]) / (len(ends) - warm):.1f} ms per step", flush=True)
dist.destroy_process_group()
time.sleep(0.2)  # gloo's threads can abort a Python that ends at once: pytorch/pytorch#179291
