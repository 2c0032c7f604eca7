"""Chunk-wise top-k with two-bit values: the largest values of every chunk, in a few bits each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from wanbench.workloads.compression.base import Gathered, Message, Shapes
from wanbench.workloads.compression.bits import pack, packed_bytes, unpack
from wanbench.workloads.parameters import at_least

_VALUE_BITS = 2
_MAGNITUDES = 2  # of a chunk: that of its small and that of its large values
_MAGNITUDE_BYTES = 4


@dataclass
class ChunkTopK(Gathered):
    """Sends the largest elements of every chunk, in a few bits each.

    v, shape (numel,), is cut into chunks of `chunk` elements. In each, C(v) keeps the k = `kept` elements x_i of
    largest magnitude, and zeroes the others. Of an x_i only two bits travel: its sign, and whether |x_i| is above the
    mean of the chunk's k magnitudes. Of a chunk, the mean magnitude of either class travels::

        C(v)_i = sign(x_i) mean { |x_j| : j in the class of i }

    This is a projection, so ||C(v) - v|| <= ||v||, and error feedback sends the rest later. A message has, per chunk, k
    indices of ceil(log2 chunk) bits, k codes of 2 bits and two float32: 120 bytes for 4096 elements by default. A last
    chunk of fewer than k elements is kept whole, at the same size: its places without an element count in no mean. The
    paper's own quantiser could not be read; the authors' code also sends the means of classes, whose limits are
    multiples of a tensor's standard deviation. Chunks are of the flat vector; theirs are tiles of a matrix.

    Attributes:
        chunk: elements in a chunk.
        kept: k, elements sent of each chunk; `chunk` or more sends all of them, with their indices.
        quantised: False sends the values as they are.
    """

    kind = "chunk-topk"
    source = "Sarfi, Therien, Lidin and Belilovsky, SparseLoCo, 2025 (arXiv 2508.15706); the two-bit quantiser is ours"
    symbols = {"kept": "k"}  # noqa: RUF012

    chunk: int = field(default=4096, metadata=at_least(2))
    kept: int = field(default=64, metadata=at_least(1))
    quantised: bool = True

    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        return [Message(sum(self._parts(numel, bytes_each)), 1)]

    def encode(self, v: torch.Tensor) -> torch.Tensor:
        chunks, size, kept = self._layout(v.numel())
        # What fills up the last chunk is kept only if nothing else is left, and belongs to no class.
        rows, keys = (
            torch.cat([part, part.new_full((chunks * size - v.numel(),), fill)]).view(chunks, size)
            for part, fill in ((v, 0.0), (v.abs(), -1.0))
        )
        chosen, indices = keys.topk(kept, dim=1, sorted=False)
        values = rows.gather(1, indices)
        packed = pack(indices.reshape(-1), _index_bits(size))
        if not self.quantised:
            return torch.cat([packed, values.reshape(-1).view(torch.uint8)])
        members = ~(chosen < 0)  # NaN is one
        large = values.abs() > _mean_magnitude(values, members).unsqueeze(1)
        codes = large.to(torch.uint8) << 1 | (values >= 0).to(torch.uint8)
        means = [_mean_magnitude(values, members & of_class) for of_class in (~large, large)]
        magnitudes = torch.stack(means, dim=1).to(torch.float32)
        return torch.cat([packed, pack(codes.view(-1), _VALUE_BITS), magnitudes.view(-1).view(torch.uint8)])

    def decode(self, message: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        chunks, size, kept = self._layout(like.numel())
        packed, *rest = torch.split(message, self._parts(like.numel(), like.element_size()))
        indices = unpack(packed, _index_bits(size), chunks * kept).long().view(chunks, kept)
        if self.quantised:
            codes = unpack(rest[0], _VALUE_BITS, chunks * kept).view(chunks, kept)
            magnitudes = rest[1].clone().view(torch.float32).to(like.dtype).view(chunks, _MAGNITUDES)
            values = magnitudes.gather(1, (codes >> 1).long()).mul_((codes & 1).to(like.dtype).mul_(2).sub_(1))
        else:
            values = rest[0].clone().view(like.dtype).view(chunks, kept)
        return like.new_zeros(chunks, size).scatter_(1, indices, values).view(-1)[: like.numel()]

    def _layout(self, numel: int) -> tuple[int, int, int]:
        """The number of chunks, the elements in each (the last one is filled up with zeros), and k."""
        size = min(self.chunk, numel)
        return -(-numel // size), size, min(self.kept, size)

    def _parts(self, numel: int, bytes_each: int) -> list[int]:
        """Bytes of the parts of a message: indices, values or codes, magnitudes."""
        chunks, size, kept = self._layout(numel)
        indices = packed_bytes(chunks * kept, _index_bits(size))
        if not self.quantised:
            return [indices, chunks * kept * bytes_each]
        return [indices, packed_bytes(chunks * kept, _VALUE_BITS), chunks * _MAGNITUDES * _MAGNITUDE_BYTES]


def _index_bits(size: int) -> int:
    return max(1, (size - 1).bit_length())


def _mean_magnitude(values: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    """The mean magnitude of each row's members, shape (rows,); 0 without members."""
    return (values.abs() * members).sum(dim=1) / members.sum(dim=1).clamp(min=1)
