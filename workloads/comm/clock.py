"""The real clock."""

from __future__ import annotations

import time


class MonotonicClock:
    """The host's monotonic clock; all workers of one host share its origin."""

    def now(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Sleep; zero and negative durations return at once."""
        if seconds > 0:
            time.sleep(seconds)
