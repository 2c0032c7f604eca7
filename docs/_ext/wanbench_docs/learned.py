"""What methods cost in accuracy, from the recordings of the learning library, as tables."""

from __future__ import annotations

from wanbench.harness.learning.recording import RECORDED, SUFFIX, read
from wanbench.harness.learning.summary import tables


def recorded() -> list[str]:
    """Return the names of the designs that are recorded."""
    return sorted(path.name.removesuffix(SUFFIX) for path in RECORDED.glob(f"*{SUFFIX}"))


def of_learned(name: str) -> str:
    """Return the accuracy of every setting: at equal steps, at equal time, and under the other conditions."""
    return tables(read(RECORDED / f"{name}{SUFFIX}")) + "\n"
