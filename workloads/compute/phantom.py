"""Vectors without elements: they have the size of a message, but no values.

A workload that does not train a model uses them when thousands of workers share one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Phantom:
    """A flat vector of `size` elements of `bytes_each` bytes, without values.

    It implements `workloads.comm.base.Vector`; arithmetic changes nothing.
    """

    size: int
    bytes_each: int = 4

    def add_(self, other: Self, *, alpha: float = 1.0) -> Self:
        """As `Vector.add_`, without values."""
        return self

    def mul_(self, factor: float) -> Self:
        """As `Vector.mul_`, without values."""
        return self

    def div_(self, other: Self) -> Self:
        """As `Vector.div_`, without values."""
        return self

    def copy_(self, other: Self) -> Self:
        """As `Vector.copy_`, without values."""
        return self

    def zero_(self) -> Self:
        """As `Vector.zero_`, without values."""
        return self

    def fill_(self, value: float, /) -> Self:
        """As `Vector.fill_`, without values."""
        return self

    def clone(self) -> Self:
        """Return itself: equal phantoms cannot be distinguished."""
        return self

    def new_zeros(self, size: int, /) -> Self:
        """Return a phantom of `size` elements."""
        return type(self)(size, self.bytes_each)

    def numel(self) -> int:
        """The number of elements."""
        return self.size

    def element_size(self) -> int:
        """Bytes of one element on the wire."""
        return self.bytes_each

    def __getitem__(self, part: slice) -> Phantom:
        """Return a part of it."""
        return Phantom(len(range(*part.indices(self.size))), self.bytes_each)
