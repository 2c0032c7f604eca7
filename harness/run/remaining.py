"""The remaining time of repetitions that wait, thousands of them as quickly as a few."""

from __future__ import annotations

import math
from collections.abc import Callable

_AGAIN_AT = 0.98  # of those that waited: each starts in less time than it takes to go through all that wait


class Remaining:
    """Computes the remaining time again after each fiftieth of a queue. Between, it falls with the queue's length."""

    def __init__(self) -> None:
        self._waiting, self._seconds = math.inf, 0.0

    def seconds(self, waiting: int, computed: Callable[[], float]) -> float:
        """The remaining seconds.

        Args:
            waiting: how many repetitions wait. computed: the seconds until they and those that run have ended.
        """
        if waiting <= _AGAIN_AT * self._waiting:
            self._waiting, self._seconds = waiting, computed()
        return self._seconds * (waiting + 1) / (self._waiting + 1)
