"""Judge the times in which a worker, the emulator or the controller did not run. Pure.

A pause of length L makes a window of length W longer by up to L, and pauses of several workers at different times add
up. So the union of all pauses must be a small part of the window. This holds for any algorithm and network, whereas the
durations of steps also vary with losses, jitter and the time of computing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbench.harness.emulators.emulator import EmulatorStats
from wanbench.harness.results.rules import MAX_PAUSED_PCT
from wanbench.workloads.process.finished import Finished
from wanbench.workloads.process.heartbeat import PAUSED, STOPPED, SWAPPED, THROTTLED, Lost

_NS = 1e9
_DID = {
    PAUSED: "{} did not run",
    STOPPED: "the program of {} was stopped",
    THROTTLED: "the cgroup of {} was throttled",
    SWAPPED: "{} waited for memory",
}


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


def gathered(finished: Mapping[int, Finished], stats: EmulatorStats, controller: Iterable[Lost]) -> list[Pause]:
    """Return all pauses of a repetition, in the order in which they began.

    Args:
        finished: the last message of each worker. A single one does not use the emulator.
    """
    stops = [Pause(f"worker {rank}", *lost) for rank, message in finished.items() for lost in message.lost]
    if len(finished) > 1:
        stops += [Pause(f"the {stats.emulator}", PAUSED, begin, end) for begin, end in stats.pauses]
    # Limits and memory are those of all processes; the workers have reported them.
    stops += [Pause("the controller", *lost) for lost in controller if lost.cause == PAUSED]
    return sorted(stops, key=lambda pause: pause.begin_ns)


def inside(pauses: Iterable[Pause], window: Window) -> list[Pause]:
    """Return the parts of the pauses that can have influenced the window."""
    clipped = [
        Pause(pause.who, pause.cause, max(pause.begin_ns, window.since_ns), min(pause.end_ns, window.end_ns))
        for pause in pauses
    ]
    return [pause for pause in clipped if pause.end_ns > pause.begin_ns]


def paused_pct(pauses: Sequence[Pause], window: Window) -> float:
    """The length of the union of all pauses, in percent of the window's length."""
    total_ns = reached_ns = 0
    for pause in sorted(inside(pauses, window), key=lambda pause: pause.begin_ns):
        total_ns += max(0, pause.end_ns - max(pause.begin_ns, reached_ns))
        reached_ns = max(reached_ns, pause.end_ns)
    return 100.0 * total_ns / max(1, window.end_ns - window.begin_ns)


def described(pauses: Sequence[Pause], window: Window) -> dict[str, Any]:
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


def judge(pauses: Sequence[Pause], windows: Iterable[Window]) -> list[str]:
    """Return the reason why the repetition cannot be published, or an empty list."""
    return [_reason(pauses, window) for window in windows if paused_pct(pauses, window) > MAX_PAUSED_PCT][:1]


def _reason(pauses: Sequence[Pause], window: Window) -> str:
    within = inside(pauses, window)
    longest = max(within, key=lambda pause: pause.end_ns - pause.begin_ns)
    seconds, at = (longest.end_ns - longest.begin_ns) / _NS, (longest.begin_ns - window.begin_ns) / _NS
    where = f"{abs(at):.2f} s {'after' if at >= 0 else 'before'} the window began"
    more = f", and {len(within) - 1} more pause{'s' * (len(within) > 2)}" if len(within) > 1 else ""
    share = f"{paused_pct(pauses, window):.1f} % of the window, limit {MAX_PAUSED_PCT:g} %"
    return f"{_DID[longest.cause].format(longest.who)} for {seconds:.2f} s, {where}{more}: {share}"
