"""The rate of a path, and the number of bytes that can wait in its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.units import Rate, Size

if TYPE_CHECKING:
    from wanbench.netprofiles.path import Path

EMPTY_BUFFER = "buffer 0B holds no packet; expected more, or no buffer for the default: one round trip at the rate"


def _problem(path: Path) -> str | None:
    return EMPTY_BUFFER if path.buffer == Size(0) else None


RATE = Impairment("rate", Rate, "path rate", always_stored=True)
BUFFER = Impairment("buffer", Size, "path buffer", problem=_problem, always_stored=True)
