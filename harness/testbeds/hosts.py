"""Host names of workers: site and rank, such as `tokyo-3`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_LONGEST = 50  # a host name has at most 63 characters


def host_names(sites: Sequence[str]) -> tuple[str, ...]:
    """The host name of each rank, from the names of its site in any language."""
    return tuple(f"{_label(site)}-{rank}" for rank, site in enumerate(sites))


def _label(site: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", site).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", ascii_only)[:_LONGEST].strip("-") or "site"
