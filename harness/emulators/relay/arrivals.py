"""When packets arrived that the relay has just found: a device does not say.

A relay that slept finds a packet at once. One that was busy, or that got no processor, finds the packets of that time
together. Taken as a burst, they would overflow a short buffer that they never filled. So they arrived evenly.

Pure: times are in nanoseconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterator

_AWAKE_NS = 50_000  # select() that returns within this time has not slept
_LATE_NS = 100_000


def found_since(looked: float, asleep: float, wake: float | None, woken: float) -> float:
    """The earliest time at which packets found at `woken` can have arrived.

    Args:
        looked: when the relay looked before, and took what was there.
        asleep: when it went to sleep.
        wake: when it would have woken up at the latest; None without a limit.
        woken: when it woke up.
    """
    if woken - asleep < _AWAKE_NS:
        return looked
    if wake is not None and woken - wake > _LATE_NS:
        return wake
    return woken


def evenly(count: int, since: float, until: float) -> Iterator[float]:
    """The arrivals of this many packets between `since` and `until`, the last one now."""
    step = (until - since) / count if count else 0.0
    return (until - left * step for left in range(count - 1, -1, -1))
