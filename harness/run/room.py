"""When another repetition may start: where the measured load of the processors leaves room for the predicted one.

Loads are predicted for a machine of some speed, and a host can be several times slower, and can change. An invalid
repetition costs more than a free processor. So the first repetition runs alone until its load is known, which tells
what all others cost here. Only a few start at a time, because a start needs a whole processor. How busy the
processors may be is learned, too: a virtual machine whose physical host is busy stops for a tenth of a second at a load
that it usually carries. So fewer run side by side after an invalid repetition, and more after those that were far from
the limits of fidelity.

A repetition counts with its predicted load while it starts, and with what is measured afterwards. Simulations take
whole processors.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from wanbench.harness.plan.load import SETTLE_S, Capacity, Load, first_that_fits

WINDOW_S = 3.0
# Of the processors may be busy: at first, and at most. On two cores, two repetitions that kept half a processor busy
# each, by sending for a third of the time, were late together; those that sent less were not.
_FIRST_SHARE, _MOST_SHARE = 0.35, 0.45
_LESS = 0.5  # of what could be busy so far, after an invalid repetition
_MORE = 0.01  # of all processors, after a valid one
_ROOM = 0.5  # of the limits of fidelity: above it, a valid repetition does not let more run
_KNOWN_S, _REMEMBERED_S = 5.0, 60.0  # of measuring: until the host's cost is known, and before older measurements fade


class Running(NamedTuple):
    """A repetition that runs, and when it began."""

    load: Load
    began_s: float


def busy_s() -> float:
    """Seconds since boot during which the processors of this process worked, for others than nice processes."""
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in names:
            user, _, system, _, _, *interrupts = map(int, fields[:7])
            ticks += user + system + sum(interrupts)
    return ticks / os.sysconf("SC_CLK_TCK")


class Room:
    """The room on a host for repetitions that run side by side.

    Args:
        host: processors, memory and speed. busy_s: as above. clock: seconds.

    Attributes:
        host: with the slowness that was measured so far, and the share of its processors that may be busy at present.
    """

    def __init__(
        self, host: Capacity, busy_s: Callable[[], float] = busy_s, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.host = replace(host, budget=_FIRST_SHARE)
        self._busy_s, self._clock = busy_s, clock
        self._narrowed_s = -math.inf
        self._samples: deque[tuple[float, float]] = deque()
        self._watched_s = self._measured_s = self._predicted_s = 0.0

    def first(self, loads: Iterable[Load], running: Sequence[Running]) -> int | None:
        """The index of the first repetition that may start beside those that run, the first of which may always; None
        if none may.

        What runs is added up once, because thousands can be waiting. Simulations and emulations are not mixed.
        """
        host = self.host
        if all(item.load.simulated for item in running):
            return first_that_fits(loads, [item.load for item in running], host)
        starting = [item.load for item in running if self._is_starting(item)]
        if len(starting) >= host.starts or self._watched_s < _KNOWN_S:
            return None
        settled_bytes = sum(item.load.memory_bytes for item in running) - sum(load.memory_bytes for load in starting)
        return first_that_fits(loads, [Load(0.0, self._busy(), settled_bytes), *starting], host)

    def judged(self, began_s: float, *, valid: bool, strain: float = 0.0) -> None:
        """Learn from a repetition. Those that ran side by side are invalid together, which counts once.

        Args:
            strain: how near a valid one came to the limits of fidelity; 1 at the limit.
        """
        if valid and strain <= _ROOM:
            self.host = replace(self.host, budget=min(self.host.budget + _MORE, _MOST_SHARE))
        elif not valid and began_s > self._narrowed_s:
            self.host = replace(self.host, budget=_LESS * self.host.budget)
            self._narrowed_s = self._clock()

    def sample(self, running: Sequence[Running] = ()) -> None:
        """Measure; call this a few times per second with what runs."""
        now, busy = self._clock(), self._busy_s()
        if self._samples and running and all(item.load.emulated and not self._is_starting(item) for item in running):
            self._learn(now - self._samples[-1][0], busy - self._samples[-1][1], running)
        self._samples.append((now, busy))
        while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    def _learn(self, seconds: float, busy_s: float, running: Sequence[Running]) -> None:
        """Compare what was busy with what was predicted, over all that was measured of late."""
        fading = 1.0 - seconds / _REMEMBERED_S
        self._watched_s += seconds
        self._measured_s = fading * self._measured_s + busy_s
        self._predicted_s = fading * self._predicted_s + seconds * sum(item.load.cpus for item in running)
        if self._watched_s >= _KNOWN_S and self._predicted_s:
            self.host = replace(self.host, slowness=self._measured_s / self._predicted_s)

    def _is_starting(self, item: Running) -> bool:
        return self._clock() - item.began_s < SETTLE_S

    def _busy(self) -> float:
        """The number of processors that were busy of late."""
        if len(self._samples) < 2:
            return 0.0
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / (ended - began)
