"""The memory of tensors: their bytes, their chunks, and means of what other ranks sent."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import torch

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.chunks import chunk_bytes


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor, without a copy."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise CommError("direct: a message must be a contiguous CPU tensor")
    size = tensor.numel() * tensor.element_size()
    memory: Any = (ctypes.c_char * size).from_address(tensor.data_ptr())
    memory.tensor = tensor  # keeps it alive as long as the I/O thread can access it, even if the operation fails
    return memoryview(memory).cast("B")


def chunks_of(piece: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Cut a flat tensor into chunks, which share its memory. An empty piece has one empty chunk."""
    size = piece.element_size()
    return torch.split(piece, max(1, chunk_bytes(piece.numel() * size) // size))


def average(own: torch.Tensor, rank: int, others: Mapping[int, bytearray]) -> None:
    """Replace a chunk by its mean over all ranks.

    It is summed in the order of ranks, so every rank that computes it gets the same bits.

    Args:
        own: the chunk of this rank.
        rank: this rank.
        others: the bytes of the chunk of every other rank.
    """
    if not own.numel():
        return
    world_size = len(others) + 1
    parts = [own if peer == rank else torch.frombuffer(others[peer], dtype=own.dtype) for peer in range(world_size)]
    total = parts[0].clone()
    for part in parts[1:]:
        total.add_(part)
    own.copy_(total.div_(world_size))
