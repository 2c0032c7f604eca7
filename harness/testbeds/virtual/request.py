"""What a simulation needs to know, as another process can receive it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.testbeds.base import Training
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.harness.timeline.schedule import Schedule
from wanbench.workloads.loop.job import Job


@dataclass(frozen=True)
class Request:
    """The parts of a `Training` that a simulation uses, with the modelled features of TCP."""

    jobs: Sequence[Job]
    network: EmulatedNetwork
    schedule: Schedule | None
    tcp: Tcp

    @classmethod
    def of(cls, training: Training) -> Self:
        """Return the request for a training run."""
        settings = dict(training.group.tcp)
        idle, congestion = bool(settings.get("slow_start_after_idle", True)), str(settings.get("congestion", "reno"))
        largest_window = training.network.socket_buffer_bytes / 2
        tcp = Tcp(training.tcp_ramp, idle, congestion, largest_window)
        return cls(training.jobs, training.network, training.schedule, tcp)
