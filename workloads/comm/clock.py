"""The real clock and the simulated clock."""

import time

from wanbench.workloads.comm.memory import Fabric


class MonotonicClock:
    """The host's monotonic clock; all workers of one host share its origin."""

    def now(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Sleep. Return at once if the duration is zero or negative."""
        if seconds > 0:
            time.sleep(seconds)

    def process(self, seconds: float) -> None:
        """Do nothing: the work itself takes its time."""


class VirtualClock:
    """One worker's view of simulated time, which begins at 0."""

    def __init__(self, fabric: Fabric, rank: int) -> None:
        self._fabric, self._rank = fabric, rank

    def now(self) -> int:
        """Simulated nanoseconds, exact."""
        return self._fabric.now()

    def sleep(self, seconds: float) -> None:
        """Let other workers run until `seconds` have passed, to the nanosecond.

        Raises:
            ValueError: a negative duration. Simulated workers are never late, so it must be a mistake.
        """
        if not seconds >= 0:
            raise ValueError(f"virtual: a worker cannot sleep for {seconds} s; expected 0 or more")
        self._fabric.sleep(self._rank, round(seconds * 1e9))

    def process(self, seconds: float) -> None:
        """Let other workers run until `seconds` have passed; 0 lets nobody run."""
        if seconds:
            self.sleep(seconds)
