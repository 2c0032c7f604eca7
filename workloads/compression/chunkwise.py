"""Chunk-wise sparsification: every worker sends the same chunk in turn, so a ring can add them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from wanbench.workloads.compression.base import Agreed, Message, Shapes
from wanbench.workloads.parameters import between


@dataclass
class Chunkwise(Agreed):
    """Sends one chunk of the vector at a time, the same on all workers.

    C_n(v) keeps chunk (n mod c) of v, shape (numel,), cut into c = round(1 / ratio) chunks, and zeroes the others.

    All workers agree on the chunk without a message: no index travels, and an all_reduce averages the values. The other
    chunks stay in the residual for c - 1 vectors. The DTS paper cites chunk-wise sparsification without naming a rule;
    this is the simplest.

    Attributes:
        ratio: the share of elements sent per vector, rounded to 1 / c.
    """

    source = "after the chunk-wise sparsification that Zhu et al. 2019 (DTS) cite; the order of chunks is ours"
    state = ("_turn",)

    ratio: float = field(default=0.01, metadata=between(0, 1, open_below=True))

    def start(self, shapes: Shapes, rank: int, world_size: int, seed: int) -> None:
        self._turn = 0

    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        return [Message(-(-numel // self._chunks(numel)), bytes_each)]

    def pick(self, v: torch.Tensor) -> torch.Tensor:
        (message,) = self.messages(v.numel())
        begin = min(self._turn * message.numel(), v.numel() - message.numel())
        self._turn = (self._turn + 1) % self._chunks(v.numel())
        return torch.arange(begin, begin + message.numel())

    def _chunks(self, numel: int) -> int:
        return min(numel, max(1, round(1 / self.ratio)))
