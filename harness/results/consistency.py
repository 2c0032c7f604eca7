"""Whether the values of a row can be true together: parts make up the whole, and statuses and reasons agree. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

_ROUNDING = 1e-6  # of a step: values are stored unrounded
# T(N) can be shorter than T(1) by chance, or because real computing is faster with a smaller share of the work.
MAX_SCALABILITY = {True: 1.1, False: 2.0}  # by whether computing is emulated
# The law is within a factor of 1.8 of all in results/reference. Three times its value is another effect, or an error.
MAX_LAW_FACTOR = 3.0
# A worker notices pauses to 20 ms, so those of up to about 4 % of a window of a second can remain.
MAX_PAUSED_PCT = 2.0
_REAL = ("netns", "docker")

Row = Mapping[str, Any]


def contradictions(row: Row) -> Iterator[str]:
    """Yield what cannot be true in a row, a sentence each. Values that are not known contradict nothing."""
    yield from _of_status(row)
    yield from _of_parts(row)
    yield from _of_counts(row)
    if row["status"] == "ok":
        yield from _of_ratios(row)


def _of_status(row: Row) -> Iterator[str]:
    status, reason = row["status"], row.get("reason")
    if status == "ok" and reason:
        yield f"its status is ok, but it has a reason: {reason}"
    if status != "ok" and not reason:
        yield f"its status is {status}, but it has no reason"
    paused = row.get("paused_pct")
    if status == "ok" and paused is not None and paused > MAX_PAUSED_PCT:
        yield f"its status is ok, but something did not run for {paused:.1f} % of the window"


def _of_parts(row: Row) -> Iterator[str]:
    step_s = row.get("step_time_s")
    parts = [part for name in ("compute_s", "stall_s", "overhead_s") if (part := row.get(name)) is not None]
    if step_s is None or len(parts) < 3:
        return
    total = sum(parts)
    if not math.isclose(total, step_s, rel_tol=_ROUNDING):
        yield f"compute, stall and overhead add up to {total:.6g} s, but the step time is {step_s:.6g} s"
    for name, part in zip(("compute", "stall"), parts, strict=False):
        if part > step_s * (1 + _ROUNDING):
            yield f"{name} takes {part:.6g} s of a step of {step_s:.6g} s"


def _of_counts(row: Row) -> Iterator[str]:
    steps, total = row.get("steps"), row.get("steps_total")
    if steps is not None and total is not None and steps > total:
        yield f"{steps} steps were measured, but there were only {total}"
    if row["testbed"] in _REAL and row["workers"] > 1 and row.get("emulator") is None:
        yield f"{row['workers']} workers on {row['testbed']} had no emulator"
    if row["testbed"] not in _REAL and row.get("wire_bytes") is not None:
        yield f"bytes on a wire, but its testbed is {row['testbed']}"


def _of_ratios(row: Row) -> Iterator[str]:
    scalability, law_s, step_s = row.get("scalability"), row.get("predicted_step_time_s"), row["step_time_s"]
    most = MAX_SCALABILITY[bool((row.get("law_inputs") or {}).get("step_time_s"))]
    if scalability is not None and not 0 < scalability <= most:
        yield f"scalability {scalability:.3g}; the limit is {most:g}"
    if law_s is not None and not law_s / MAX_LAW_FACTOR <= step_s <= law_s * MAX_LAW_FACTOR:
        times = f"{step_s / law_s:.3g} times the {law_s:.6g} s of the step-time law"
        yield f"the step time of {step_s:.6g} s is {times}; the limit is a factor of {MAX_LAW_FACTOR:g}"
