"""Averages of a stream of vectors over the workers, compressed or not, with error feedback.

With a compressor C, the residual e of this worker and vectors v_1, v_2, ...::

    u = v + e                  what is to be sent
    c = C(u)                   what is sent, in the eyes of all
    e = u - c                  what is not, and is added to the next vector
    mean = (1/N) sum over the workers of c

so that what was sent and the residual always add up to the vectors: sum of c + e = sum of v. (Seide et al. 2014; Stich,
Cordonnier and Jaggi 2018; Karimireddy et al. 2019.) A compressor of several rounds knows c only after the first; until
then u counts as sent and later vectors go without its residual, which keeps the sum.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from wanbench.workloads.comm.base import Comm, Vector, Work
from wanbench.workloads.compression.base import Compressor, Shapes
from wanbench.workloads.compute.phantom import Phantom
from wanbench.workloads.state import Stateful

if TYPE_CHECKING:
    import torch

_Rounds = Generator[tuple[Work, Any], None, Vector]


class Exchange:
    """One average under way.

    Attributes:
        sent: c, this worker's contribution to the mean; None until it is known.
    """

    def __init__(self, averager: Averager, v: Vector, rounds: _Rounds) -> None:
        self._averager, self._v, self._rounds = averager, v, rounds
        self._mean: Vector | None = None
        self._work: Work | None = None
        self._waits = 0
        self.sent: Vector | None = None
        self._advance()

    def proceed(self, age: int, delay: int) -> None:
        """Begin the next round, if `age` of `delay` steps are enough for it: r rounds share the delay evenly.

        It may stall. All ranks do this at the same steps, so operations have one order.
        """
        while self._waits + 1 < self._averager.rounds and age * self._averager.rounds >= (self._waits + 1) * delay:
            self._wait()

    def wait(self) -> Vector:
        """The mean, shape (numel,). It and `sent` belong to the caller until `Averager.done`.

        Raises:
            CommError: a peer is gone.
        """
        while self._mean is None:
            self._wait()
        return self._mean

    @property
    def own(self) -> Vector:
        """`sent`; until that is known, all that was to be sent."""
        return self._v if self.sent is None else self.sent

    def delta(self) -> Vector:
        """The mean minus this worker's own contribution, once; it takes the place of the mean."""
        mean = self.wait()
        assert self.sent is not None, "the contribution is known when the mean is"
        return mean.add_(self.sent, alpha=-1.0)

    def _wait(self) -> None:
        assert self._work is not None, "an exchange that has no mean yet waits for something"
        self._work.wait()
        self._waits += 1
        self._advance()

    def _advance(self) -> None:
        try:
            self._work, sent = next(self._rounds)
        except StopIteration as stop:
            self._mean, self._work = stop.value, None
            return
        if sent is not None:
            self.sent = sent
            self._averager.keep(self._v, sent)


class Averager(Stateful):
    """A stream of vectors of one size whose means are wanted.

    Args:
        compressor: None sends the vectors as they are. The averager has one of its own, with the same parameters.
        comm: the peers.
        like: a vector of the size and type of those to come.
        shapes: of the parameter tensors in it, if known.
        seed: of random draws, equal on all ranks.

    Attributes:
        rounds: communications of one average that follow each other.
        residual: e, shape (numel,); None without a compressor that has error feedback.
    """

    state = ("residual", "_compressor")

    def __init__(
        self, compressor: Compressor | None, comm: Comm, like: Vector, *, shapes: Shapes = (), seed: int = 0
    ) -> None:
        self._comm, self._like = comm, like
        self._spare: list[Vector] = []
        self._compressor = None if compressor is None else replace(compressor)
        self.residual: Vector | None = None
        self.rounds = 1
        if self._compressor is not None:
            self._compressor.start(shapes, comm.rank, comm.world_size, seed)
            self._sizes = self._compressor.messages(like.numel(), shapes, like.element_size())
            self.rounds = len(self._sizes)
            if self._compressor.feedback:
                self.residual = like.clone().zero_()

    def begin(self, v: Vector) -> Exchange:
        """Start to average `v`, shape (numel,), which is the caller's again at once."""
        if self._compressor is None:
            return Exchange(self, v, self._dense(v))
        if isinstance(v, Phantom):
            return Exchange(self, v, self._compressor.sized_rounds(v, self._comm, self._sizes))
        u = self._compressor.load(v)
        if self.residual is not None:
            u = self._vector().copy_(u).add_(self.residual)
            self.residual.zero_()
        rounds = self._compressor.rounds(cast("torch.Tensor", u), self._comm)
        return Exchange(self, u, rounds)

    def keep(self, u: Vector, sent: Vector) -> None:
        """Of `u`, `sent` is on its way; called by the exchange."""
        if self._compressor is None or isinstance(u, Phantom):
            return
        self._compressor.sent(cast("torch.Tensor", sent))
        if self.residual is not None:
            self.residual.add_(u).add_(sent, alpha=-1.0)
            self._spare.append(u)

    def done(self, exchange: Exchange) -> None:
        """Nothing of the exchange is needed any more: its vectors may be used again."""
        if self._compressor is None and exchange.sent is not None:
            self._spare += [exchange.sent, exchange.wait()]

    def _dense(self, v: Vector) -> _Rounds:
        own, mean = self._vector().copy_(v), self._vector().copy_(v)
        yield self._comm.all_reduce(mean), own
        return mean

    def _vector(self) -> Vector:
        return self._spare.pop() if self._spare else self._like.clone()
