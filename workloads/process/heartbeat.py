"""Notices when a process did not run although it wanted to: a thread that sleeps, and notes by how much it woke late.

Workers and the controller have one while they measure. A worker that waits for the network still wakes up, so waiting
is not mistaken for a pause. If the thread only waited for Python's lock, the process used a processor meanwhile, and
that time does not count. What a thread cannot see is read from the kernel: processes of a user's program that a signal
stopped, throttling, and stalls for lack of memory.

All times are of CLOCK_MONOTONIC, which all workers of a host share.
"""

import heapq
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from wanbench.workloads.wire import Count

PAUSED: Final = "paused"
STOPPED: Final = "stopped"
THROTTLED: Final = "throttled"
SWAPPED: Final = "swapped"

BEAT_S = 0.02
LEAST_NS = 10_000_000  # shorter delays are those of a busy host, of which packets and steps tell
_BEAT_NS = round(BEAT_S * 1e9)
_COUNT_EVERY = 10  # beats: reading the counters of the kernel, and the list of processes
_MOST = 2000  # losses that are kept


Cause = Literal["paused", "stopped", "throttled", "swapped"]


class Lost(NamedTuple):
    """A time in which something did not run.

    Attributes:
        cause: PAUSED: the process; STOPPED: one of its program's; THROTTLED: its cgroup, by a limit of processor time;
            SWAPPED: its cgroup or the host lacked memory.
        begin_ns, end_ns: of the loss. For the last two causes it ends when it was read, and only its length is exact.
    """

    cause: Cause
    begin_ns: Count
    end_ns: Count


class Losses:
    """Losses of at least `LEAST_NS`; of very many, only the longest are kept."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, Lost]] = []  # a heap by length

    def add(self, lost: Lost) -> None:
        """Keep a loss, unless it is too short."""
        length_ns = lost.end_ns - lost.begin_ns
        if length_ns >= LEAST_NS:
            heapq.heappush(self._kept, (length_ns, lost))
        if len(self._kept) > _MOST:
            heapq.heappop(self._kept)

    def all(self) -> list[Lost]:
        """Return them in the order in which they began."""
        return sorted((lost for _, lost in self._kept), key=lambda lost: lost.begin_ns)


class Heartbeat:
    """The thread, which used 0.4 % of a core on a busy host.

    Args:
        programs: also watch the other processes of this machine (`process.isolation`).
    """

    def __init__(self, *, programs: bool = False) -> None:
        self._losses = Losses()
        self._ended = False
        self._programs = _Programs() if programs else None
        throttled = partial(throttled_ns, counter_files("cpu", "cpu.stat"))
        swapped = partial(swapped_ns, counter_files("memory", "memory.pressure"))
        self._meters = _Meter(THROTTLED, throttled), _Meter(SWAPPED, swapped)
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def waited_ns(self) -> int:
        """How long the main thread of a program has waited for a processor, maximum over the programs."""
        return max(self._programs.waited_ns.values(), default=0) if self._programs is not None else 0

    def stop(self) -> list[Lost]:
        """End the thread. Return what was lost, as in `Losses`."""
        if not self._thread.is_alive():
            raise RuntimeError("the heartbeat has ended, so pauses were not seen")
        self._ended = True
        self._thread.join()
        return self._losses.all()

    def _beat(self) -> None:
        beats, before, used_before = 0, time.monotonic_ns(), time.process_time_ns()
        while not self._ended:
            time.sleep(BEAT_S)  # half the cost of waiting for an event
            now, used = time.monotonic_ns(), time.process_time_ns()
            self._note([Lost(PAUSED, before + _BEAT_NS + used - used_before, now)])
            if self._programs is not None:
                self._note(self._programs.stopped(now, look=beats % _COUNT_EVERY == 0))
            if beats % _COUNT_EVERY == 0:
                self._note(meter.read(now) for meter in self._meters)
            beats, before, used_before = beats + 1, now, used
        now = time.monotonic_ns()
        self._note(meter.read(now) for meter in self._meters)
        if self._programs is not None:
            self._note(Lost(STOPPED, since_ns, now) for since_ns in self._programs.since_ns.values())

    def _note(self, losses: Iterable[Lost]) -> None:
        for lost in losses:
            self._losses.add(lost)


class _Meter:
    """The growth of a counter of the kernel."""

    def __init__(self, cause: Cause, counter: Callable[[], int | None]) -> None:
        self._cause, self._counter = cause, counter
        self._before_ns, self._total_ns = time.monotonic_ns(), counter()

    def read(self, now_ns: int) -> Lost:
        """The loss since the last call, which can be empty."""
        total_ns, begin_ns = self._counter(), self._before_ns
        grown_ns = 0 if total_ns is None or self._total_ns is None else total_ns - self._total_ns
        self._before_ns, self._total_ns = now_ns, total_ns
        return Lost(self._cause, max(begin_ns, now_ns - grown_ns), now_ns)  # the sum over processors can be longer


class _Programs:
    """The other processes of this machine, which share its PID namespace, and since when those stopped are.

    Attributes:
        since_ns: of those that are stopped, since when.
        waited_ns: how long the main thread of each has waited for a processor, when it was last read.
    """

    def __init__(self) -> None:
        self.waited_ns: dict[str, int] = {}
        self._machine = os.readlink("/proc/self/ns/pid")
        self._pids: set[str] = set()
        self.since_ns: dict[str, int] = {}

    def stopped(self, now_ns: int, *, look: bool) -> Iterator[Lost]:
        """Yield the processes that a signal or a debugger had stopped and that run again, or have ended."""
        if look:
            self._pids = set(self._look())
            for pid in self._pids:
                with suppress(OSError, IndexError, ValueError):
                    self.waited_ns[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
        for pid in self._pids | set(self.since_ns):
            if _state(pid) in ("T", "t"):
                self.since_ns.setdefault(pid, now_ns)
            elif pid in self.since_ns:
                yield Lost(STOPPED, self.since_ns.pop(pid), now_ns)

    def _look(self) -> Iterator[str]:
        this = os.readlink("/proc/self")
        for pid in os.listdir("/proc"):
            if pid.isdecimal() and pid != this:
                with suppress(OSError):  # it has ended, or belongs to someone else
                    if os.readlink(f"/proc/{pid}/ns/pid") == self._machine:
                        yield pid


def _state(pid: str) -> str | None:
    """The state of a process, such as S; None if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None


