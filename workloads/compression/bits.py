"""Small whole numbers, packed into bytes."""

from __future__ import annotations

import torch


def packed_bytes(numel: int, bits: int) -> int:
    """Bytes of `numel` numbers of `bits` bits each; `bits` is 1, 2, 4 or 8."""
    return -(-numel * bits // 8)


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return `codes` (uint8 below 2^bits, shape (numel,)) as bytes of shape (packed_bytes,)."""
    each = 8 // bits
    padded = torch.cat([codes, codes.new_zeros(-codes.numel() % each)]).view(-1, each)
    packed = padded[:, 0].clone()
    for place in range(1, each):
        packed |= padded[:, place] << (bits * place)
    return packed


def unpack(packed: torch.Tensor, bits: int, numel: int) -> torch.Tensor:
    """Return `numel` codes (uint8) from bytes; the inverse of `pack`."""
    places = torch.arange(0, 8, bits, dtype=torch.uint8)
    return ((packed[:, None] >> places) & ((1 << bits) - 1)).view(-1)[:numel]
