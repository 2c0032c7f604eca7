"""The remaining time of repetitions that wait, thousands of them as quickly as a few."""

from __future__ import annotations

import math
from collections.abc import Callable

_AGAIN_AT = 0.98  # of those that waited: each starts in less time than it takes to go through all that wait


class Remaining:
    """Computes the remaining time again after each fiftieth of a queue. Between, it falls with the queue's length.

    Repetitions that have ended tell how much longer than predicted the others take. Those that began before the first
    one ended do not, because they also waited for processes that started.

    Attributes:
        is_known: whether any has told.
    """

    def __init__(self) -> None:
        self._waiting, self._seconds = math.inf, 0.0
        self._first_s: float | None = None
        self._predicted_s = self._took_s = 0.0

    @property
    def is_known(self) -> bool:
        return self._predicted_s > 0.0

    def ended(self, predicted_s: float, began_s: float, now_s: float) -> None:
        """Take notice of a repetition that has ended now."""
        if self._first_s is None:
            self._first_s = now_s
        elif began_s >= self._first_s:
            self._predicted_s += predicted_s
            self._took_s += now_s - began_s

    def seconds(self, waiting: int, computed: Callable[[], float]) -> float:
        """The remaining seconds.

        Args:
            waiting: how many repetitions wait. computed: the predicted seconds until they and those that run have
                ended.
        """
        if not _AGAIN_AT * self._waiting < waiting <= self._waiting:
            longer = self._took_s / self._predicted_s if self.is_known else 1.0
            self._waiting, self._seconds = waiting, computed() * longer
        return self._seconds * (waiting + 1) / (self._waiting + 1)
