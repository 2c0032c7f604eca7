"""Delayed updates: every step's average arrives D steps late."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class Delayed(Compensated):
    """Hides latency: applies each average D steps late, corrected exactly.

    This is DTS with p = 1. Without momentum, for gradients g of shape (numel,)::

        w <- w - lr g_j(n)                              at step n
        w <- w - lr (mean_j g_j(n) - g_j(n))            at the end of step n + D

    Attributes:
        delay: D, in steps; 1 or more, because 0 is synchronous SGD.
        compression: compressor of the gradient; "none" sends all of it.
    """

    kind = "delayed"
    source = "Zhu et al. 2019 (DTS), Eq. 3; Zhu et al., Delayed Gradient Averaging, NeurIPS 2021"
    examples = ({"delay": 4}, {"delay": 4, "compression": "signsgd"})

    delay: int = field(metadata=at_least(1))
    compression: Compression = "none"
