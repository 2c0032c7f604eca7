"""Delayed updates: every step's average arrives D steps late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from workloads.algorithms.base import at_least
from workloads.algorithms.dts import Compensated


@dataclass
class Delayed(Compensated):
    """DTS with p = 1 (DTS, Eq. 3; Delayed Gradient Averaging, NeurIPS 2021).

    Attributes:
        delay: D, in steps; 1 or more, because 0 is synchronous SGD.
    """

    kind: ClassVar[str] = "delayed"

    delay: int = field(metadata=at_least(1))

    @property
    def delay_steps(self) -> int:
        """D."""
        return self.delay
