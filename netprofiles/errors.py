"""What goes wrong with units, profiles and placements, each told in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UnitError(ValueError):
    """A quantity that cannot be read, or that no network can have (a negative delay)."""


class ProfileError(ValueError):
    """A profile that is incomplete, contradicts itself or cannot be read."""


class PlacementError(ValueError):
    """Workers that cannot be put on the sites of a profile as asked."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """The closest of `known` as the tail of an error message, "; did you mean 'Gbit'?".

    Args:
        word: as written; case is ignored, so that `gbit` finds `Gbit`.
        otherwise: what to say where nothing is close, "expected one of ..."; without it, nothing.
        cutoff: difflib's similarity in [0, 1].
    """
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    tail = f"did you mean {by_lower[close[0]]!r}?" if close else otherwise
    return tail and f"; {tail}"
