"""Synchronous SGD: every step waits for the average of its own gradients."""

from __future__ import annotations

from dataclasses import dataclass

from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Compression, Promises, Replica, Setting
from wanbench.workloads.comm.base import Vector, Work


@dataclass
class SSGD(Algorithm):
    """Synchronous SGD: the baseline; exact, waits for every all-reduce.

    On worker j, with gradients g_j of shape (numel,)::

        w <- step(w, mean_j g_j)

    Each bucket's all_reduce starts while the backward pass still computes the next one, as in PyTorch's DDP.

    With compression the whole gradient is compressed at once, and the step applies the mean of the messages. This is
    classic error-feedback SGD: w <- step(w, mean_j C(g_j + e_j)), e_j <- g_j + e_j - C(g_j + e_j). Replicas stay equal.

    Attributes:
        compression: compressor of the gradient; "none" sends all of it.
    """

    source = "Zhu et al. 2019 (DTS), Eq. 1; buckets: Li et al., PyTorch Distributed, VLDB 2020"
    examples = (
        {},
        {"compression": {"kind": "topk", "ratio": 0.3}},
        {"compression": {"kind": "dgc", "ratio": 0.3, "momentum": 0.9, "warmup": 2, "clip": 1.0}},
        {"compression": "fp16"},
    )
    state = ("_averager",)

    compression: Compression = "none"

    @property
    def buckets(self) -> bool:
        """Without compression."""
        return self.compressor is None

    @property
    def promises(self) -> Promises:
        """Replicas stay equal; with compression they lack the workers' residuals."""
        whole = self.compressor is None
        return Promises(agrees=True, exact=whole, keeps_mean=whole, follows_law=self.in_one_all_reduce)

    def check(self, setting: Setting) -> None:
        """As `Algorithm.check`; a compressor with momentum excludes the optimiser's momentum."""
        super().check(setting)
        own = getattr(self.compressor, "momentum", 0.0)
        if own and (setting.momentum or setting.optimizer != "sgd"):
            raise AlgorithmError(
                f"algorithm 'ssgd': compression: momentum = {own:g} replaces the optimiser's; "
                "expected optimizer 'sgd' with train.momentum = 0"
            )

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._works: list[Work] = []
        self._averager = None if self.compressor is None else self.averager(replica.w)

    def bucket(self, view: Vector) -> None:
        """Start averaging `view`, a slice of the gradient, shape (bucket numel,)."""
        self._works.append(self.replica.comm.all_reduce(view))

    def gradient(self, g: Vector) -> Vector:
        """Wait for all buckets, then return `g`, shape (numel,), averaged in place.

        If the engine handed over no buckets, the whole gradient is reduced at once.

        Raises:
            CommError: a peer is gone.
        """
        if self._averager is not None:
            return g.copy_(self._averager.begin(g).wait())
        works, self._works = self._works or [self.replica.comm.all_reduce(g)], []
        for work in works:
            work.wait()
        return g
