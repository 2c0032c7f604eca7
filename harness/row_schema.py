"""Is this a row of results? Files of a run may be cut short, edited, or of another program: all are judged here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

STATUSES = ("ok", "invalid", "failed")

_TEXT = ("status", "cell_key", "code")
_TEXT_OR_NULL = (
    "reason", "testbed", "emulator", "collective", "workload", "algorithm", "kind", "profile", "tcp", "image",
)  # fmt: skip
_NUMBERS = (
    "channels", "payload_scale", "workers", "rtt_ms", "rtt_max_ms", "rate_mbps", "loss_pct", "jitter_ms", "seed",
    "steps", "steps_total", "step_time_s", "compute_s", "stall_s", "overhead_s", "scalability",
    "predicted_step_time_s", "payload_bytes", "wire_bytes", "messages_sent", "final_loss", "accuracy",
    "time_to_target_s", "one_way_error_ms", "lateness_p99_ms", "overdue_pct", "host_cpu_pct",
)  # fmt: skip
_TABLES = ("params", "law_inputs", "axes")


def why_unreadable(row: object) -> str | None:
    """What is wrong with a row, in a clause; None if nothing is."""
    if not isinstance(row, Mapping):
        return "not an object"
    for name in _TEXT:
        if not isinstance(row.get(name), str):
            return f"{name}: expected text, got {_shown(row.get(name))}"
    if row["status"] not in STATUSES:
        return f"status: expected one of {', '.join(STATUSES)}, got {_shown(row['status'])}"
    if type(row.get("rep")) is not int:
        return f"rep: expected a whole number, got {_shown(row.get('rep'))}"
    for name in _TEXT_OR_NULL:
        if not isinstance(row.get(name), str | None):
            return f"{name}: expected text or null, got {_shown(row[name])}"
    for name in _NUMBERS:
        if not _is_number_or_null(row.get(name)):
            return f"{name}: expected a number or null, got {_shown(row[name])}"
    for name in _TABLES:
        if not isinstance(row.get(name), Mapping | None):
            return f"{name}: expected an object or null, got {_shown(row[name])}"
    if row["status"] == "ok" and "step_time_s" in row and not (row["step_time_s"] or 0) > 0:
        return f"step_time_s: expected more than 0, got {_shown(row['step_time_s'])}"
    return None


def _is_number_or_null(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and type(value) is not bool and math.isfinite(value))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
