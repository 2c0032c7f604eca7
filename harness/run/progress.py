"""What a run says while it goes on: a bar with an ETA on a terminal, one plain line per event elsewhere.

Everything goes to stderr; stdout is data.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_MOST_REASONS = 3


def brief(reason: str) -> str:
    """The first of many reasons, which stand in the row, all of them."""
    reasons = reason.split("; ")
    more = len(reasons) - _MOST_REASONS + 1
    return reason if more <= 1 else f"{'; '.join(reasons[: _MOST_REASONS - 1])}; and {more} more"


class Reporter:
    """Tells the user how a run goes on."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._console = Console(stderr=True, highlight=False, no_color="NO_COLOR" in os.environ)
        self._bar: Progress | None = None
        self._task: Any = None
        self._ready_at = 0.0
        if self._console.is_terminal and total:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[eta]}"))
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("", total=total, eta="")
            self._bar.start()

    def say(self, line: str) -> None:
        """One line."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def finished(self, line: str) -> None:
        """A repetition has a result."""
        self.done += 1
        self.say(f"[{self.done:>{len(str(self.total))}}/{self.total}] {line}{self._eta_suffix()}")
        self._refresh()

    def eta(self, seconds: float, running: int) -> None:
        """How long the rest will take, and how many repetitions run now."""
        self._ready_at = time.monotonic() + seconds
        self._running = running
        self._refresh()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _left(self) -> str:
        return clock(max(0.0, self._ready_at - time.monotonic()))

    def _eta_suffix(self) -> str:
        return f"   ({self._left()} left)" if self._bar is None and self.done < self.total else ""

    def _refresh(self) -> None:
        if self._bar is not None:
            text = f"{self.done}/{self.total} reps, about {self._left()} left"
            self._bar.update(self._task, completed=self.done, description="", eta=text)


def clock(seconds: float) -> str:
    """Seconds as people say them: 45 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
