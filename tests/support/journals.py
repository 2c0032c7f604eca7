"""What the processes that measured a run did, by their journals."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any


def journals(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the events of each process, in order, by its name. The last line can be under way."""
    found = {path.parent.name: path.read_text().splitlines() for path in run.glob("workers/*/events.jsonl")}
    return {name: [json.loads(line) for line in lines if line.endswith("}")] for name, lines in found.items()}


def count(events: list[dict[str, Any]], kind: str) -> int:
    return sum(event["event"] == kind for event in events)


def measures(events: list[dict[str, Any]]) -> bool:
    """Return whether a process has finished a repetition and has begun another."""
    return count(events, "started") > count(events, "finished") > 0


def times_finished(run: Path) -> Counter[tuple[str, int]]:
    """Return how often each repetition was published, by cell and number."""
    events = [event for events in journals(run).values() for event in events]
    return Counter((event["cell"], event["rep"]) for event in events if event["event"] == "finished")


def left_over(run: Path) -> list[Path]:
    """Return claims and half-written files."""
    return [*run.glob("claims"), *run.rglob("*.part")]


def published_once(run: Path, reps: int, killed: int = 0) -> bool:
    """Return whether so many repetitions are in a run, no one was published twice, and nothing is left over.

    Args:
        killed: the number of processes that were killed. Each may have published one repetition that it did not note.
    """
    times, found = times_finished(run), [*run.glob("cells/*/rep-*/result.json")]
    return len(found) == reps and reps - killed <= len(times) and {*times.values()} == {1} and left_over(run) == []
