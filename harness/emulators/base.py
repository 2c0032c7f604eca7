"""What an emulator tells about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from wanbench.harness.errors import HostError


class EmulatorError(HostError):
    """An emulator that cannot do what it was asked; one line that says what and why."""


@dataclass(frozen=True)
class PathStats:
    """Traffic of one directed path since the last reset. Packets and bytes are those of the delay, so drops at the
    path and losses are not in them: those that entered it (relay), or left it (netem)."""

    src: str
    dst: str
    packets: int
    bytes: int
    dropped: int
    lost: int


@dataclass(frozen=True)
class SiteStats:
    """Packets dropped by the queues that the workers of a site share."""

    site: str
    up_dropped: int
    down_dropped: int


@dataclass(frozen=True)
class EmulatorStats:
    """Everything since the last reset. A figure that an emulator cannot know is None.

    Attributes:
        emulator: `relay` or `netem`.
        seconds: length of the period.
        packets, bytes: delivered to workers, local traffic included.
        drops: packets by cause: `up`, `path`, `down` (full queues), `loss` (configured), `unknown`
            (no such worker), `refused` (the worker's device, or with netem a router's, took no more), `gone` (the
            worker had ended). A cause that an emulator cannot see is absent: `unknown` and `gone` for netem.
        not_ipv4: packets of other protocols, which are ignored.
        lateness_*_ms: actual minus due time of delivery, over packets.
        read_lag_*_ms: longest time that a packet may have waited to be read, over turns of the loop.
        overdue_pct: share of the period during which a packet was late, or may have waited to be read, by more than
            1 ms: no step can have taken longer by more than that.
        cpu_s, cpu_us_per_packet: processor time of the emulator.
    """

    emulator: str
    seconds: float
    packets: int
    bytes: int
    drops: Mapping[str, int]
    not_ipv4: int | None
    paths: tuple[PathStats, ...]
    sites: tuple[SiteStats, ...]
    lateness_p50_ms: float | None
    lateness_p99_ms: float | None
    lateness_max_ms: float | None
    read_lag_p99_ms: float | None
    read_lag_max_ms: float | None
    overdue_pct: float | None
    cpu_s: float | None
    cpu_us_per_packet: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain data; `EmulatorStats.from_json` is the way back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EmulatorStats:
        """The inverse of `to_json`."""
        fields = dict(data)
        fields["paths"] = tuple(PathStats(**item) for item in data["paths"])
        fields["sites"] = tuple(SiteStats(**item) for item in data["sites"])
        return cls(**fields)
