"""Temporally sparse updates: one synchronisation every p steps, waited for."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class Sparse(Compensated):
    """DTS with D = 0: every p steps w is averaged, and with momentum also m, and waited for.

    Attributes:
        period: p, in steps; 1 or more. With 1 it is synchronous SGD without buckets.
        compression: what is sent of a block; "none" is all of it.
    """

    kind = "sparse"
    source = "Zhu et al. 2019 (DTS), Eq. 4; with momentum, averaging it too as in Yu, Jin and Yang 2019"

    period: int = field(metadata=at_least(1))
    compression: Compression = "none"
