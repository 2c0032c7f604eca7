"""What a stored row must hold to be one: a file that someone edited, or that a full disk cut short, is not shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wanbench.harness.plan.law import PredictInputs

_STATUSES = ("ok", "invalid", "failed")
_TEXT = ("cell_key", "code", "testbed", "workload", "algorithm", "kind")
_TEXT_OR_NULL = ("run", "reason", "emulator", "collective", "profile", "tcp", "image", "timeline")
_AT_LEAST_0 = (
    "rtt_ms", "rtt_max_ms", "loss_pct", "jitter_ms", "compute_s", "stall_s", "payload_bytes", "wire_bytes",
    "messages_sent", "blocks_lost_pct", "time_to_target_s", "lateness_p99_ms", "overdue_pct", "host_cpu_pct",
    "retransmits", "tcp_timeouts", "emulator_cpu_us_per_packet",
)  # fmt: skip
_ABOVE_0 = ("steps", "step_time_s", "scalability", "predicted_step_time_s", "rate_mbps", "payload_scale", "channels")
_NUMBERS = ("overhead_s", "final_loss", "accuracy", "replica_spread", "one_way_error_ms")
_MAPPINGS = ("params", "axes", "law_inputs")
_INTEGERS = ("workers", "rep", "seed", "delay", "period", "steps", "channels")
_MOST = 1 << 53  # what every reader of JSON keeps exactly


def flaw(row: object) -> str | None:
    """What keeps `row` from being one repetition's row, in words; None if nothing does.

    Columns that every row has must be there. The others may be absent or null, as in rows of an earlier version, but
    where they hold a value it is of their kind. A loss may be infinite or no number: training can diverge.
    """
    if not isinstance(row, Mapping):
        return "expected an object"
    absent = [name for name in ("status", "rep", "workers", *_TEXT) if row.get(name) is None]
    if absent:
        return f"{absent[0]}: missing"
    if row["status"] not in _STATUSES:
        return f"status: expected ok, invalid or failed, got {row['status']!r}"
    if row["status"] == "ok" and row.get("step_time_s") is None:
        return "step_time_s: missing"
    for names, expected, is_one in _KINDS:
        for name in names:
            value = row.get(name)
            if value is not None and not is_one(value):
                return f"{name}: expected {expected}, got {value!r}"[:200]
    return _flaw_of_parameters(row.get("params") or {}) or _flaw_of_law(row.get("law_inputs"))


def _flaw_of_parameters(params: Mapping[str, Any]) -> str | None:
    """They are the looks of an algorithm's line, and its place in a legend."""
    for name, value in params.items():
        if name in ("delay", "period") and not _is_count(value):
            return f"params.{name}: expected a whole number, got {value!r}"[:200]
    return None


def _flaw_of_law(inputs: Mapping[str, Any] | None) -> str | None:
    if inputs is None:
        return None
    try:
        PredictInputs.from_json(inputs)
    except (TypeError, ValueError) as error:
        return f"law_inputs: {error}"[:200]
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _is_events(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) and "what" in item for item in value)


_KINDS: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
    ((*_TEXT, *_TEXT_OR_NULL), "text", lambda value: isinstance(value, str)),
    (_INTEGERS, "a whole number", _is_count),
    (("workers",), "at least 1", lambda value: value >= 1),
    (_AT_LEAST_0, "a number of at least 0", lambda value: _is_number(value) and 0 <= value <= _MOST),
    (_ABOVE_0, "a number above 0", lambda value: _is_number(value) and 0 < value <= _MOST),
    (_NUMBERS, "a number", _is_number),
    (_MAPPINGS, "an object", lambda value: isinstance(value, Mapping)),
    (("events",), "a list of objects", _is_events),
)
