"""Progress of a run: a bar with the remaining time on a terminal, one plain line per event elsewhere.

Everything goes to stderr; stdout is data.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

_MOST_REASONS = 3


def brief(reason: str) -> str:
    """The first few reasons, and the number of the others. The row has all of them."""
    reasons = reason.split("; ")
    more = len(reasons) - _MOST_REASONS + 1
    return reason if more <= 1 else f"{'; '.join(reasons[: _MOST_REASONS - 1])}; and {more} more"


class Reporter:
    """Reports the progress of a run to the user."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._bar: Progress | None = None
        self._task: Any = None
        self._ready_at: float | None = None
        self._waits = 0
        if sys.stderr.isatty() and total:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            console = Console(stderr=True, highlight=False, no_color="NO_COLOR" in os.environ)
            self._bar = Progress(BarColumn(), TextColumn("{task.fields[eta]}"), console=console, transient=True)
            self._task = self._bar.add_task("", total=total, eta="")
            self._bar.start()

    def say(self, line: str) -> None:
        """Print one line."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def finished(self, line: str) -> None:
        """Report the result of a repetition."""
        self.done += 1
        self._waits = 0
        self.say(f"[{self.done:>{len(str(self.total))}}/{self.total}] {line}{self._eta_suffix()}")
        self._refresh()

    def elsewhere(self) -> None:
        """Count a repetition that another worker of the run has settled."""
        self.done += 1
        self._refresh()

    def waiting(self, count: int) -> None:
        """Say, once, that what is left is with other workers of the run: at the second look, for it may be finished."""
        self._waits += 1
        if self._waits == 2:
            self.say(f"waiting for {count} repetition{'s' * (count > 1)} that other processes have begun")

    def eta(self, seconds: float | None) -> None:
        """Update the remaining time; None: it is not known yet."""
        self._ready_at = None if seconds is None else time.monotonic() + seconds
        self._refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _left(self) -> str:
        """ "1 min 20 s left"; "" while that is not known."""
        return "" if self._ready_at is None else f"{clock(max(0.0, self._ready_at - time.monotonic()))} left"

    def _eta_suffix(self) -> str:
        return f"   ({self._left()})" if self._bar is None and self.done < self.total and self._left() else ""

    def _refresh(self) -> None:
        if self._bar is not None:
            text = f"{self.done}/{self.total} reps" + (f", about {self._left()}" if self._left() else "")
            self._bar.update(self._task, completed=self.done, eta=text)


def clock(seconds: float) -> str:
    """Seconds in readable units: 45 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
