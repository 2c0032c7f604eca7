"""ECD-PSGD: D-PSGD that sends compressed extrapolations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from wanbench.workloads.algorithms.base import AlgorithmError, Compression, Promises, Replica, Setting
from wanbench.workloads.algorithms.gossip import Gossip, Neighbours
from wanbench.workloads.comm.base import Phantom, Vector
from wanbench.workloads.compression.base import Gathered

if TYPE_CHECKING:
    import torch


@dataclass
class ECDPSGD(Gossip):
    """D-PSGD with compressed messages, for slow links.

    ECD-PSGD keeps estimates xh_j of its own and its neighbours' parameters, which improve over time. On worker i at its
    step t = 1, 2, ..., with vectors of shape (numel,), W as in `dpsgd`, and xh_j initially the parameters::

        x_i' = sum_j W_ij xh_j + (change of x_i by the optimiser's step with the gradient at x_i)
        z = (1 - t/2) x_i + (t/2) x_i' ;  send C(z)
        xh_j <- (1 - 2/t) xh_j + (2/t) C(z_j)          for itself and every neighbour

    C must be unbiased with a bounded error. The errors of `qsgd` and `terngrad` grow with z, and z grows with t unless
    steps shrink, so quantise finely or let lr decay. Without compression it is D-PSGD.

    Attributes:
        compression: C: "qsgd" or "terngrad" with their parameters, or "none".
    """

    kind = "ecdpsgd"
    source = "Tang, Gan, Zhang, Zhang and Liu, Communication Compression for Decentralized Training, NeurIPS 2018"
    symbols = {"compression": "C"}  # noqa: RUF012
    examples = ({"compression": "none"}, {"compression": {"kind": "qsgd", "levels": 127}})
    state = ("_estimates", "_coder", "_t")

    compression: Compression = field(default_factory=lambda: {"kind": "qsgd", "levels": 127, "bucket": 64})

    def __post_init__(self) -> None:
        super().__post_init__()
        compressor = self.compressor
        if compressor is not None and not (compressor.unbiased and isinstance(compressor, Gathered)):
            raise AlgorithmError(
                f"algorithm 'ecdpsgd': compression: '{compressor.kind}' is biased; expected an unbiased compressor, "
                "'qsgd' or 'terngrad', or 'none'"
            )

    @property
    def promises(self) -> Promises:
        """Without compression the mean is kept."""
        return Promises(keeps_mean=self.compressor is None)

    def operations(self, world_size: int) -> int:
        """Send and receive a message for each of two neighbours."""
        return 4

    def _check_compressor(self, setting: Setting) -> None:
        """Accept any collective: no all_gather is needed here."""

    def start(self, replica: Replica) -> None:
        super().start(replica)
        comm = replica.comm
        self._neighbours = Neighbours(comm)
        self._peers = sorted({comm.rank, *self._neighbours.ranks})
        self._estimates = {rank: replica.w.clone() for rank in self._peers}
        self._z = replica.w.clone()
        self._coder = cast(Gathered | None, self.compressor)
        if self._coder is not None:
            self._coder.start((), comm.rank, comm.world_size, replica.seed)
        self._own: Vector | None = None
        self._t = 0

    def stepped(self) -> None:
        """Wait for the neighbours, average the estimates, add the step, and send the extrapolation.

        Raises:
            CommError: a peer is gone.
        """
        self.finish()
        self._t += 1
        w = self.replica.w.add_(self._before, alpha=-1.0)
        for rank in self._peers:
            w.add_(self._estimates[rank], alpha=1.0 / len(self._peers))
        z = self._z.copy_(self._before).mul_(1 - self._t / 2).add_(w, alpha=self._t / 2)
        self._own = self._encode(z)
        if self.replica.comm.world_size > 1:
            self._neighbours.begin(self._own)

    def finish(self) -> None:
        """Wait for the neighbours' messages and update the estimates.

        Raises:
            CommError: a peer is gone.
        """
        if self._own is None:
            return
        messages = {**self._neighbours.wait(), self.replica.comm.rank: self._own}
        self._process(len(messages))
        for rank in self._peers:
            estimate = self._estimates[rank].mul_(1 - 2 / self._t)
            estimate.add_(self._decode(messages[rank]), alpha=2 / self._t)
        self._own = None

    def _process(self, vectors: int) -> None:
        if self._coder is not None:
            self.replica.processing(vectors * self._z.numel() * self._z.element_size() * self._coder.ns_per_byte / 1e9)

    def _encode(self, z: Vector) -> Vector:
        if self._coder is None:
            return z.clone()
        self._process(1)
        if isinstance(z, Phantom):
            (message,) = self._coder.messages(z.numel(), (), z.element_size())
            return message
        return self._coder.encode(cast("torch.Tensor", z))

    def _decode(self, message: Vector) -> Vector:
        if self._coder is None or isinstance(message, Phantom):
            return message
        return self._coder.decode(cast("torch.Tensor", message), cast("torch.Tensor", self._z))
