"""Medians and ratios over repetitions. Pure standard library: the controller computes them while it runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]

# The one-worker cell belongs to these; rows that differ in one of them are not comparable.
SAME_BASE = ("run", "testbed", "workload", "payload_scale", "base_key")


def one_worker_step_time_s(rows: Iterable[Row], like: Row) -> float | None:
    """T(1): median step time of the valid one-worker repetitions that `like` is measured against.

    Args:
        rows: all repetitions of a run, results columns.
        like: the row to compare; what `SAME_BASE` names must agree. Rows of commands say which cell
            is theirs: a command that is filled in otherwise has another one.

    Returns:
        Seconds, or None while no such repetition is finished.
    """
    times = [
        row["step_time_s"]
        for row in rows
        if row["workers"] == 1
        and row["status"] == "ok"
        and row.get("step_time_s") is not None
        and all(row.get(key) == like.get(key) for key in SAME_BASE)
    ]
    return statistics.median(times) if times else None


def scalability(row: Row, rows: Iterable[Row]) -> float | None:
    """T(1) / T(N) of one repetition; 1.0 is the limit. None where one of the two has no step time."""
    step_time_s = row.get("step_time_s")
    if row["status"] != "ok" or not step_time_s:
        return None
    one_worker_s = one_worker_step_time_s(rows, row)
    return None if one_worker_s is None else float(one_worker_s / step_time_s)
