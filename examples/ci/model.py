"""A model and its data, which gate.toml gates. Put your own here, or name it in gate.toml."""

import torch


def make(rank, world_size, seed, batch_size):
    """Return the module, the batches of this worker and the loss."""
    draw = torch.Generator().manual_seed(1000 * seed + rank)
    inputs, labels = torch.randn(512, 64, generator=draw), torch.randint(10, (512,), generator=draw)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size, shuffle=True)
    module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    return module, batches, torch.nn.functional.cross_entropy
