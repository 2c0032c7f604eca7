"""The memory of tensors: their bytes, their chunks, and reductions of what other ranks sent."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from wanbench.workloads.comm.base import CommError, nbytes_of
from wanbench.workloads.comm.blocks import chunk_bytes


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor, without a copy."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise CommError("direct: a message must be a contiguous CPU tensor")
    memory: Any = (ctypes.c_char * nbytes_of(tensor)).from_address(tensor.data_ptr())
    memory.tensor = tensor  # keeps it alive as long as the I/O thread can access it, even if the operation fails
    return memoryview(memory).cast("B")


def described(what: str, chunks: Sequence[torch.Tensor]) -> str:
    """What is done with tensors of this type; peers compare the words, and a message shows them if they differ."""
    return f"{what} of {chunks[0].dtype}".replace("torch.", "") if chunks else what


def chunks_of(piece: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Cut a flat tensor into chunks, which share its memory. An empty piece has one empty chunk."""
    size = piece.element_size()
    return torch.split(piece, max(1, chunk_bytes(piece.numel() * size) // size))


@dataclass(frozen=True)
class Reduction:
    """How the chunks of all ranks become one.

    Attributes:
        name: as in messages.
        accumulate: adds a chunk to the first argument, in place.
        mean: whether the result is divided by the number of ranks.
        wide: whether half-precision numbers are added up in single precision, and rounded once.
    """

    name: str
    accumulate: Callable[[torch.Tensor, torch.Tensor], object]
    mean: bool = False
    wide: bool = True


# Of training: a sum in the type of the vector, as on the simulated clock.
MEAN = Reduction("mean", torch.Tensor.add_, mean=True, wide=False)
SUM = Reduction("sum", torch.Tensor.add_)
REDUCTIONS = {
    reduction.name: reduction
    for reduction in (
        Reduction("mean", torch.Tensor.add_, mean=True),
        SUM,
        Reduction("product", torch.Tensor.mul_),
        Reduction("min", lambda total, part: torch.minimum(total, part, out=total)),
        Reduction("max", lambda total, part: torch.maximum(total, part, out=total)),
        Reduction("band", torch.Tensor.bitwise_and_),
        Reduction("bor", torch.Tensor.bitwise_or_),
        Reduction("bxor", torch.Tensor.bitwise_xor_),
    )
}
HALF = (torch.float16, torch.bfloat16)


@torch.inference_mode()  # so that tensors made in this mode can be changed, too
def reduce(own: torch.Tensor, rank: int, received: Mapping[int, bytearray], reduction: Reduction = MEAN) -> None:
    """Replace a chunk by its reduction over all ranks.

    It goes in the order of ranks, so every rank that computes it gets the same bits.

    Args:
        own: the chunk of this rank.
        rank: this rank.
        received: the bytes of the chunk of every other rank.
    """
    if not own.numel():
        return
    world_size = len(received) + 1
    parts = [own if peer == rank else torch.frombuffer(received[peer], dtype=own.dtype) for peer in range(world_size)]
    total = parts[0].to(torch.float32) if reduction.wide and own.dtype in HALF else parts[0].clone()
    for part in parts[1:]:
        reduction.accumulate(total, part.to(total.dtype))
    own.copy_(total.div_(world_size) if reduction.mean else total)
