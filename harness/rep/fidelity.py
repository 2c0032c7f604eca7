"""Judge whether the emulation was faithful during a repetition."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from wanbench.harness.emulators.emulator import EmulatorStats
from wanbench.harness.plan.repetition import Repetition
from wanbench.harness.results.columns import Row
from wanbench.harness.results.rules import MAX_PAUSED_PCT
from wanbench.workloads.process.configuration import Change
from wanbench.workloads.process.finished import Finished, Processor
from wanbench.workloads.process.heartbeat import PAUSED, STOPPED, SWAPPED, THROTTLED, Heartbeat, Lost

# Packets can be late by this much, or by this share of the one-way delay or of the predicted step.
LATENESS_MS = 2.0
LATENESS_SHARE_OF_DELAY = 0.02
LATENESS_SHARE_OF_STEP = 0.01
# A pause of the host by 10 ms makes most packets of a short burst late, which matters only if such pauses add up.
OVERDUE_PCT = 1.0
# Limit of the total time with late packets. It holds for any share of late packets, since one burst has many packets.
BEHIND_PCT = 5.0
# A worker that waits for a processor is slower than its network makes it. Measured on two cores with steps of 30 ms:
# if the threads of a worker waited 20 % of the time, its steps took 5 % longer, at 33 % they took 9 % longer.
CPU_WAIT_PCT = 30.0
# A program that waits for its own threads, or for the other workers, has its share. It has less if others work too.
OTHERS_PCT = 10.0
CHANGED = "the network was changed"
# Causes of drops outside the model's queues.
_UNCOUNTED = ("refused", "unknown")
_NS = 1e9
_DID = {
    PAUSED: "{} did not run",
    STOPPED: "the program of {} was stopped",
    THROTTLED: "the cgroup of {} was throttled",
    SWAPPED: "{} waited for memory",
}


class HostMeter:
    """Measures the load of the host from `start` to `load`, and the pauses of this process until its block ends.

    Attributes:
        begin_ns: when it started, on the workers' clock. lost: the pauses, after the block.
    """

    def __init__(self) -> None:
        self._heart: Heartbeat | None = None
        self.begin_ns = 0
        self.lost: list[Lost] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._heart is not None:
            self.lost, self._heart = self._heart.stop(), None

    def start(self) -> None:
        self._begin, self.begin_ns = _sample(), time.monotonic_ns()
        self._heart = Heartbeat()

    def load(self) -> dict[str, Any]:
        """Return the processor time of all but nice processes in percent of all cores, and softnet drops."""
        begin, end = self._begin, _sample()
        busy = [b - a for a, b in zip(begin[1], end[1], strict=True)]
        total, unused = sum(busy), busy[1] + busy[3] + busy[4]  # nice, idle, waiting for a disk
        return {
            "cpu_pct": round(100 * (total - unused) / total, 1) if total else None,
            "softnet_dropped": end[0] - begin[0],
            "load_average": os.getloadavg()[0],
            "cores": os.cpu_count(),
        }


def share_of_programs(
    host: Mapping[str, Any], processor: Iterable[Processor], stats: EmulatorStats
) -> dict[str, float | None]:
    """Return how long a program waited for a processor, and what processes other than ours used, in percent.

    Args:
        host: from `HostMeter.load`. processor: time of the programs of each worker.
    """
    times = list(processor)
    if host["cpu_pct"] is None or not times or not stats.seconds:
        return {"program_cpu_wait_pct": None, "others_cpu_pct": None}
    ours_s = sum(programs.used_s for programs in times) + (stats.cpu_s or 0.0)
    return {
        "program_cpu_wait_pct": round(100 * max(programs.waited_s for programs in times) / stats.seconds, 1),
        "others_cpu_pct": round(max(0.0, host["cpu_pct"] - 100 * ours_s / stats.seconds / host["cores"]), 1),
    }


def _sample() -> tuple[int, list[int]]:
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    softnet = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in softnet), fields


def strain(row: Row) -> float:
    """How near a repetition came to the limits of fidelity by the load of its host: 0 idle, 1 at a limit."""
    overdue_pct, paused_pct, late_ms = (row[key] or 0.0 for key in ("overdue_pct", "paused_pct", "lateness_p99_ms"))
    return max(
        min(overdue_pct / OVERDUE_PCT, late_ms / LATENESS_MS), overdue_pct / BEHIND_PCT, paused_pct / MAX_PAUSED_PCT
    )


def judge_settings(changed: Mapping[int, Change | None], sites: Sequence[str], stats: EmulatorStats) -> list[str]:
    """Return the reason why a network that did not stay as it was set must not be published, or an empty list.

    Args:
        changed: for each worker, what its network has now, or None. sites: of the workers.
    """
    changes = sorted((rank, *change) for rank, change in changed.items() if change is not None)
    words = [f"{setting} of worker {rank} ({sites[rank]}): {what}" for rank, setting, what in changes]
    words += filter(None, [stats.changed])
    return [f"{CHANGED}: {first}" for first in words[:1]]


def judge(
    repetition: Repetition,
    stats: EmulatorStats,
    host: Mapping[str, Any],
    probe: Mapping[str, Any] | None,
    step_time_s: float | None = None,
) -> list[str]:
    """Return the reasons why a repetition must not be published, or an empty list.

    Args:
        step_time_s: measured step time, used if none is predicted.
    """
    reasons = _waits(host)
    if repetition.workers == 1:
        return reasons
    step_ms = (repetition.predicted_step_time_s or step_time_s or 0.0) * 1e3
    return [*reasons, *(probe["reasons"] if probe else ()), *_delays(repetition, stats, step_ms), *_losses(stats, host)]


def _waits(host: Mapping[str, Any]) -> list[str]:
    """Whether workers or their programs waited too long for processors. What is not known did not wait."""
    worker, program, others = (
        host.get(key) or 0.0 for key in ("worker_cpu_wait_pct", "program_cpu_wait_pct", "others_cpu_pct")
    )
    waited = f"waited for a processor {{:.1f}} % of the time, limit {CPU_WAIT_PCT:g} %"
    reasons = [f"the threads of a worker {waited.format(worker)}"] if worker > CPU_WAIT_PCT else []
    if program > CPU_WAIT_PCT and others > OTHERS_PCT:
        reasons.append(f"a program {waited.format(program)}, while others used {others:.1f} % of all processors")
    return reasons


def _delays(repetition: Repetition, stats: EmulatorStats, step_ms: float) -> list[str]:
    """Whether the emulator sent packets too late."""
    one_way_ms = max((link.delay_ns for link in repetition.network.links.values()), default=0) / 1e6
    limit = max(LATENESS_MS, LATENESS_SHARE_OF_DELAY * one_way_ms, LATENESS_SHARE_OF_STEP * step_ms)
    during = "" if stats.overdue_pct is None else f", during {stats.overdue_pct:.1f} % of the time"
    overdue = stats.overdue_pct is None or stats.overdue_pct > OVERDUE_PCT
    lags = (("were late by {:.1f} ms", stats.lateness_p99_ms), ("waited {:.1f} ms to be read", stats.read_lag_p99_ms))
    late = [words.format(lag) for words, lag in lags if overdue and lag is not None and lag > limit]
    if late:
        return [f"packets {' and '.join(late)} (p99), limit {limit:.1f} ms{during}"]
    if stats.overdue_pct is not None and stats.overdue_pct > BEHIND_PCT:
        return [f"the emulator was behind during {stats.overdue_pct:.1f} % of the time, limit {BEHIND_PCT:g} %"]
    return []


def _losses(stats: EmulatorStats, host: Mapping[str, Any]) -> list[str]:
    """Packets that were lost, although the network would have delivered them."""
    counted = (
        (sum(stats.drops.get(cause, 0) for cause in _UNCOUNTED), "{} packets were lost outside the model's queues"),
        (host.get("udp_overflows"), "{} datagrams were dropped because a worker's socket buffer was full"),
        (host.get("softnet_dropped"), "the kernel dropped {} packets (softnet backlog)"),
    )
    return [words.format(number) for number, words in counted if number]


# ---------------------------------------------------------------- pauses

# A pause of length L makes a window of length W longer by up to L, and pauses of several workers at different times add
# up. So the union of all pauses must be a small part of the window. This holds for any algorithm and network, whereas
# the durations of steps also vary with losses, jitter and the time of computing.


@dataclass(frozen=True)
class Pause:
    """A time in which something did not run: `who`, why (`heartbeat.Lost.cause`), and from when to when."""

    who: str
    cause: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Window:
    """The measured steps, on the workers' clock.

    Attributes:
        since_ns: pauses before this time do not matter. Those between it and `begin_ns` do, because workers that do not
            wait for each other can still be late because of them.
    """

    begin_ns: int
    end_ns: int
    since_ns: int = 0


def pauses_of(finished: Mapping[int, Finished], stats: EmulatorStats, controller: Iterable[Lost]) -> list[Pause]:
    """Return the times in which a worker, the emulator or the controller did not run, in the order in which they began.

    Args:
        finished: the last message of each worker. A single one does not use the emulator.
    """
    stops = [Pause(f"worker {rank}", *lost) for rank, message in finished.items() for lost in message.lost]
    if len(finished) > 1:
        stops += [Pause(f"the {stats.emulator}", PAUSED, begin, end) for begin, end in stats.pauses]
    # Limits and memory are those of all processes; the workers have reported them.
    stops += [Pause("the controller", *lost) for lost in controller if lost.cause == PAUSED]
    return sorted(stops, key=lambda pause: pause.begin_ns)


def _inside(pauses: Iterable[Pause], window: Window) -> list[Pause]:
    """Return the parts of the pauses that can have influenced the window."""
    clipped = [
        Pause(pause.who, pause.cause, max(pause.begin_ns, window.since_ns), min(pause.end_ns, window.end_ns))
        for pause in pauses
    ]
    return [pause for pause in clipped if pause.end_ns > pause.begin_ns]


def paused_pct(pauses: Sequence[Pause], window: Window) -> float:
    """The length of the union of all pauses, in percent of the window's length."""
    total_ns = reached_ns = 0
    for pause in sorted(_inside(pauses, window), key=lambda pause: pause.begin_ns):
        total_ns += max(0, pause.end_ns - max(pause.begin_ns, reached_ns))
        reached_ns = max(reached_ns, pause.end_ns)
    return 100.0 * total_ns / max(1, window.end_ns - window.begin_ns)


