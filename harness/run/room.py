"""When another repetition may start: by predicted loads, and by how busy the processors are.

A prediction is wrong on a host whose speed changes, or that runs other programs. So a repetition starts only while the
measured load leaves room for it, and the next one waits until that start can be seen in the measurement.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from wanbench.harness.plan.load import Capacity, Load, fits

SETTLE_S = 3.0  # from the start of a repetition until its load is measured
_WINDOW_S = 1.5


def busy_s() -> float:
    """Seconds since boot during which processors were not idle, summed over them; with what other guests took."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Room:
    """The room on a host for repetitions that run side by side.

    Args:
        host: processors, memory and speed. busy_s: as above. clock: seconds.
    """

    def __init__(
        self, host: Capacity, busy_s: Callable[[], float] = busy_s, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host, self._busy_s, self._clock = host, busy_s, clock
        self._samples: deque[tuple[float, float]] = deque()
        self._settled_at = 0.0

    def started(self) -> None:
        """A repetition has started."""
        self._settled_at = self._clock() + SETTLE_S

    def for_another(self, load: Load, running: Sequence[Load]) -> bool:
        """Whether a repetition of this load may start beside those that run. The first may always."""
        if not running:
            return True
        return fits(load, running, self._host) and self._busy() + load.on(self._host).cpus <= self._host.cpu_limit

    def sample(self) -> None:
        """Measure; call this a few times per second."""
        now = self._clock()
        self._samples.append((now, self._busy_s()))
        while now - self._samples[1 if len(self._samples) > 1 else 0][0] > _WINDOW_S:
            self._samples.popleft()

    def _busy(self) -> float:
        """The processors that were busy of late; all of them, as long as a start cannot be seen yet."""
        if self._clock() < self._settled_at or len(self._samples) < 2:
            return float(self._host.cores)
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / (ended - began)
