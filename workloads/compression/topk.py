"""Top-k sparsification: the largest values and their indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from wanbench.workloads.compression.base import Gathered, Message, Shapes
from wanbench.workloads.parameters import between

_INDEX_BYTES = 4


@dataclass
class TopK(Gathered):
    """Sends the largest elements, with their indices.

    C(v) keeps the k = ceil(ratio * numel) elements of v, shape (numel,), of largest magnitude, and zeroes the others. A
    message has k values and k int32 indices. The k elements are chosen over the whole flat vector, not per tensor.

    Attributes:
        ratio: the share of elements sent; 1 sends all of them, with their indices.
    """

    source = "Aji and Heafield, Sparse Communication for Distributed Gradient Descent, 2017; Stich et al., 2018"

    ratio: float = field(default=0.01, metadata=between(0, 1, open_below=True))

    def kept(self, numel: int) -> int:
        """k."""
        return math.ceil(self.ratio * numel)

    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        return [Message(self.kept(numel) * (bytes_each + _INDEX_BYTES), 1)]

    def encode(self, v: torch.Tensor) -> torch.Tensor:
        indices = v.abs().topk(self.kept(v.numel()), sorted=False).indices
        return torch.cat([v[indices].view(torch.uint8), indices.to(torch.int32).view(torch.uint8)])

    def decode(self, message: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        split = message.numel() * like.element_size() // (like.element_size() + _INDEX_BYTES)
        values, indices = message[:split].clone().view(like.dtype), message[split:].clone().view(torch.int32)
        return torch.zeros_like(like).index_copy_(0, indices.long(), values)
