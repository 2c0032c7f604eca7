"""The interface of an impairment: its effect on packets, its netem parameters, and its check in a probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from wanbench.harness.emulators.plan import Link
    from wanbench.harness.emulators.probe import Arrival, PathProbe

CERTAIN = 2**32 - 1
"""A probability of 1 in netem's units."""


@dataclass(frozen=True)
class Tolerance:
    """The allowed error of a measured one-way delay: the larger of both values."""

    absolute_ms: float
    share: float


@dataclass(frozen=True)
class Observation:
    """What a probe measured on one path.

    Attributes:
        link: configured values.
        row: measured values.
        samples: number of delays in them.
        arrivals: the packets that they were computed from.
        paths: number of paths judged together; intervals hold for all of them.
    """

    link: Link
    row: PathProbe
    samples: int
    arrivals: tuple[Arrival, ...]
    tolerance: Tolerance
    paths: int


class Impairment:
    """One field of `Link`. Its value is a plain number, and 0 means no impairment.

    Attributes:
        is_random: each packet draws a random number.
    """

    is_random: ClassVar[bool] = False

    def relay(self, value: float, random: Random, delay_ns: float, packets: int, span_ns: float) -> float:
        """Return the delay of a segment's last packet, never negative, in place of `delay_ns`.

        Args:
            packets: number of its packets, sent evenly within `span_ns`; none overtakes another.
        """
        return delay_ns

    def netem(self, link: Link) -> Mapping[str, int]:
        """The keywords of a netem leaf, as `netem.plugin` takes and reads them."""
        return {}

    def tc(self, link: Link) -> str:
        """The same parameters for the tc command."""
        return ""

    def judge(self, observation: Observation) -> list[str]:
        """Return the reasons why a path is out of tolerance, one line each."""
        return []
