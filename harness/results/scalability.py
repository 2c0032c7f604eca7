"""T(1) / T(N), or T(1) / (N T(N)) if the workers share the work.

This uses only the standard library, because the controller computes it during a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wanbench.harness.results.step_times import StepTimes

Row = Mapping[str, Any]
OneWorker = Mapping[tuple[Any, Any], float]


def one_worker_step_times(rows: Iterable[Row]) -> StepTimes:
    """T(1) in seconds by run and cell: the median step time of the valid repetitions of every one-worker cell."""
    return StepTimes(lambda row: bool(row["workers"] == 1), rows)


def rescale(rows: Sequence[Any]) -> None:
    """Compute every scalability from the one-worker repetitions among these rows. Rows without one keep their value."""
    one_worker = one_worker_step_times(rows)
    for row in rows:
        row["scalability"] = scalability(row, one_worker) or row["scalability"]


def scalability(row: Row, one_worker: OneWorker) -> float | None:
    """T(1) / T(N) of one repetition, or T(1) / (N T(N)) with strong scaling; 1.0 is the limit of both.

    If workers were lost, T(N) is the time per N steps that count in the final model.

    None if it has no step time, or if its one-worker cell (`base_key`) has none yet.
    """
    step_time_s = row.get("step_time_s")
    one_worker_s = one_worker.get((row.get("run"), row.get("base_key")))
    if row["status"] != "ok" or not step_time_s or one_worker_s is None:
        return None
    value = float(one_worker_s / step_time_s / (row["workers"] if row.get("scaling") == "strong" else 1))
    counted = row.get("counted_steps")
    return value if counted is None else value * counted / (row["workers"] * row["steps"])


def formula(rows: Iterable[Row]) -> str:
    """The definition of the scalability of these rows."""
    return "T(1) / (N T(N))" if any(row.get("scaling") == "strong" for row in rows) else "T(1) / T(N)"
