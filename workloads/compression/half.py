"""Half precision: two bytes per element instead of four."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from wanbench.workloads.comm.base import Comm
from wanbench.workloads.compression.base import Compressor, Message, Rounds, Shapes


class Half(Compressor):
    """Rounds each element to two bytes; messages are averaged in that type, which rounds once more."""

    averages = True
    rounds_mean = True
    dtype: ClassVar[torch.dtype]

    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        return [Message(numel, 2)]

    def rounds(self, v: torch.Tensor, comm: Comm) -> Rounds:
        most = torch.finfo(self.dtype).max / comm.world_size / 2
        message = v.clamp(-most, most).to(self.dtype)
        c = message.to(v.dtype)
        yield comm.all_reduce(message), c
        return message.to(v.dtype)


@dataclass
class FP16(Half):
    """Half the bytes: IEEE half precision, 11 significant bits.

    C(v) rounds each element of v, shape (numel,); magnitudes from 6e-8 to 65504 are represented. Messages are averaged
    in half precision, which rounds once more.
    """

    source = "Micikevicius et al., Mixed Precision Training, ICLR 2018"
    dtype = torch.float16


@dataclass
class BF16(Half):
    """Half the bytes: bfloat16, 8 significant bits, the range of float32.

    C(v) rounds each element of v, shape (numel,). Messages are averaged in bfloat16, which rounds once more.
    """

    source = "Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019"
    dtype = torch.bfloat16