def describe_pauses(pauses: Sequence[Pause], window: Window) -> dict[str, Any]:
    """Return `paused_pct`, and `pauses`: all of them, with times relative to the window."""
    times = [
        {
            "who": pause.who,
            "cause": pause.cause,
            "begin_s": (pause.begin_ns - window.begin_ns) / _NS,
            "seconds": (pause.end_ns - pause.begin_ns) / _NS,
        }
        for pause in pauses
    ]
    return {"paused_pct": round(paused_pct(pauses, window), 2), "pauses": times}


def judge_pauses(pauses: Sequence[Pause], windows: Iterable[Window]) -> list[str]:
    """Return the reason why the repetition cannot be published, or an empty list."""
    return [_reason(pauses, window) for window in windows if paused_pct(pauses, window) > MAX_PAUSED_PCT][:1]


def _reason(pauses: Sequence[Pause], window: Window) -> str:
    within = _inside(pauses, window)
    longest = max(within, key=lambda pause: pause.end_ns - pause.begin_ns)
    seconds, at = (longest.end_ns - longest.begin_ns) / _NS, (longest.begin_ns - window.begin_ns) / _NS
    where = f"{abs(at):.2f} s {'after' if at >= 0 else 'before'} the window began"
    more = f", and {len(within) - 1} more pause{'s' * (len(within) > 2)}" if len(within) > 1 else ""
    share = f"{paused_pct(pauses, window):.1f} % of the window, limit {MAX_PAUSED_PCT:g} %"
    return f"{_DID[longest.cause].format(longest.who)} for {seconds:.2f} s, {where}{more}: {share}"
