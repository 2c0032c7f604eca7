"""Progress of a run on stderr, one line per event, and the remaining time. Stdout is data."""

import sys
from collections.abc import Callable

_MOST_REASONS = 3
_AGAIN_AT = 0.98  # of those that were unsettled: with ever more of them, computing takes ever longer


class Reporter:
    """Reports the progress of a run to the user.

    Args:
        total: number of repetitions to do.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._waits = 0

    def say(self, line: str) -> None:
        """Print one line."""
        print(line, file=sys.stderr, flush=True)

    def finished(self, line: str, remaining_s: float | None = None) -> None:
        """Report the result of a repetition, and the time that all others take if it is known."""
        self.done += 1
        self._waits = 0
        remaining = "" if remaining_s is None or self.done >= self.total else f"   ({clock(remaining_s)} left)"
        self.say(f"[{self.done:>{len(str(self.total))}}/{self.total}] {line}{remaining}")

    def elsewhere(self) -> None:
        """Count a repetition that another worker of the run has settled."""
        self.done += 1

    def waiting(self, count: int) -> None:
        """Say, once, that what is left is with other workers of the run: at the second look, for it may be finished."""
        self._waits += 1
        if self._waits == 2:
            self.say(f"waiting for {count} repetition{'s' * (count > 1)} that other processes have begun")


class Remaining:
    """Computes the remaining time: the predicted one, by how much longer than predicted repetitions have taken.

    Those that began before the first one ended tell nothing, because they also waited for processes that started.

    Attributes:
        is_known: whether any has told.
    """

    def __init__(self) -> None:
        self._computed: tuple[int, object, float] = (0, None, 0.0)
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

    def seconds(self, unsettled: int, condition: object, compute: Callable[[], float]) -> float:
        """The remaining seconds. They are computed again after each fiftieth; between, they fall with the number.

        Args:
            unsettled: number of repetitions that nobody has settled. condition: another one is computed anew.
            compute: returns the predicted seconds until all are settled.
        """
        count, before, seconds = self._computed
        if not (before == condition and _AGAIN_AT * count < unsettled <= count):
            count, _, seconds = self._computed = unsettled, condition, compute()
        return seconds * unsettled / max(count, 1) * (self._took_s / self._predicted_s if self.is_known else 1.0)


def brief(reason: str) -> str:
    """The first few reasons, and the number of the others. The row has all of them."""
    reasons = reason.split("; ")
    more = len(reasons) - _MOST_REASONS + 1
    return reason if more <= 1 else f"{'; '.join(reasons[: _MOST_REASONS - 1])}; and {more} more"


def clock(seconds: float) -> str:
    """Seconds in readable units: 45 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
