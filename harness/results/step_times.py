"""Median step times by cell, to which repetitions are added one by one while a run goes on."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]


class StepTimes(Mapping[tuple[Any, Any], float]):
    """The median step time in seconds, by run and cell, of the valid repetitions that count.

    Args:
        counts: whether a repetition counts. rows: the first repetitions.
    """

    def __init__(self, counts: Callable[[Row], bool], rows: Iterable[Row] = ()) -> None:
        self._counts = counts
        self._times: dict[tuple[Any, Any], list[float]] = {}
        self._medians: dict[tuple[Any, Any], float] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add a repetition; one that is not valid, has no step time or does not count changes nothing."""
        if row["status"] == "ok" and row.get("step_time_s") is not None and self._counts(row):
            key = row.get("run"), row.get("cell_key")
            self._times.setdefault(key, []).append(row["step_time_s"])
            self._medians.pop(key, None)

    def __getitem__(self, key: tuple[Any, Any]) -> float:
        if key not in self._medians:
            self._medians[key] = statistics.median(self._times[key])
        return self._medians[key]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._times)

    def __len__(self) -> int:
        return len(self._times)
