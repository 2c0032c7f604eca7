"""The resolved changes of a timeline, as plain data that is part of a cell, and the times at which they hold.

Time counts from the moment at which all workers are warm and begin their first step.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.spec.timeline import TIME, ChangeTable, Point, read_trace
from wanbench.netprofiles import Delay, Ratio

_NS, _MAX_DIGITS = 1e9, 9
_DONE = {"cut": "cut off", "kill": "killed"}


@dataclass(frozen=True)
class Span:
    """A time span in which a change holds, counted from its `at`.

    Attributes:
        begin_ns: begin, inclusive.
        end_ns: end, exclusive; None is the end of training.
        point: the line of a trace that holds.
    """

    begin_ns: int
    end_ns: int | None
    point: Point | None = None


@dataclass(frozen=True)
class Change:
    """One entry of a timeline. Fields are as in the spec, and `value` is the value of `kind`."""

    kind: str
    value: Any
    where: str | int | None
    at_ns: int | None
    at_step: int | None
    for_ns: int | None
    every_ns: int | None
    times: int

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Change:
        """Build the change from an entry that `resolve` made."""
        kind = next(key for key in entry if key not in {"at", "for", "where", "every", "times"})
        at = str(entry["at"])
        steps = at.partition(" step")
        counted = bool(steps[1])
        return cls(
            kind=kind,
            value=entry[kind],
            where=entry.get("where"),
            at_ns=None if counted else Delay.parse(at).ns,
            at_step=int(steps[0]) if counted else None,
            for_ns=Delay.parse(entry["for"]).ns if "for" in entry else None,
            every_ns=Delay.parse(entry["every"]).ns if "every" in entry else None,
            times=int(entry.get("times", 1)),
        )

    def spans(self) -> Iterator[Span]:
        """Yield the spans in which it holds, in order; those of a trace have its lines."""
        points: Sequence[Point | None] = self.value if self.kind == "trace" else (None,)
        begins = [0 if point is None else round(point[TIME] * _NS) for point in points]
        for repetition in range(self.times):
            shift = repetition * (self.every_ns or 0)
            for begin, following, point in zip(begins, [*begins[1:], None], points, strict=True):
                ends = [end for end in (following, self.for_ns) if end is not None]
                if self.for_ns is None or begin < self.for_ns:
                    yield Span(shift + begin, shift + min(ends) if ends else None, point)

    def outages(self) -> Iterator[Span]:
        """Yield its spans in which nothing gets through, in order."""
        whole = self.kind == "cut" or (self.kind == "loss" and Ratio.parse(self.value).value >= 1)
        return (span for span in self.spans() if whole or (span.point or {}).get("loss_pct", 0) >= 100)

    @property
    def where_text(self) -> str:
        """Where it happens, as readable text."""
        if self.where is None:
            return "everywhere"
        return f"worker {self.where}" if isinstance(self.where, int) else self.where

    @property
    def text(self) -> str:
        """The effect as readable text: "tokyo: cut off"."""
        if self.kind in _DONE:
            return f"{self.where_text}: {_DONE[self.kind]}"
        if self.kind == "trace":
            lines = "1 line" if len(self.value) == 1 else f"{len(self.value)} lines"
            return f"{self.where_text}: trace of {lines} ({_digest(self.value)})"
        if self.kind == "slow":
            return f"{self.where_text}: compute × {self.value:g}"
        value = self.value if isinstance(self.value, str) else f"× {self.value:g}"
        return f"{self.where_text}: {self.kind.replace('_', '-')} {value}"

    @property
    def when(self) -> str:
        """The time as readable text: "at 5 s for 5 s"."""
        begin = f"after {self.at_step} steps" if self.at_ns is None else f"at {self.at_ns / _NS:g} s"
        length = "" if self.for_ns is None else f" for {self.for_ns / _NS:g} s"
        repeated = f", {self.times} times every {self.every_ns / _NS:g} s" if self.every_ns and self.times > 1 else ""
        return begin + length + repeated


def _digest(points: Sequence[Point]) -> str:
    """Return a short digest that distinguishes traces."""
    values = [{name: float(value) for name, value in point.items()} for point in points]
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:6]


def resolve(tables: Sequence[ChangeTable], where: str) -> list[dict[str, Any]]:
    """Turn the entries of a spec into plain data of a cell. Traces are read, so their values are part of its identity.

    Args:
        where: path of the spec; traces are searched next to it first.

    Raises:
        SpecError: a trace cannot be read.
    """
    return [_entry(table, f"{where}: timeline.{index}", Path(where).parent) for index, table in enumerate(tables)]


def rank_of(name: str) -> int | None:
    """Return the rank that this text names, or None if it is not a number."""
    return int(name) if name.isascii() and name.isdecimal() and len(name) <= _MAX_DIGITS else None


def _entry(table: ChangeTable, where: str, folder: Path) -> dict[str, Any]:
    entry: dict[str, Any] = table.model_dump(by_alias=True, exclude_none=True)
    if isinstance(entry.get("where"), str):
        if '"' not in entry["where"]:
            entry["where"] = " ".join(entry["where"].split())
        rank = rank_of(entry["where"])
        if rank is not None:
            entry["where"] = rank
    if isinstance(table.trace, str):
        beside = folder / table.trace
        entry["trace"] = read_trace(beside if os.path.exists(beside) else Path(table.trace), f"{where}.trace")
    return entry


def planned_outage_s(changes: Sequence[Change]) -> float:
    """The maximum number of seconds during which these changes separate workers, without endless outages."""
    spans = [span for change in changes for span in change.outages()]
    return sum((span.end_ns - span.begin_ns) / _NS for span in spans if span.end_ns is not None)


def has_endless_outage(changes: Sequence[Change]) -> bool:
    """Whether one of these changes separates workers until training ends."""
    return any(span.end_ns is None for change in changes for span in change.outages())


def described(changes: Sequence[Change]) -> str | None:
    """Describe a timeline in one line; None if it is empty."""
    return "; ".join(f"{change.text} {change.when}" for change in changes) or None
