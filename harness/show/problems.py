"""What `verify` found, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from wanbench.harness.results.verify import Objection
from wanbench.harness.text import some

_NAMED = 3


def grouped(found: Sequence[Objection], run: str) -> list[str]:
    """One line for each distinct text, after the first few cells that it concerns, or the run."""
    cells: dict[str, list[str]] = {}
    for one in found:
        cells.setdefault(one.text, []).append(one.cell or run)
    return [f"{some(names, _NAMED)}: {text}" for text, names in cells.items()]
