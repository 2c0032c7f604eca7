"""A change of a timeline, resolved: plain data that is part of a cell, and when it holds.

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

from wanbench.harness.spec.timeline import ChangeTable
from wanbench.harness.spec.trace import TIME, Point, read_trace
from wanbench.netprofiles import Delay, Ratio

_NS, _MOST_DIGITS = 1e9, 9


@dataclass(frozen=True)
class Span:
    """A change holds from `begin_ns` until before `end_ns`, None: to the end; times since its `at`.

    Attributes:
        point: of a trace, the line that holds.
    """

    begin_ns: int
    end_ns: int | None
    point: Point | None = None


@dataclass(frozen=True)
class Change:
    """One entry of a timeline; fields as in the spec, `value` is that of `kind`."""

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
        """Of an entry that `resolve` made."""
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
        """When it holds, in order."""
        if self.kind == "trace":
            yield from self._of_trace()
            return
        for turn in range(self.times):
            begin = turn * (self.every_ns or 0)
            yield Span(begin, None if self.for_ns is None else begin + self.for_ns)

    def _of_trace(self) -> Iterator[Span]:
        for turn in range(self.times):
            shift = turn * (self.every_ns or 0)
            over = None if self.for_ns is None else shift + self.for_ns
            begins = [shift + round(point[TIME] * _NS) for point in self.value]
            for begin, end, point in zip(begins, [*begins[1:], over], self.value, strict=True):
                last = end if over is None else min(over, over if end is None else end)
                if over is None or begin < over:
                    yield Span(begin, last, point)

    def outages(self) -> Iterator[Span]:
        """Those of its spans in which nothing gets through, in order."""
        whole = self.kind == "cut" or (self.kind == "loss" and Ratio.parse(self.value).value >= 1)
        return (span for span in self.spans() if whole or (span.point or {}).get("loss_pct", 0) >= 100)

    @property
    def place(self) -> str:
        """Where, for people."""
        if self.where is None:
            return "everywhere"
        return f"worker {self.where}" if isinstance(self.where, int) else self.where

    @property
    def text(self) -> str:
        """What it does, for people: "tokyo: cut off"."""
        if self.kind == "cut":
            return f"{self.place}: cut off"
        if self.kind == "kill":
            return f"{self.place}: killed"
        if self.kind == "trace":
            lines = "1 line" if len(self.value) == 1 else f"{len(self.value)} lines"
            return f"{self.place}: trace of {lines} ({_digest(self.value)})"
        if self.kind == "slow":
            return f"{self.place}: compute × {self.value:g}"
        value = self.value if isinstance(self.value, str) else f"× {self.value:g}"
        return f"{self.place}: {self.kind.replace('_', '-')} {value}"

    @property
    def when(self) -> str:
        """When, for people: "at 5 s for 5 s"."""
        begin = f"after {self.at_step} steps" if self.at_ns is None else f"at {self.at_ns / _NS:g} s"
        length = "" if self.for_ns is None else f" for {self.for_ns / _NS:g} s"
        again = f", {self.times} times every {self.every_ns / _NS:g} s" if self.every_ns and self.times > 1 else ""
        return begin + length + again


def _digest(points: Sequence[Point]) -> str:
    """What tells a trace from another one."""
    values = [{name: float(value) for name, value in point.items()} for point in points]
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:6]


def changes_of(config: Mapping[str, Any]) -> tuple[Change, ...]:
    """Of a cell's configuration."""
    return tuple(Change.from_config(entry) for entry in config.get("timeline", ()))


def resolve(tables: Sequence[ChangeTable], where: str) -> list[dict[str, Any]]:
    """Entries of a spec as part of a cell: plain data, traces read, so that what they hold is part of its identity.

    Args:
        where: the spec; a trace is looked for beside it first.

    Raises:
        SpecError: a trace cannot be read.
    """
    return [_entry(table, f"{where}: timeline.{index}", Path(where).parent) for index, table in enumerate(tables)]


def rank_of(name: str) -> int | None:
    """The worker whose number this text is; None if it is none."""
    return int(name) if name.isascii() and name.isdecimal() and len(name) <= _MOST_DIGITS else None


def _entry(table: ChangeTable, where: str, folder: Path) -> dict[str, Any]:
    entry: dict[str, Any] = table.model_dump(by_alias=True, exclude_none=True)
    if isinstance(entry.get("where"), str):
        entry["where"] = " ".join(entry["where"].split())
        rank = rank_of(entry["where"])
        if rank is not None:
            entry["where"] = rank
    if isinstance(table.trace, str):
        beside = folder / table.trace
        entry["trace"] = read_trace(beside if os.path.exists(beside) else Path(table.trace), f"{where}.trace")
    return entry


def planned_outage_s(changes: Sequence[Change]) -> float:
    """Seconds during which these changes keep workers apart at most, those without an end left out."""
    spans = [span for change in changes for span in change.outages()]
    return sum((span.end_ns - span.begin_ns) / _NS for span in spans if span.end_ns is not None)


def has_endless_outage(changes: Sequence[Change]) -> bool:
    """One of these changes keeps workers apart until training ends."""
    return any(span.end_ns is None for change in changes for span in change.outages())


def described(changes: Sequence[Change]) -> str | None:
    """A timeline in one line; None of none."""
    return "; ".join(f"{change.text} {change.when}" for change in changes) or None
