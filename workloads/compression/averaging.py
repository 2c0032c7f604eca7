"""Averages of a stream of vectors over the workers, compressed or not, with error feedback.

With a compressor C, the residual e of this worker and vectors v_1, v_2, ...::

    u = v + decay e            to be sent
    c = C(u)                   sent: the vector that the receivers decode
    e = u - c                  not sent: added to the next vector
    mean = (1/N) sum over the workers of c

With decay 1, the messages and the residual always add up to the vectors: sum of c + e = sum of v. (Seide et al. 2014;
Stich, Cordonnier and Jaggi 2018; Karimireddy et al. 2019.) A compressor with several rounds knows c only after the
first round. Until then u counts as sent, and later vectors are compressed without its residual, which preserves the
sum.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from wanbench.workloads.comm.base import Comm, Phantom, Vector, Work, nbytes_of
from wanbench.workloads.compression.base import Compressor, Rounds, Shapes, SizedRounds
from wanbench.workloads.state import Stateful

if TYPE_CHECKING:
    import torch

_Rounds = Generator[tuple[Work, Vector], None, Vector]


def no_time(seconds: float) -> None:
    """Processing that no simulated clock counts."""


class Exchange:
    """One average in flight, of `count` rounds.

    Attributes:
        own: c, this worker's contribution to the mean, or the whole vector to be sent while that is unknown.
        age: its age in steps, which an algorithm counts.
    """

    def __init__(self, rounds: _Rounds, count: int) -> None:
        self._rounds, self._count, self._waited = rounds, count, 0
        self._work, self.own = next(rounds)
        self._mean: Vector | None = None
        self.age = 0

    def proceed(self, delay: int) -> None:
        """Begin the next round if it is due at this age; r rounds share the `delay` steps evenly.

        It can stall. All ranks do this at the same steps, so operations have the same order everywhere.
        """
        while self._waited + 1 < self._count and self.age * self._count >= (self._waited + 1) * delay:
            self._wait()

    def wait(self) -> Vector:
        """Wait for the mean, shape (numel,). The caller owns it and `own` until `Averager.done`.

        Raises:
            CommError: a peer is gone.
        """
        while self._mean is None:
            self._wait()
        return self._mean

    def delta(self) -> Vector:
        """Return the mean minus this worker's contribution. Call it once: it overwrites the mean."""
        return self.wait().add_(self.own, alpha=-1.0)

    def _wait(self) -> None:
        self._work.wait()
        self._waited += 1
        try:
            self._work, self.own = next(self._rounds)
        except StopIteration as end:
            self._mean = end.value


class Averager(Stateful):
    """Averages a stream of vectors of equal size.

    Args:
        compressor: None sends the vectors as they are. The averager makes its own copy with the same parameters.
        comm: connects the peers.
        like: a vector of the size and type to be averaged.
        shapes: shapes of the parameter tensors in it, if known.
        seed: seed of random draws, equal on all ranks.
        processing: called with the seconds that compression takes on the simulated clock.
        decay: the share of the residual that the next vector keeps.

    Attributes:
        rounds: number of consecutive communications per average.
        residual: e, shape (numel,); None unless the compressor has error feedback.
    """

    state = ("residual", "_compressor")

    def __init__(
        self,
        compressor: Compressor | None,
        comm: Comm,
        like: Vector,
        *,
        shapes: Shapes = (),
        seed: int = 0,
        processing: Callable[[float], None] = no_time,
        decay: float = 1.0,
    ) -> None:
        self._comm, self._like, self._shapes, self._processing = comm, like, shapes, processing
        self._decay = decay
        self._spare: list[Vector] = []
        self._compressor = None if compressor is None else replace(compressor)
        self.residual: Vector | None = None
        self.rounds = 1
        if self._compressor is not None:
            self._compressor.start(shapes, comm.rank, comm.world_size, seed)
            self.rounds = len(self._compressor.messages(like.numel(), shapes, like.element_size()))
            if self._compressor.feedback:
                self.residual = like.clone().zero_()

    def begin(self, v: Vector) -> Exchange:
        """Start to average `v`, shape (numel,). The caller can reuse `v` at once."""
        return Exchange(self._average(v), self.rounds)

    def done(self, exchange: Exchange) -> None:
        """Take back the vectors of an exchange that is no longer needed."""
        if self._compressor is None:
            self._spare += [exchange.own, exchange.wait()]

    def _average(self, v: Vector) -> _Rounds:
        """One average: yield for each round the work to wait for and the contribution; return the mean."""
        if self._compressor is None:
            own, mean = self._vector().copy_(v), self._vector().copy_(v)
            yield self._comm.all_reduce(mean), own
            return mean
        compressor = self._compressor
        own = u = compressor.load(v)
        if self.residual is not None and not isinstance(u, Phantom):
            own = u = self._vector().copy_(u).add_(self.residual, alpha=self._decay)
            self.residual.zero_()
        rounds: Rounds | SizedRounds
        if isinstance(u, Phantom):
            # The sizes are those of this vector: DGC's change during its warm-up.
            sizes = compressor.messages(u.numel(), self._shapes, u.element_size())
            rounds = compressor.sized_rounds(u, self._comm, sizes)
        else:
            rounds = compressor.rounds(cast("torch.Tensor", u), self._comm)
        vectors = 1  # that a worker compresses; afterwards it restores one from every message that it receives
        while True:
            self._processing(vectors * nbytes_of(self._like) * compressor.ns_per_byte / 1e9)
            try:
                work, sent = next(rounds)
            except StopIteration as end:
                return cast(Vector, end.value)
            own = own if sent is None else sent
            if sent is not None and not isinstance(u, Phantom):
                compressor.sent(cast("torch.Tensor", sent))
                if self.residual is not None:  # keeps what was not sent
                    self.residual.add_(u).add_(sent, alpha=-1.0)
                    self._spare.append(u)
            yield work, own
            vectors = self._comm.world_size if compressor.gathers else 1

    def _vector(self) -> Vector:
        return self._spare.pop() if self._spare else self._like.clone()
