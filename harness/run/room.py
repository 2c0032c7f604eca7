"""When another repetition may start: where the measured load of the processors leaves room for the predicted one.

A prediction alone is wrong on a host whose speed changes, or that runs other programs. A repetition counts with its
predicted load while it starts and warms up, and with what is measured afterwards. Simulations take whole processors.

How busy the processors may be is learned, too: a virtual machine whose physical host is busy stops for a tenth of a
second at a load that it usually carries, and all that runs is then invalid. So fewer run side by side after an invalid
repetition, and more again after valid ones.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from wanbench.harness.plan.load import BUDGET_SHARE, Capacity, Load, first_that_fits

SETTLE_S = 8.0  # from the start of a repetition until its load is measured
WINDOW_S = 3.0
_LESS = 0.5  # of what could be busy so far, after an invalid repetition
_MORE = 0.02  # of all processors, after a valid one


class Running(NamedTuple):
    """A repetition that runs, and when it began."""

    load: Load
    began_s: float


def busy_s() -> float:
    """Seconds since boot during which processors worked, summed over them, for others than nice processes."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:8]]
    user, system, interrupts = fields[0], fields[2], fields[5:7]
    return (user + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


class Room:
    """The room on a host for repetitions that run side by side.

    Args:
        host: processors, memory and speed. busy_s: as above. clock: seconds.

    Attributes:
        host: with the share of its processors that may be busy at present.
    """

    def __init__(
        self, host: Capacity, busy_s: Callable[[], float] = busy_s, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.host, self._busy_s, self._clock = host, busy_s, clock
        self._narrowed_s = -math.inf
        self._samples: deque[tuple[float, float]] = deque()

    def for_another(self, load: Load, running: Sequence[Running]) -> bool:
        """Whether a repetition of this load may start beside those that run. The first may always."""
        return self.first([load], running) is not None

    def first(self, loads: Iterable[Load], running: Sequence[Running]) -> int | None:
        """The place of the first repetition that may start beside those that run; None if none may.

        What runs is added up once, because thousands can be waiting. Simulations and emulations are not mixed.
        """
        host = self.host
        if all(one.load.simulated for one in running):
            return first_that_fits(loads, [one.load for one in running], host)
        now = self._clock()
        starting = [one.load for one in running if now - one.began_s < SETTLE_S]
        cpus = self._busy() + sum(each.on(host).cpus for each in starting)
        memory = sum(one.load.memory_bytes for one in running)
        for place, load in enumerate(loads):
            own_cpus = load.cpus * host.slowness if load.emulated else load.cpus
            if own_cpus + cpus <= host.cpu_limit and load.memory_bytes + memory <= host.memory_limit:
                return place
        return None

    def judged(self, began_s: float, *, valid: bool) -> None:
        """Learn from a repetition. Those that ran side by side are invalid together, which counts once."""
        if valid:
            self.host = replace(self.host, budget=min(self.host.budget + _MORE, BUDGET_SHARE))
        elif began_s > self._narrowed_s:
            self.host = replace(self.host, budget=_LESS * self.host.budget)
            self._narrowed_s = self._clock()

    def sample(self) -> None:
        """Measure; call this a few times per second."""
        now = self._clock()
        self._samples.append((now, self._busy_s()))
        while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    def _busy(self) -> float:
        """The number of processors that were busy of late."""
        if len(self._samples) < 2:
            return 0.0
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / (ended - began)
