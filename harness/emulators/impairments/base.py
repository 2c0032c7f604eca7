"""The interface of an impairment: what it does to packets, what netem calls it, what a probe says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from wanbench.harness.emulators.plan import Link
    from wanbench.harness.emulators.probe.report import Arrival, PathProbe

Copy = tuple[float, bytes]
"""What becomes of a packet: nanoseconds that it takes, never negative, and its bytes."""

CERTAIN = 2**32 - 1
"""A probability of 1, as netem counts."""


@dataclass(frozen=True)
class Tolerance:
    """How far the measured one-way delay may be from the configured one: the larger of both."""

    absolute_ms: float
    share: float


@dataclass(frozen=True)
class Seen:
    """What a probe has of one path.

    Attributes:
        link: as configured. row: the figures. samples: how many delays they rest on. arrivals: what they are made of.
        paths: how many are judged together: intervals hold for all of them.
    """

    link: Link
    row: PathProbe
    samples: int
    arrivals: tuple[Arrival, ...]
    tolerance: Tolerance
    paths: int


class Impairment:
    """One field of `Link`. Its value is a plain number, 0 where there is none of it.

    Attributes:
        is_random: packets differ.
        is_share: of packets, in [0, 1]: a probe sends as many as it takes to see some.
    """

    is_random: ClassVar[bool] = False
    is_share: ClassVar[bool] = False

    def relay(self, value: float, random: Random, copies: list[Copy]) -> list[Copy]:
        """What the relay makes of what became of a packet so far; in the order of `Link`, the last field first."""
        return copies

    def netem(self, value: Any) -> Mapping[str, int]:
        """Keywords of a netem leaf, as `netem.plugin` takes and reads them."""
        return {}

    def tc(self, value: Any) -> str:
        """The same for the tc command."""
        return ""

    def judge(self, seen: Seen) -> list[str]:
        """Why a path is out of tolerance, one line each."""
        return []
