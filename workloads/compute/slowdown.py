"""A straggler: a worker whose compute takes longer for a while, by its own clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Slowdown:
    """Compute takes `factor` times as long in steps that begin between two times.

    Attributes:
        factor: above 0.
        at_step: times count from the end of this many steps; None: from the beginning of the first one.
        begin_ns, end_ns: those times; an end of None never comes.
    """

    factor: float
    at_step: int | None
    begin_ns: int
    end_ns: int | None


class Slowdowns:
    """All of one worker; those that hold at one time multiply.

    Attributes:
        turned_ns: of each entry, in their order, when the first step began that it made slow, and the first one after
            those; None if there was none.
    """

    def __init__(self, entries: Iterable[Mapping[str, Any]]) -> None:
        self._all = [Slowdown(**entry) for entry in entries]
        self.turned_ns: list[list[int | None]] = [[None, None] for _ in self._all]
        self._awaited = {slow.at_step for slow in self._all}
        self._began: dict[int | None, int] = {}

    def factor(self, step: int, now_ns: int) -> float:
        """For step number `step`, which begins now; to be asked at each step in turn."""
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
