"""How a piece of a vector is cut into chunks, which travel and are averaged while the others are on their way."""

from __future__ import annotations

# A receiver averages a chunk when all of it has arrived. More chunks overlap better, and cost more processor time.
LARGEST_BYTES = 512 << 10
_PER_PIECE, _SMALLEST_BYTES = 8, 32 << 10
_ALIGNED = 64


def chunk_bytes(nbytes: int) -> int:
    """The size of all chunks of a piece but the last, in whole elements of any type."""
    return min(max(-(-nbytes // _PER_PIECE // _ALIGNED) * _ALIGNED, _SMALLEST_BYTES), LARGEST_BYTES)


def chunk_count(nbytes: int) -> int:
    """The number of chunks of a piece; an empty one has one."""
    return max(1, -(-nbytes // chunk_bytes(nbytes)))
