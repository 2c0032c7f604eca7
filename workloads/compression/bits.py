"""Small whole numbers, packed into bytes."""

import torch


def packed_bytes(numel: int, bits: int) -> int:
    """Bytes of `numel` numbers of `bits` bits each."""
    return -(-numel * bits // 8)


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return `codes` (whole numbers below 2^bits, shape (numel,)) as bytes of shape (packed_bytes,).

    Widths that divide 8 are quick; other numbers are cut into single bits first.
    """
    if 8 % bits:
        shifts = torch.arange(bits, dtype=codes.dtype)
        return pack(((codes[:, None] >> shifts) & 1).to(torch.uint8).view(-1), 1)
    per_byte, codes = 8 // bits, codes.to(torch.uint8)
    padded = torch.cat([codes, codes.new_zeros(-codes.numel() % per_byte)]).view(-1, per_byte)
    packed = padded[:, 0].clone()
    for column in range(1, per_byte):
        packed |= padded[:, column] << (bits * column)
    return packed


def unpack(packed: torch.Tensor, bits: int, numel: int) -> torch.Tensor:
    """Return `numel` codes from bytes, uint8 if their width divides 8, else int64; the inverse of `pack`."""
    if 8 % bits:
        shifts = torch.arange(bits)
        return (unpack(packed, 1, numel * bits).view(numel, bits).long() << shifts).sum(dim=1)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    return ((packed[:, None] >> shifts) & ((1 << bits) - 1)).view(-1)[:numel]
