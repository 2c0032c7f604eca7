"""QSGD and TernGrad: each element becomes one of a few levels of a norm, at random and without bias."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from wanbench.workloads.compression.base import Gathered, Message, Shapes
from wanbench.workloads.compression.bits import pack, packed_bytes, unpack
from wanbench.workloads.parameters import at_least, between
from wanbench.workloads.seeding import torch_seed

_NORM_BYTES = 4


class Levels(Gathered):
    """Codes -s .. s in units of norm / s, with one norm per bucket; rounded up or down at random, without bias.

    A code takes the smallest of 2, 4 or 8 bits that holds 2 s + 1 values (the QSGD paper's Elias code takes fewer).

    Attributes:
        levels: s, the number of levels above 0.
        bucket: the largest number of elements that share a norm; by default all.
    """

    levels: int = 1
    bucket: int = sys.maxsize

    state = ("_generator",)
    feedback = False
    unbiased = True

    def start(self, shapes: Shapes, rank: int, world_size: int, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(torch_seed(seed, "levels", rank))

    @abstractmethod
    def norms(self, buckets: torch.Tensor) -> torch.Tensor:
        """Return the norm of each bucket, shape (buckets,), from elements of shape (buckets, bucket)."""

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return next(bits for bits in (2, 4, 8) if 2 * self.levels + 1 <= 1 << bits)

    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        norms = -(-numel // min(self.bucket, numel))
        return [Message(norms * _NORM_BYTES + packed_bytes(numel, self.bits), 1)]

    def encode(self, v: torch.Tensor) -> torch.Tensor:
        return self.quantise(v, torch.rand(v.numel(), generator=self._generator, dtype=v.dtype))

    def quantise(self, v: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return the message for `v`; an element is rounded away from 0 if its draw in [0, 1) is below its fraction."""
        numel, bucket = v.numel(), min(self.bucket, v.numel())
        buckets = torch.cat([v, v.new_zeros(-numel % bucket)]).view(-1, bucket)
        norms = self.norms(buckets).to(torch.float32)
        unit = norms.to(v.dtype)[:, None] / self.levels
        scaled = (buckets.abs() / unit.clamp(min=torch.finfo(v.dtype).tiny)).view(-1)[:numel].clamp(max=self.levels)
        level = scaled.floor()
        level += draws < scaled - level
        codes = (level * v.sign() + self.levels).to(torch.uint8)
        return torch.cat([norms.view(torch.uint8), pack(codes, self.bits)])

    def decode(self, message: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        numel, bucket = like.numel(), min(self.bucket, like.numel())
        head = -(-numel // bucket) * _NORM_BYTES
        unit = message[:head].clone().view(torch.float32).to(like.dtype) / self.levels
        codes = unpack(message[head:], self.bits, numel).to(like.dtype) - self.levels
        return codes.mul_(unit.repeat_interleave(bucket)[:numel])


@dataclass
class QSGD(Levels):
    """Rounds each element at random to a few levels; unbiased.

    C(v_i) = ||v||_2 sign(v_i) l_i / s for v of shape (numel,), where l_i is s |v_i| / ||v||_2 rounded up or down at
    random. A message has a float32 norm per bucket and numel codes of 2, 4 or 8 bits.

    Attributes:
        levels: s, 1 to 127: 1 takes 2 bits per element, up to 7 takes 4, up to 127 takes 8.
        bucket: d, the number of elements that share a norm; the variance grows with sqrt(d) / s.
    """

    source = "Alistarh, Grubic, Li, Tomioka and Vojnovic, QSGD, NeurIPS 2017"

    levels: int = field(default=7, metadata=between(1, 127))
    bucket: int = field(default=512, metadata=at_least(1))

    def norms(self, buckets: torch.Tensor) -> torch.Tensor:
        return buckets.square().sum(dim=1).sqrt()


@dataclass
class TernGrad(Levels):
    """Sends -1, 0 or 1 per element, drawn at random; unbiased.

    C(v_i) = s sign(v_i) b_i for v of shape (numel,), with s = max |v|, and b_i = 1 with probability |v_i| / s, else 0.
    A message has 2 bits per element and a float32. Here the whole flat vector shares one s; the paper has one per
    layer, and clips.
    """

    source = "Wen, Xu, Yan, Wu, Wang, Chen and Li, TernGrad, NeurIPS 2017"

    def norms(self, buckets: torch.Tensor) -> torch.Tensor:
        return buckets.abs().amax(dim=1)
