"""Errors in units, profiles and placements. Each message is one line."""

import difflib
from collections.abc import Iterable


class UnitError(ValueError):
    """A quantity cannot be read, or is impossible, such as a negative delay."""


class FileError(ValueError):
    """A file that a user named cannot be read."""


class ProfileError(ValueError):
    """A profile is incomplete, contradicts itself or cannot be read."""


class PlacementError(ValueError):
    """Workers cannot be placed on the sites of a profile as requested."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, ending: str = "", cutoff: float = 0.6) -> str:
    """Return the closest of `known` as the end of an error message: "; did you mean 'Gbit'?".

    Args:
        word: the word as written; case is ignored, so `gbit` finds `Gbit`.
        otherwise: the text to use if no known word is close, such as "expected one of ..."; empty by default.
        ending: follows the word in the text, such as the rest of a dotted key.
        cutoff: difflib's minimum similarity, in [0, 1].
    """
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    tail = f"did you mean {by_lower[close[0]] + ending!r}?" if close else otherwise
    return tail and f"; {tail}"
