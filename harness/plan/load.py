"""Which repetitions run side by side, and how long a run takes. Pure."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

SETTLE_S = 3.0  # of a repetition's time, in which its started workers begin; afterwards its load can be measured
_SLOTS = 10  # emulated repetitions at a time, at most
_SIMULATORS_S = 2.0  # until processes that simulate have imported torch
# Above this share of the cores, emulated packets are late, and steps that compete for a processor take longer.
BUDGET_SHARE = 0.6
MEMORY_SHARE = 0.8  # of the available memory; the rest is for what the estimate does not know


@dataclass(frozen=True)
class Capacity:
    """What a host has: its processors, its available memory, and how slow it is.

    Attributes:
        slowness: processor time of the same work, as a multiple of that on the machine of the constants in `plan.cell`.
        budget: share of the processors that may be busy.
    """

    cores: int
    memory_bytes: float
    slowness: float = 1.0
    budget: float = BUDGET_SHARE

    @property
    def cpu_limit(self) -> float:
        """The number of processors that may be busy."""
        return self.budget * self.cores

    @property
    def starts(self) -> int:
        """How many emulated repetitions may start at a time. To start one keeps a processor busy."""
        return max(1, self.cores // 2)

    @property
    def slots(self) -> int:
        """How many emulated repetitions may run at a time: a processor for the emulator of each."""
        return min(self.cores, _SLOTS)

    @property
    def memory_limit(self) -> float:
        """The bytes that repetitions may use."""
        return MEMORY_SHARE * self.memory_bytes


@dataclass(frozen=True)
class Load:
    """The predicted cost of a repetition.

    Attributes:
        cpus: average number of busy processors; infinite if it needs the whole host.
        memory_bytes: of its workers and of the packets on their way.
        peak_cpus: number of busy processors while all workers send at their rate; 0 without a rate.
        emulated: whether both are for a machine of slowness 1.
        simulated: whether it may be late, so that processors can be fully busy.
    """

    seconds: float
    cpus: float
    memory_bytes: float = 0.0
    peak_cpus: float = 0.0
    emulated: bool = False
    simulated: bool = False

    def on(self, host: Capacity) -> Load:
        """The load on this host."""
        if not self.emulated:
            return self
        slow = host.slowness
        return replace(self, cpus=self.cpus * slow, peak_cpus=self.peak_cpus * slow, emulated=False)


def first_that_fits(loads: Iterable[Load], running: Sequence[Load], host: Capacity) -> int | None:
    """The index of the first repetition that can start beside those running; None if none can.

    What runs is added up once, because thousands can be waiting.
    """
    active = [load.on(host) for load in running]
    cpus, memory = sum(load.cpus for load in active), sum(load.memory_bytes for load in active)
    simulated, cpu_limit, memory_limit = all(load.simulated for load in active), host.cpu_limit, host.memory_limit
    for index, candidate in enumerate(loads):
        load = candidate.on(host)
        processors = host.cores if simulated and load.simulated else cpu_limit
        if not active or (load.cpus + cpus <= processors and load.memory_bytes + memory <= memory_limit):
            return index
    return None


def slots_for(loads: Sequence[Load], jobs: int | None, host: Capacity) -> int:
    """The largest number of repetitions at a time: `jobs` or a default; of simulations, at most one per processor."""
    if loads and all(load.simulated for load in loads):
        return min(jobs or host.cores, host.cores)
    return jobs or host.slots


def simulators(loads: Sequence[Load], jobs: int | None, host: Capacity) -> int:
    """The number of processes for these simulations. 1 if more would save less time than they need to start."""
    slots = min(slots_for(loads, jobs, host), len(loads))
    saved_s = sum(load.seconds for load in loads) - makespan(loads, slots, host)
    return slots if saved_s > _SIMULATORS_S else 1


def makespan(loads: Sequence[Load], slots: int, host: Capacity) -> float:
    """Predicted seconds until all repetitions end, if they start in order under the rules of a real run."""
    pending = [load.on(host) for load in loads]
    emulated = any(load.emulated for load in loads)
    running: list[tuple[float, int]] = []
    active: dict[int, Load] = {}
    started: deque[float] = deque(maxlen=host.starts)
    now, serial = 0.0, 0
    while pending or running:
        next_s = started[0] + SETTLE_S if emulated and active and len(started) == host.starts else now
        chosen = first_that_fits(pending, list(active.values()), host) if len(active) < slots else None
        if chosen is not None and next_s <= now:
            load = pending.pop(chosen)
            heapq.heappush(running, (now + load.seconds, serial))
            active[serial] = load
            started.append(now)
            serial += 1
        elif chosen is not None and next_s < running[0][0]:
            now = next_s
        else:
            now, ended = heapq.heappop(running)
            del active[ended]
    return now
