"""Eager DiLoCo, reconstructed: outer gradients are averaged during the next round, and own shares are applied at once.

**A reconstruction.** The paper's abstract and summaries could be read, its pseudo-code could not. They say that a
worker applies a mixture of its current own outer gradient and of the delayed ones of all others. The weights here are
those of the mean, so each outer gradient counts once. What happens at the end (`finish`), staleness above one round,
and the use of compressed own gradients are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Algorithm, Compression, Promises, at_least, between
from wanbench.workloads.algorithms.diloco import OuterSteps


@dataclass
class EagerDiLoCo(OuterSteps):
    """DiLoCo that hides latency behind whole rounds (a reconstruction).

    In round t on worker k of N, all vectors of shape (numel,)::

        w <- H steps of the local optimiser from theta_k
        Delta_k^t = theta_k - w ;  send it
        Delta = Delta_k^t / N + (sum over the other workers j of Delta_j^(t-s)) / N            eager
        Delta = mean over all workers j of Delta_j^(t-s)                                       not eager
        theta_k <- Nesterov(theta_k, Delta; outer_lr, momentum)

    Outer gradients from before the first round are 0. The paper has s = 1. With s = 0 it is DiLoCo. With compression,
    what this worker has sent stands for its own Delta_k^t.

    Not eager, all workers share theta, but no local step has an effect before its average arrives. Eager, the theta_k
    differ. `finish` ends the round early and applies the averages in flight, without new own ones: replicas are then
    equal if `momentum` is 0; otherwise they keep what the momentum made of their own gradients being early.

    Attributes:
        period: H, in steps; 1 or more.
        staleness: s, in rounds; 0 or more. The delay is D = s H steps.
        eager: False delays a worker's own outer gradient too.
        outer_lr, momentum: learning rate and momentum of the outer step.
        compression: compressor of Delta_k; "none" sends all of it.
    """

    kind = "eager-diloco"
    source = "reconstruction from summaries of Kale, Douillard and Donchev, Eager Updates in DiLoCo, 2025"
    when_lost = f"{Algorithm.when_lost}. All go on from the mean outer model and momentum"
    symbols = {"period": "H", "outer_lr": "outer learning rate", "momentum": "mu"}  # noqa: RUF012
    examples = (
        {"period": 3},
        {"period": 3, "staleness": 2, "momentum": 0.0, "compression": "topk"},
        {"period": 3, "staleness": 2, "compression": {"kind": "powersgd", "least": 0}},
        {"period": 4, "eager": False, "compression": "signsgd"},
    )

    period: int = field(metadata=at_least(1))
    staleness: int = field(default=1, metadata=at_least(0))
    eager: bool = True
    outer_lr: float = field(default=0.7, metadata=between(0, 100, open_below=True))
    momentum: float = field(default=0.9, metadata=between(0, 1, open_above=True))
    compression: Compression = "none"

    @property
    def promises(self) -> Promises:
        """Outer steps are linear, and without momentum what was applied early is subtracted later."""
        same = not self.eager or not self.staleness or not self.momentum
        return Promises(agrees=same, follows_law=self.in_one_all_reduce)
