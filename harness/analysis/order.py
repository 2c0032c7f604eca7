"""The order of algorithms and of axis values in tables, legends and figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wanbench.workloads.algorithms.registry import BUILT_IN

_KINDS = [*BUILT_IN]


def absent(value: object) -> bool:
    """True for None and NaN: values that do not apply or were not measured."""
    return value is None or value != value


def by_value(value: object) -> tuple[int, float, str]:
    """Sort key of a value: numbers by size, then words, then None and NaN."""
    if absent(value):
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def algorithm_order(label: str, kind: str, params: Mapping[str, Any] | None) -> tuple[object, ...]:
    """Sort key of an algorithm: family (your own ones last), then its parameters by size, then its label."""
    family = _KINDS.index(kind) if kind in _KINDS else len(_KINDS)
    numbers = tuple(sorted((k, float(v)) for k, v in (params or {}).items() if isinstance(v, int | float)))
    return family, kind if family == len(_KINDS) else "", numbers, label
