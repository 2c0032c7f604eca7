"""A straggler: a worker whose compute takes longer for a while, measured by its own clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Slowdown:
    """Compute takes `factor` times as long in steps that begin between two times.

    Attributes:
        factor: a number above 0.
        at_step: times count from the end of this number of steps; None: from the beginning of the first step.
        begin_ns, end_ns: the two times; None: the slowdown does not end.
    """

    factor: float
    at_step: int | None
    begin_ns: int
    end_ns: int | None


class Slowdowns:
    """All slowdowns of one worker. The factors of slowdowns at the same time are multiplied.

    Attributes:
        turned_ns: for each slowdown, in order: when the first slow step began, and when the first step after the slow
            ones began; None if there was none.
    """

    def __init__(self, entries: Iterable[Mapping[str, Any]]) -> None:
        self._all = [Slowdown(**entry) for entry in entries]
        self.turned_ns: list[list[int | None]] = [[None, None] for _ in self._all]
        self._awaited = {slow.at_step for slow in self._all}
        self._began: dict[int | None, int] = {}

    def factor(self, step: int, now_ns: int) -> float:
        """Return the factor for step number `step`, which begins now. Call this once per step, in order."""
        if step == 0:
            self._began[None] = now_ns
        if step in self._awaited:
            self._began[step] = now_ns
        factor = 1.0
        for slow, turned_ns in zip(self._all, self.turned_ns, strict=True):
            origin = self._began.get(slow.at_step)
            if (
                origin is not None
                and slow.begin_ns <= now_ns - origin
                and (slow.end_ns is None or now_ns - origin < slow.end_ns)
            ):
                factor *= slow.factor
                if turned_ns[0] is None:
                    turned_ns[0] = now_ns
            elif turned_ns[0] is not None and turned_ns[1] is None:
                turned_ns[1] = now_ns
        return factor
