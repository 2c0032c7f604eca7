"""EF-signSGD: one bit per element and one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from wanbench.workloads.compression.base import Gathered, Message, Shapes
from wanbench.workloads.compression.bits import pack, packed_bytes, unpack

_SCALE_BYTES = 4


@dataclass
class SignSGD(Gathered):
    """Sends one bit per element and one scale.

    C(v) = (||v||_1 / numel) sign(v) for v of shape (numel,), with sign(0) = 1 and one scale for the whole flat vector.
    A message has numel bits and a float32. Without error feedback it can fail to converge (Karimireddy et al., section
    3).
    """

    source = "Karimireddy, Rebjock, Stich and Jaggi, Error Feedback Fixes SignSGD, ICML 2019"

    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        return [Message(packed_bytes(numel, 1) + _SCALE_BYTES, 1)]

    def encode(self, v: torch.Tensor) -> torch.Tensor:
        scale = v.abs().mean().to(torch.float32).reshape(1)
        return torch.cat([scale.view(torch.uint8), pack((v >= 0).to(torch.uint8), 1)])

    def decode(self, message: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        scale = float(message[:_SCALE_BYTES].clone().view(torch.float32))
        return unpack(message[_SCALE_BYTES:], 1, like.numel()).to(like.dtype).mul_(2).sub_(1).mul_(scale)
