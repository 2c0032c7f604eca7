"""PowerSGD: gradient matrices as low-rank factors, which add up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from wanbench.workloads.comm.base import Comm
from wanbench.workloads.compression.base import Compressor, Message, Rounds, Shapes
from wanbench.workloads.parameters import at_least, between


@dataclass
class PowerSGD(Compressor):
    """Sends low-rank factors of the gradient matrices, in two rounds.

    For each parameter matrix M, shape (n, m), of the vector, on worker j::

        P_j = M_j Q            all_reduce: P = mean P_j ;  P <- orthonormal columns of P
        Q_j = M_j^T P          all_reduce: Q = mean Q_j ;  kept for the next vector (warm start)
        mean = P Q^T           this worker's part of it: C(M_j) = P Q_j^T = P P^T M_j

    It takes two consecutive all-reduces, of r (n + m) values per matrix in total. Vectors, and matrices that would not
    shrink to half, are sent whole with the first. A tensor of more dimensions is a matrix of its first by all others.

    With momentum beta (the paper's Algorithm 2), workers apply, instead of the mean D of the compressed vectors::

        b <- beta b + D                b of shape (numel,), 0 at first
        w <- w - lr (D + b)

    Error feedback is before the momentum, so residuals hold no momentum. A constant D moves w by
    (2 - beta) / (1 - beta) lr D per step, and Nesterov momentum by 1 / (1 - beta) lr D.

    Attributes:
        rank: r, the number of columns of P and Q.
        least: a matrix is compressed if n m >= least r (n + m).
        momentum: beta; use the paper's 0.9 with train.momentum = 0.
    """

    source = "Vogels, Karimireddy and Jaggi, PowerSGD, NeurIPS 2019"
    state = ("_factors", "_b")
    averages = True
    needs_shapes = True

    rank: int = field(default=2, metadata=at_least(1))
    least: float = field(default=2.0, metadata=at_least(0))
    momentum: float = field(default=0.0, metadata=between(0, 1, open_above=True))

    def start(self, shapes: Shapes, rank: int, world_size: int, seed: int) -> None:
        self._shapes, self._seed = shapes, seed
        self._factors: list[torch.Tensor] = []
        self._b: torch.Tensor | None = None

    def messages(self, numel: int, shapes: Shapes = (), bytes_each: int = 4) -> Sequence[Message]:
        first = second = 0
        for _, rows, columns in self._parts(numel, shapes):
            low = self._low(rows, columns)
            first += rows * self._columns(rows, columns) if low else rows * columns
            second += columns * self._columns(rows, columns) if low else 0
        return [Message(first, bytes_each), Message(second, bytes_each)] if second else [Message(first, bytes_each)]

    def rounds(self, v: torch.Tensor, comm: Comm) -> Rounds:
        parts = list(self._parts(v.numel(), self._shapes))
        matrices = [v[at : at + n * m].view(n, m) for at, n, m in parts if self._low(n, m)]
        whole = [v[at : at + n * m] for at, n, m in parts if not self._low(n, m)]
        if not self._factors:
            self._factors = self._begin(matrices)
        factors = self._factors
        first = _flat([*(matrix @ q for matrix, q in zip(matrices, factors, strict=True)), *whole], v)
        work = comm.all_reduce(first)
        if not matrices:
            yield work, v.clone()
            return self._moved(first)
        yield work, None
        sizes = [(matrix.shape[0], q.shape[1]) for matrix, q in zip(matrices, factors, strict=True)]
        ps = [torch.linalg.qr(p).Q for p in _cut(first, sizes)]
        mean_whole = first[sum(p.numel() for p in ps) :]
        own_qs = [matrix.T @ p for matrix, p in zip(matrices, ps, strict=True)]
        second = _flat(own_qs, v)
        yield comm.all_reduce(second), self._join(parts, ps, own_qs, torch.cat([*whole, v[:0]]))
        self._factors = _cut(second, [q.shape for q in own_qs])
        return self._moved(self._join(parts, ps, self._factors, mean_whole))

    def _moved(self, mean: torch.Tensor) -> torch.Tensor:
        """Return D + b for the mean D, shape (numel,); without momentum D."""
        if not self.momentum:
            return mean
        self._b = mean.clone() if self._b is None else self._b.mul_(self.momentum).add_(mean)
        return mean + self._b

    def _join(
        self,
        parts: Sequence[tuple[int, int, int]],
        ps: Sequence[torch.Tensor],
        qs: Sequence[torch.Tensor],
        whole: torch.Tensor,
    ) -> torch.Tensor:
        """Join matrices and whole tensors to a flat vector."""
        products = (p @ q.T for p, q in zip(ps, qs, strict=True))
        rest = iter(torch.split(whole, [n * m for _, n, m in parts if not self._low(n, m)]))
        return torch.cat([next(products if self._low(n, m) else rest).reshape(-1) for _, n, m in parts])

    def _begin(self, matrices: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(self._seed)
        sizes = [(matrix.shape[1], self._columns(*matrix.shape)) for matrix in matrices]
        return [torch.randn(size, generator=generator, dtype=matrices[0].dtype) for size in sizes]

    def _columns(self, rows: int, columns: int) -> int:
        return min(self.rank, rows, columns)

    def _low(self, rows: int, columns: int) -> bool:
        return rows > 1 and rows * columns >= self.least * self._columns(rows, columns) * (rows + columns)

    def _parts(self, numel: int, shapes: Shapes) -> Iterator[tuple[int, int, int]]:
        """Yield (begin, rows, columns) of each parameter tensor; a vector is one row."""
        at = 0
        for shape in shapes or ((numel,),):
            rows = shape[0] if len(shape) > 1 else 1
            yield at, rows, math.prod(shape) // rows
            at += math.prod(shape)


def _flat(matrices: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    return torch.cat([*(matrix.reshape(-1) for matrix in matrices), like[:0]])


def _cut(flat: torch.Tensor, shapes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Return copies of the leading parts of `flat` in these shapes."""
    sizes = [rows * columns for rows, columns in shapes]
    parts = torch.split(flat[: sum(sizes)], sizes)
    return [part.view(*shape).clone() for part, shape in zip(parts, shapes, strict=True)]
