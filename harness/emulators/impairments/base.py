"""The emulators' half of an impairment: what the relay does, what netem is told, and what the probe expects.

Its other half, what people write, is in the file of the same name in `netprofiles/impairments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from wanbench.harness.emulators.plan import Link
    from wanbench.harness.emulators.probe import PathProbe
    from wanbench.harness.emulators.relay.segment import Segment

    Passing = Callable[[Segment], Iterable[Segment]]

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
        paths: number of paths judged together; intervals hold for all of them.
    """

    link: Link
    row: PathProbe
    samples: int
    tolerance: Tolerance
    paths: int


class Impairment:
    """One field of `Link`. Its value is a plain number, and 0 means no impairment.

    Attributes:
        is_random: each packet draws a random number.
        is_simulated: the simulated clock applies it (`testbeds/virtual/noise.py`); the plan refuses others there.
    """

    is_random: ClassVar[bool] = False
    is_simulated: ClassVar[bool] = False

    def delayed(self, value: float, random: Random, delay_ns: float, packets: int, span_ns: float) -> float:
        """Return the delay of a segment's last packet, never negative, in place of `delay_ns`.

        Args:
            packets: number of its packets, sent evenly within `span_ns`; none overtakes another.
        """
        return delay_ns

    def passing(self, link: Link, random: Random) -> Passing | None:
        """What the relay lets through of each segment that enters the delay, in order; None: everything, unchanged.

        A copy is a segment of its own (`Segment.part`).
        """
        return None

    def netem(self, link: Link) -> Mapping[str, int]:
        """Its keywords of a netem leaf, as `netem.kernel` takes and reads them; also of a link without it."""
        return {}

    def tc(self, link: Link) -> str:
        """The same parameters for the tc command."""
        return ""

    def share(self, link: Link) -> float:
        """How many of its events a packet sees on average, so that the probe sends enough packets; 0: any number."""
        return 0.0

    def judge(self, observation: Observation) -> list[str]:
        """Return the reasons why a path is out of tolerance, one line each."""
        return []
