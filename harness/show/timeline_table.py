"""The changes of a timeline and when they happened, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wanbench.harness.show.grid import aligned

_HEADER = ("change", "due (s)", "actual (s)", "max delay (ms)", "repetitions")
_MOST = 12


def timeline_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """A table of changes per timeline, over all valid repetitions; "" if no network changes."""
    changing: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("timeline") and row["status"] == "ok":
            changing.setdefault(row["timeline"], []).append(row)
    return "\n".join(f"timeline: {text}\n{_changes(found)}" for text, found in changing.items())


def _changes(rows: Iterable[Mapping[str, Any]]) -> str:
    """Changes of different repetitions are matched by their position."""
    events: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        for place, event in enumerate(row.get("events") or []):
            events.setdefault((place, event["what"]), []).append(event)
    lines = []
    for (_, what), each in sorted(events.items())[:_MOST]:
        happened = [event for event in each if event["actual_s"] is not None]
        late_ms = max((1e3 * (event["actual_s"] - event["asked_s"]) for event in happened), default=None)
        lines.append(
            [
                what,
                _span([event["asked_s"] for event in each]),
                _span([event["actual_s"] for event in happened]) if happened else "never",
                "" if late_ms is None else f"{late_ms:z.1f}",
                f"{len(happened)} of {len(each)}",
            ]
        )
    more = f"and {len(events) - _MOST} more\n" if len(events) > _MOST else ""
    return aligned(_HEADER, lines) + more


def _span(seconds: list[float]) -> str:
    low, high = (f"{value:z.3f}" for value in (min(seconds), max(seconds)))
    return low if low == high else f"{low}..{high}"
