"""Delayed updates: every step's average arrives D steps late."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class Delayed(Compensated):
    """DTS with p = 1: the average of each step's gradients is applied D steps later.

    Attributes:
        delay: D, in steps; 1 or more, because 0 is synchronous SGD.
        compression: what is sent of a gradient; "none" is all of it.
    """

    kind = "delayed"
    source = "Zhu et al. 2019 (DTS), Eq. 3; Zhu et al., Delayed Gradient Averaging, NeurIPS 2021"

    delay: int = field(metadata=at_least(1))
    compression: Compression = "none"
