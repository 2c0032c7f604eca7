"""What changed in the repetitions of a run, and when, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wanbench.harness.show.grid import aligned

_HEADER = ("change", "due s", "came s", "late by at most ms", "repetitions")
_MOST = 12


def timeline_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """A line a timeline, and one for each of its changes over all valid repetitions; "" where nothing changed."""
    changing: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("timeline") and row["status"] == "ok":
            changing.setdefault(row["timeline"], []).append(row)
    return "\n".join(f"timeline: {text}\n{_changes(found)}" for text, found in changing.items())


def _changes(rows: Iterable[Mapping[str, Any]]) -> str:
    """Changes are matched by their place in the order of a repetition's."""
    events: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        for place, event in enumerate(row.get("events") or []):
            events.setdefault((place, event["what"]), []).append(event)
    lines = []
    for (_, what), each in sorted(events.items())[:_MOST]:
        came = [event for event in each if event["actual_s"] is not None]
        late_ms = max((1e3 * (event["actual_s"] - event["asked_s"]) for event in came), default=None)
        lines.append(
            [
                what,
                _span([event["asked_s"] for event in each]),
                _span([event["actual_s"] for event in came]) if came else "never",
                "" if late_ms is None else f"{late_ms:.1f}",
                f"{len(came)} of {len(each)}",
            ]
        )
    more = f"and {len(events) - _MOST} more\n" if len(events) > _MOST else ""
    return aligned(_HEADER, lines) + more


def _span(seconds: list[float]) -> str:
    least, most = (f"{value:.3f}" for value in (min(seconds), max(seconds)))
    return least if least == most else f"{least}..{most}"
