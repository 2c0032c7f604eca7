"""Jitter: the standard deviation of the one-way delay. Packets keep their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.units import Delay

if TYPE_CHECKING:
    from wanbench.netprofiles.path import Path


def _problem(path: Path) -> str | None:
    # Jitter is drawn from a normal distribution. Up to a third of the delay, only one draw in 740 would
    # arrive before it was sent; such draws are cut off, which moves the mean.
    if 3 * path.jitter.ns <= path.delay.ns:
        return None
    maximum = Delay(path.delay.ns // 3)
    return f"jitter {path.jitter} is above a third of the one-way delay {path.delay}; expected at most {maximum}"


JITTER = Impairment(
    "jitter",
    Delay,
    "one-way jitter",
    problem=_problem,
    about='Uniform only: standard deviation of the one-way delay, such as "2ms". Packets keep their order.',
    changed="New jitter, or a factor for the present one.",
    always_stored=True,
)
