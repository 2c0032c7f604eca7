"""The check of a stored row, so that an edited file, or one that a full disk cut short, is not shown as a result."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args

from wanbench.harness.plan.law import PredictInputs
from wanbench.harness.results.column import Column, Status
from wanbench.harness.results.columns import COLUMNS, TYPES

_REQUIRED = (str, int, Status)
_MOST = 1 << 53  # the largest integer that every JSON reader keeps exactly


def flaw(row: object) -> str | None:
    """Return the error that makes `row` no valid row, or None.

    Columns whose type does not allow null are required. Others can be missing or null, as in rows of an earlier
    version, but a value must be of the right type. A loss can be infinite or NaN, because training can diverge.
    """
    if not isinstance(row, Mapping):
        return "expected an object"
    absent = [name for name, kind in TYPES.items() if kind in _REQUIRED and row.get(name) is None and name != "cell"]
    if absent:
        return f"{absent[0]}: missing"
    if row["status"] not in get_args(Status):
        return f"status: expected {_either(get_args(Status))}, got {row['status']!r}"
    if row["status"] == "ok" and row.get("step_time_s") is None:
        return "step_time_s: missing"
    for name, kind in TYPES.items():
        expected = None if row.get(name) is None else _expected(kind, COLUMNS[name], row[name])
        if expected is not None:
            return f"{name}: expected {expected}, got {row[name]!r}"[:200]
    return _flaw_of_parameters(row.get("params") or {}) or _flaw_of_law(row.get("law_inputs"))


def _either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _expected(kind: Any, column: Column, value: Any) -> str | None:
    """The type or range that was expected of a value; None if the value has it."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if kind is Status or str in kinds:
        return None if isinstance(value, str) else "a string"
    if Mapping[str, Any] in kinds:
        return None if isinstance(value, Mapping) else "an object"
    if list[dict[str, Any]] in kinds:
        return None if _is_events(value) else "a list of objects"
    if list[str] in kinds:
        return None if isinstance(value, list) and all(isinstance(item, str) for item in value) else "a list of strings"
    if int in kinds and not _is_count(value):
        return "a whole number"
    if not _is_number(value):
        return _bounds(column)
    inside = (column.minimum is None or column.minimum <= value <= _MOST) and (
        column.above is None or column.above < value <= _MOST
    )
    return None if inside else _bounds(column)


def _bounds(column: Column) -> str:
    if column.above is not None:
        return f"a number above {column.above:g}"
    return "a number" if column.minimum is None else f"a number of at least {column.minimum:g}"


def _flaw_of_parameters(params: Mapping[str, Any]) -> str | None:
    """Check the parameters that choose an algorithm's line style and its place in a legend."""
    for name in ("delay", "period"):
        if name in params and not _is_count(params[name]):
            return f"params.{name}: expected a whole number, got {params[name]!r}"[:200]
    return None


def _flaw_of_law(inputs: Mapping[str, Any] | None) -> str | None:
    try:
        PredictInputs.from_json(inputs or {}) if inputs else None
    except (TypeError, ValueError) as error:
        return f"law_inputs: {error}"[:200]
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _is_events(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) and _is_event(item) for item in value)


def _is_event(item: Mapping[str, Any]) -> bool:
    """Whether it has the keys of `testbeds.base.Event` that are read; one that did not happen has no actual time."""
    happened = item.get("actual_s") is None or _is_number(item["actual_s"])
    return {"what", "actual_s"} <= item.keys() and happened and _is_number(item.get("asked_s"))