_OWN, _CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_MEMORY_OF_THE_HOST = Path("/proc/pressure/memory")
_THROTTLED_NS = {"throttled_usec": 1000, "throttled_time": 1}  # the unit of each counter: of cgroups 2, and of 1


def throttled_ns(files: Sequence[Path]) -> int | None:
    """The time for which limits of processor time held cgroups back, since they exist, summed over processors.

    Args:
        files: `cpu.stat` of this process's cgroup and of those around it.

    Returns:
        None if the kernel does not count it.
    """
    counts = [count for file in files if (count := _throttled_ns(file)) is not None]
    return sum(counts) if counts else None


def _throttled_ns(file: Path) -> int | None:
    with suppress(OSError, ValueError):
        counts = dict(line.split() for line in file.read_text().splitlines())
        return next((int(counts[key]) * ns for key, ns in _THROTTLED_NS.items() if key in counts), None)
    return None


def swapped_ns(files: Sequence[Path]) -> int | None:
    """The time for which some process of the first of these cgroups, or else of the host, waited for memory (PSI).

    None if the kernel does not count it.
    """
    with suppress(OSError, ValueError, IndexError):
        return int([*files, _MEMORY_OF_THE_HOST][0].read_text().splitlines()[0].rpartition("total=")[2]) * 1000
    return None


def counter_files(controller: str, name: str) -> list[Path]:
    """The files of this name in the cgroup of this process and in those around it, from the inside out."""
    return [file for folder in _folders(controller) if (file := folder / name).is_file()]


def _folders(controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup and those around it, from the inside out, for one controller.

    A container can see its own cgroup as the root, whatever the name that the kernel gives.
    """
    for line in _OWN.read_text().splitlines() if _OWN.exists() else ():
        _, controllers, name = line.split(":", 2)
        if not controllers:
            roots = [_CGROUPS, _CGROUPS / "unified"]
        elif controller in controllers.split(","):
            roots = [_CGROUPS / controllers]
        else:
            continue
        for root in filter(Path.is_dir, roots):
            inside = root / name.lstrip("/")
            around = [inside, *inside.parents]
            yield from filter(Path.is_dir, around[: around.index(root) + 1])
