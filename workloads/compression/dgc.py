"""Deep Gradient Compression: top-k with momentum correction, factor masking, clipping and a warm-up of sparsity."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

import torch

from wanbench.workloads.comm.base import Phantom, Vector
from wanbench.workloads.compression.base import Shapes
from wanbench.workloads.compression.topk import TopK
from wanbench.workloads.parameters import at_least, between


@dataclass
class DGC(TopK):
    """Top-k with DGC's momentum correction, clipping and warm-up.

    On each of N workers, with gradient g, momentum u and sum v, all of shape (numel,)::

        g <- g * min(1, clip N^-1/2 / ||g||)          local clipping
        u <- momentum u + g ;  v <- v + u             momentum correction
        send v where |v| is among the k largest
        u <- 0, v <- 0 there                          momentum factor masking, residual

    Plain SGD applies the mean of the messages, so set the momentum here and not in `[train]`. k warms up: the share
    sent is first ratio^((e + 1) / (E + 1)), e = 0 .. E - 1, for `warmup` vectors each, with E = 5 (as coded by the
    authors: .316, .1, .032, .01, .0032 for ratio .001).

    With momentum 0 it is top-k with error feedback, clipping and warm-up. Use that form inside `dts`, which corrects
    momentum itself.

    Attributes:
        ratio: the share of elements sent after the warm-up.
        momentum: momentum of the correction; use the paper's 0.9 with train.momentum = 0.
        clip: maximum norm of one worker's gradient, times sqrt(N); 0 does not clip.
        warmup: number of vectors in each of the five stages of the warm-up; 0 for none. The paper's stage is an epoch.
    """

    source = "Lin, Han, Mao, Wang and Dally, Deep Gradient Compression, ICLR 2018"
    state = ("_u", "_seen")
    stages = 5

    ratio: float = field(default=0.001, metadata=between(0, 1, open_below=True))
    momentum: float = field(default=0.0, metadata=between(0, 1, open_above=True))
    clip: float = field(default=0.0, metadata=at_least(0))
    warmup: int = field(default=0, metadata=at_least(0))
    _seen = 0

    def start(self, shapes: Shapes, rank: int, world_size: int, seed: int) -> None:
        self._u: Vector | None = None
        self._workers, self._seen = world_size, 0

    def kept(self, numel: int) -> int:
        """k, for the vector loaded last."""
        stage = (self._seen - 1) // self.warmup if self.warmup and self._seen else self.stages
        if stage >= self.stages:
            return super().kept(numel)
        return math.ceil(float(self.ratio ** ((stage + 1) / (self.stages + 1))) * numel)

    def load(self, v: Vector) -> Vector:
        """Return the momentum after the clipped gradient `v`, shape (numel,); the residual holds the sum over time."""
        self._seen += 1
        if isinstance(v, Phantom):
            return v
        g = cast(torch.Tensor, v)
        if self.clip:
            norm = float(g.norm())
            limit = self.clip / math.sqrt(self._workers)
            g = g * (limit / norm) if norm > limit else g
        if not self.momentum:
            return g
        self._u = g.clone() if self._u is None else self._u.mul_(self.momentum).add_(g)
        return self._u

    def sent(self, c: torch.Tensor) -> None:
        """Mask factors: reset the momentum of the elements that were sent."""
        if self._u is not None:
            cast(torch.Tensor, self._u).masked_fill_(c != 0, 0.0)
