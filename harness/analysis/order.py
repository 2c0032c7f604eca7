"""The order of axes, algorithms and values in tables, legends and figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wanbench.workloads.algorithms.registry import BUILT_IN

CONDITIONS = ("rtt_ms", "rate_mbps", "loss_pct", "loss_burst", "jitter_ms", "mtu")
"""The columns of a path that a sweep can set: axes of tables and figures, and what `wanbench check` compares."""

# The axes besides the algorithm, the preferred for the columns of a table first.
AXES = (
    "rtt_ms", "workers", "profile", *CONDITIONS[1:], "tcp", "host_tcp", "payload_scale", "channels", "workload",
    "collective", "mtbf_s", "mttr_s", "timeline", "emulator", "testbed", "hosts",
)  # fmt: skip

_KINDS = [*BUILT_IN]


def absent(value: object) -> bool:
    """True for None and NaN: values that do not apply or were not measured."""
    return value is None or value != value


def comparable(value: Any) -> Any:
    """A value in which NaN equals NaN."""
    return None if absent(value) else value


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
