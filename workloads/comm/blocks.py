"""How a vector is cut: pure arithmetic, the same on every testbed.

Over TCP, a piece travels in chunks, each of which is averaged while the others are on their way. In an exchange of
datagrams, a vector has blocks, the unit of loss: a block arrives if all its datagrams arrive. A datagram fits into one
packet, so the network never fragments it.
"""

import struct
from collections.abc import Sequence
from itertools import groupby

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


MTU = 1500  # bytes of the largest IP packet, by default; of a datagram on any network
HEADER = struct.Struct("<IIIHxx")
"""The header of a datagram: token of the group, number of the exchange, index in its vector, sending rank."""
UDP_IP_BYTES = 28
PAYLOAD_BYTES = MTU - UDP_IP_BYTES - HEADER.size
"""The maximum payload of a datagram: 1456 bytes, a multiple of 8."""
WIRE_HEADER_BYTES = UDP_IP_BYTES + HEADER.size


class Blocks:
    """The blocks of a vector.

    Args:
        numel: elements of the vector. element_size: bytes per element.
        block_bytes: size of a block, a multiple of `element_size`; the last block can be shorter.

    Attributes:
        count: number of blocks. datagrams: number of datagrams in all blocks.
    """

    def __init__(self, numel: int, element_size: int, block_bytes: int) -> None:
        self._numel = numel
        self._block = block_bytes // element_size
        self._part = min(self._block, PAYLOAD_BYTES // element_size)
        self._per_block = -(-self._block // self._part)
        self.count = -(-numel // self._block)
        last = numel - (self.count - 1) * self._block
        self.datagrams = (self.count - 1) * self._per_block + -(-last // self._part) if numel else 0

    def part(self, index: int) -> tuple[int, int]:
        """Return (first element, end) of datagram `index`; the end is exclusive."""
        block, part = divmod(index, self._per_block)
        begin = block * self._block + part * self._part
        return begin, min(begin + self._part, (block + 1) * self._block, self._numel)

    def arrived(self, datagrams: Sequence[int]) -> list[bool]:
        """Return for each block whether it is complete, from a 0 or 1 for each datagram."""
        step = self._per_block
        if step == 1:
            return [flag == 1 for flag in datagrams]
        return [all(datagrams[first : first + step]) for first in range(0, self.datagrams, step)]

    def runs(self, arrived: Sequence[bool]) -> list[slice]:
        """Return the elements of the blocks that have arrived, with neighbouring blocks joined."""
        runs: list[slice] = []
        begin = 0
        for complete, blocks in groupby(arrived):
            end = begin + len(list(blocks))
            if complete:
                runs.append(slice(begin * self._block, min(end * self._block, self._numel)))
            begin = end
        return runs
