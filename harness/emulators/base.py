"""The interface of an emulator, and what it tells about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

from wanbench.harness.emulators.plan import Network
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


class Emulator(Protocol):
    """Something that makes paths between workers as slow as a `Network` says.

    Attributes:
        name: `relay` or `netem`.
        attachment: what a worker hands over at its start so that it can be joined to the others: `tun`, the
            descriptor of a TUN device that it opened, or `netns`, the descriptor of its network namespace.
    """

    name: ClassVar[str]
    attachment: ClassVar[str]

    def attach(self, rank: int, fd: int) -> None:
        """Take a worker in, or in place of the one that had this rank; close your copy of `fd` afterwards.

        Raises:
            EmulatorError: the emulator refused or is gone.
        """

    def fileno(self) -> int:
        """For selectors: between two commands it is readable only if the emulator has ended."""
        ...

    def hung_up(self) -> bool:
        """True if it is readable and nobody waits for an answer: it has ended."""
        ...

    def ended(self) -> EmulatorError | None:
        """How the emulator ended, None while it lives."""

    def is_stopped(self) -> bool:
        """True if someone stopped the emulator without ending it."""
        ...

    def obituary(self) -> EmulatorError:
        """Why it does not answer any more."""
        ...

    def apply(self, network: Network, *, seed: int = 0) -> None:
        """Give every path and site its values. What is in flight is neither lost nor overtaken.

        `seed` starts the loss and jitter of every directed path anew.

        Raises:
            EmulatorError: the emulator refused or is gone.
        """

    def update(self, network: Network) -> None:
        """New values for the places of the network that was applied, while traffic flows.

        What is in flight is neither lost nor overtaken, and the random draws of paths go on.

        Raises:
            EmulatorError: the network has other places, or the emulator refused or is gone.
        """

    def stats(self, *, reset: bool = False) -> EmulatorStats:
        """What happened since the last reset.

        Raises:
            EmulatorError: the emulator is gone.
        """

    def close(self) -> None:
        """End the emulator and everything it created; calling it again does nothing."""
