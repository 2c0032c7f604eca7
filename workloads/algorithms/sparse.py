"""Temporally sparse updates: one blocking synchronisation every p steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class Sparse(Compensated):
    """Sends less often: synchronises every p steps and waits for it.

    This is DTS with D = 0. Every p steps, on vectors of shape (numel,)::

        w <- mean_j w_j ;  with momentum also m <- mean_j m_j

    Attributes:
        period: p, in steps; 1 or more. With 1 it is synchronous SGD without buckets.
        compression: compressor of the block's update; "none" sends all of it.
    """

    kind = "sparse"
    source = "Zhu et al. 2019 (DTS), Eq. 4; momentum is averaged as in Yu, Jin and Yang 2019"
    examples = ({"period": 4}, {"period": 4, "compression": {"kind": "powersgd", "least": 0}})

    period: int = field(metadata=at_least(1))
    compression: Compression = "none"
