"""The rate at which a path takes packets, and how many bytes may wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.units import Rate, Size

if TYPE_CHECKING:
    from wanbench.netprofiles.path import Path


def _wrong(path: Path) -> str | None:
    holds_nothing = path.buffer == Size(0)
    return "buffer 0B holds no packet; leave it out for one round trip at the rate" if holds_nothing else None


RATE = Impairment("rate", Rate, "path rate", always_stored=True)
BUFFER = Impairment("buffer", Size, "path buffer", wrong=_wrong, always_stored=True)
