"""Which workers are there, and how far, while some are killed and return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wanbench.harness.testbeds.base import WorkerDied


class Attendance:
    """The workers of a repetition. Those that were killed, or have stopped as a minority, are not there.

    Args:
        workers: their number.
        steps: how many they make.
    """

    def __init__(self, workers: int, steps: int) -> None:
        self._steps = steps
        self._here = set(range(workers))
        self._cold = set(range(workers))
        self._warm_ns = 0
        self._trained: set[int] = set()
        self._finished: set[int] = set()
        self._stopped = "all were killed"

    def note(self, rank: int, message: Mapping[str, Any]) -> None:
        """Note what a worker says. Raises: WorkerDied: nobody is left."""
        event = message["event"]
        if event == "warm":
            self._cold.discard(rank)
            self._warm_ns = max(self._warm_ns, message["now_ns"])
        elif event == "restarted":
            self._here.add(rank)
            self._trained.discard(rank)
        elif event == "finished":
            self._finished.add(rank)
        elif event in ("killed", "stopped"):
            self._here.discard(rank)
            self._stopped = message.get("reason", self._stopped)
            if not self._here:
                raise WorkerDied(rank, f": no worker is left: {self._stopped}")
        if event == "finished" or (event == "step" and message["step"] == self._steps):
            self._trained.add(rank)

    def begun_ns(self) -> int | None:
        """When all have begun their first step; None before."""
        return None if self._cold else self._warm_ns

    def have_trained(self) -> bool:
        """Whether all that are there have ended their last step."""
        return self._here <= self._trained

    def have_finished(self) -> bool:
        """Whether all that are there have finished."""
        return self._here <= self._finished
