"""The statistics and errors that an emulator reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from wanbench.harness.errors import HostError


class EmulatorError(HostError):
    """An emulator cannot carry out a command. The message is one line with the command and the reason."""


@dataclass(frozen=True)
class PathStats:
    """The traffic of one directed path since the last reset.

    Packets and bytes are counted at the delay: as they enter it (relay) or leave it (netem). Packets that the path's
    queue dropped or that were lost are not included.
    """

    src: str
    dst: str
    packets: int
    bytes: int
    dropped: int
    lost: int


@dataclass(frozen=True)
class SiteStats:
    """Packets dropped by the queues that the workers of one site share."""

    site: str
    up_dropped: int
    down_dropped: int


@dataclass(frozen=True)
class EmulatorStats:
    """All statistics since the last reset. A value that the emulator cannot know is None.

    Attributes:
        emulator: `relay` or `netem`.
        seconds: length of the period.
        sent_bytes: IP bytes that workers sent, each packet with its headers. With segmentation offload, only the
            emulator can count them.
        packets, bytes: delivered to workers, local traffic included.
        segments: number of pieces in which they were delivered, fewer with segmentation offload.
        offload: whether the workers' devices have segmentation offload, so that the emulator moves segments.
        drops: dropped packets by cause: `up`, `path`, `down` (full queues), `loss` (configured), `unknown`
            (no such worker), `idle` (from or to a worker that the network does not use, but an earlier one did),
            `refused` (the device of the worker, or of a router with netem, was full), `gone` (the worker had ended).
            A cause that an emulator cannot see is absent: `unknown`, `idle` and `gone` for netem.
        not_ipv4: packets of other protocols, which are ignored.
        lateness_*_ms: actual minus due time of delivery, over packets.
        read_lag_*_ms: the longest time that a packet can have waited to be read, over turns of the loop.
        overdue_pct: share of the period during which some packet was late, or can have waited to be read, by more
            than 1 ms. The emulator cannot have lengthened a step by more than this share.
        cpu_s, cpu_us_per_packet: processor time of the emulator.
        pauses: begin and end in ns, on the workers' clock, of times in which the emulator's process did not run
            although it had to; empty for netem, which is part of the kernel.
        changed: what is not as the emulator has set it, in words; None if all is. The relay keeps its network itself.
    """

    emulator: str
    seconds: float
    sent_bytes: int | None
    packets: int
    segments: int | None
    offload: bool | None
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
    pauses: tuple[tuple[int, int], ...] = ()
    changed: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data. `EmulatorStats.from_json` is the inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EmulatorStats:
        """Build the statistics from the output of `to_json`."""
        fields = dict(data)
        fields["paths"] = tuple(PathStats(**item) for item in data["paths"])
        fields["sites"] = tuple(SiteStats(**item) for item in data["sites"])
        fields["pauses"] = tuple((begin, end) for begin, end in data.get("pauses", ()))
        return cls(**fields)
