"""How large a sweep may be. It is counted before any cell is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.experiment import Spec

MOST_WORKERS = 4096  # the largest that was ever simulated
MOST_CELLS = 10_000
MOST_REPETITIONS = 1_000_000  # of all cells


def check_size(spec: Spec, where: str) -> None:
    """Refuse a sweep that no host could plan. Raises: SpecError."""
    axes = {key: values for key, values in spec.sweep.items() if key not in {"include", "exclude"}}
    points = math.prod(len(values) for values in axes.values() if isinstance(values, list))
    included = spec.sweep.get("include", [])
    points += len(included) if isinstance(included, list) else 0
    choices = 1 if "algorithm" in axes else max(1, sum(_choices(table) for table in spec.algorithms.values()))
    cells, repetitions = points * choices, points * choices * spec.run.repeats
    if cells > MOST_CELLS:
        raise SpecError(f"{where}: sweep: {cells} cells; expected at most {MOST_CELLS}; split the experiment")
    if repetitions > MOST_REPETITIONS:
        raise SpecError(
            f"{where}: run.repeats: {cells} cells and {repetitions} repetitions; expected at most {MOST_REPETITIONS}"
        )


def check_workers(workers: object, where: str) -> None:
    """Refuse a number of workers that is none, or too large. Raises: SpecError."""
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MOST_WORKERS:
        raise SpecError(f"{where}: sweep.workers: expected a whole number from 1 to {MOST_WORKERS}, got {workers!r}")


def _choices(table: Mapping[str, Any]) -> int:
    """The number of algorithms that a table describes; see `alternatives` of the registry."""
    return math.prod(_alternatives(value) for value in table.values())


def _alternatives(value: Any) -> int:
    if isinstance(value, list):
        return sum(_alternatives(each) for each in value)
    return _choices(value) if isinstance(value, Mapping) else 1
