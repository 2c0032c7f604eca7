"""Temporally sparse updates: one synchronisation every p steps, waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from workloads.algorithms.base import at_least
from workloads.algorithms.dts import Compensated


@dataclass
class Sparse(Compensated):
    """DTS with D = 0 (DTS, Eq. 4): averaging w, and with momentum also m, every p steps.

    Attributes:
        period: p, in steps; 1 or more. With 1 it is synchronous SGD without buckets.
    """

    kind: ClassVar[str] = "sparse"

    period: int = field(metadata=at_least(1))

    @property
    def period_steps(self) -> int:
        """p."""
        return self.period
