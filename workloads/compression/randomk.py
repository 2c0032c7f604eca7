"""Random-k sparsification: the same random elements from every worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from wanbench.workloads.compression.base import Agreed, Message, Shapes
from wanbench.workloads.parameters import between


@dataclass
class RandomK(Agreed):
    """Sends random elements, the same on all workers, without indices.

    C(v) keeps k = ceil(ratio * numel) elements of v, shape (numel,), drawn anew for each vector, and zeroes the others.

    All workers draw the same elements, so no index travels. The k values are not scaled up, because error feedback
    sends the others later.

    Attributes:
        ratio: the share of elements sent.
    """

    source = "Stich, Cordonnier and Jaggi, Sparsified SGD with Memory, NeurIPS 2018"
    state = ("_generator",)

    ratio: float = field(default=0.01, metadata=between(0, 1, open_below=True))

    def start(self, shapes: Shapes, rank: int, world_size: int, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        return [Message(math.ceil(self.ratio * numel), bytes_each)]

    def pick(self, v: torch.Tensor) -> torch.Tensor:
        (message,) = self.messages(v.numel())
        return torch.randperm(v.numel(), generator=self._generator)[: message.numel()]
