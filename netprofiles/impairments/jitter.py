"""How uneven the one-way delay is: its standard deviation. Order is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.units import Delay

if TYPE_CHECKING:
    from wanbench.netprofiles.path import Path


def _wrong(path: Path) -> str | None:
    # Jitter is drawn from a normal distribution: below a third of the delay, a draw that would
    # have to arrive before it was sent (and be cut off, moving the mean) is one in 740.
    if 3 * path.jitter.ns <= path.delay.ns:
        return None
    most = Delay(path.delay.ns // 3)
    return f"jitter {path.jitter} is above a third of the one-way delay {path.delay}; expected at most {most}"


JITTER = Impairment(
    "jitter",
    Delay,
    "one-way jitter",
    wrong=_wrong,
    about='Uniform only: standard deviation of the one-way delay, as "2ms"; order is kept.',
    changed="Jitter, or a factor on it.",
    always_stored=True,
)
