"""T(1) / T(N), or T(1) / (N T(N)) if the workers share the work.

This uses only the standard library, because the controller computes it during a run.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Key = tuple[Any, Any, str | None]
OneWorker = Mapping[Key, float]


class StepTimes(dict[Key, float]):
    """The median step time in seconds, by run, cell and host, of the valid repetitions that count.

    Args:
        counts: whether a repetition counts. host: the host that its time depends on. rows: the first repetitions.
    """

    def __init__(self, counts: Callable[[Row], bool], host: Callable[[Row], str | None], rows: Iterable[Row]) -> None:
        super().__init__()
        self._counts, self._host = counts, host
        self._times: dict[Key, list[float]] = defaultdict(list)
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add a repetition; one that is not valid, has no step time or does not count changes nothing."""
        if row["status"] == "ok" and row.get("step_time_s") is not None and self._counts(row):
            key = row.get("run"), row.get("cell_key"), self._host(row)
            self._times[key].append(row["step_time_s"])
            self[key] = statistics.median(self._times[key])


def host_of(row: Row) -> str | None:
    """The host that the times of a row depend on. None if they were simulated, or if the host was not recorded."""
    return None if row.get("testbed") == "virtual" else row.get("host")


def one_worker_step_times(rows: Iterable[Row]) -> StepTimes:
    """T(1) in seconds by run, cell and host: the median step time of a one-worker cell's valid repetitions there."""
    return StepTimes(lambda row: bool(row["workers"] == 1), host_of, rows)


def rescale(rows: Sequence[Any]) -> None:
    """Compute every scalability from the one-worker repetitions among these rows. Rows without one keep their value."""
    one_worker = one_worker_step_times(rows)
    for row in rows:
        row["calibration_s"] = calibration(row, one_worker) or row.get("calibration_s")
        row["scalability"] = scalability(row, one_worker) or row["scalability"]


def calibration(row: Row, one_worker: OneWorker) -> float | None:
    """T(1) of a repetition in seconds: that of its one-worker cell (`base_key`) on its own host.

    None if it has no step time, or if that host has not measured its one-worker cell yet.
    """
    if row["status"] != "ok" or not row.get("step_time_s"):
        return None
    return one_worker.get((row.get("run"), row.get("base_key"), host_of(row)))


def scalability(row: Row, one_worker: OneWorker) -> float | None:
    """T(1) / T(N) of one repetition, or T(1) / (N T(N)) with strong scaling; 1.0 is the limit of both.

    If workers were lost, T(N) is the time per N steps that count in the final model. None without a `calibration`.
    """
    one_worker_s = calibration(row, one_worker)
    if one_worker_s is None:
        return None
    value = float(one_worker_s / row["step_time_s"] / (row["workers"] if row.get("scaling") == "strong" else 1))
    counted = row.get("counted_steps")
    return value if counted is None else value * counted / (row["workers"] * row["steps"])


def formula(rows: Iterable[Row]) -> str:
    """The definition of the scalability of these rows."""
    return "T(1) / (N T(N))" if any(row.get("scaling") == "strong" for row in rows) else "T(1) / T(N)"
