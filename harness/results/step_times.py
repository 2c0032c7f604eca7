"""Median step times by cell and host, to which repetitions are added one by one while a run goes on."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]


Key = tuple[Any, Any, str | None]


class StepTimes(Mapping[Key, float]):
    """The median step time in seconds, by run, cell and host, of the valid repetitions that count.

    Args:
        counts: whether a repetition counts. host: the host that its time depends on. rows: the first repetitions.
    """

    def __init__(
        self, counts: Callable[[Row], bool], host: Callable[[Row], str | None], rows: Iterable[Row] = ()
    ) -> None:
        self._counts, self._host = counts, host
        self._times: dict[Key, list[float]] = {}
        self._medians: dict[Key, float] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add a repetition; one that is not valid, has no step time or does not count changes nothing."""
        if row["status"] == "ok" and row.get("step_time_s") is not None and self._counts(row):
            key = row.get("run"), row.get("cell_key"), self._host(row)
            self._times.setdefault(key, []).append(row["step_time_s"])
            self._medians.pop(key, None)

    def __getitem__(self, key: Key) -> float:
        if key not in self._medians:
            self._medians[key] = statistics.median(self._times[key])
        return self._medians[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._times)

    def __len__(self) -> int:
        return len(self._times)
