"""How a worker trains: joins its group, reports, streams rows back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from wanbench.workloads import imported
from wanbench.workloads.comm.base import Comm, CommError
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.comm.membership import Alone
from wanbench.workloads.loop import session
from wanbench.workloads.loop.job import Job
from wanbench.workloads.process import connections
from wanbench.workloads.process.control import Channel, ControlError, text
from wanbench.workloads.process.heartbeat import Heartbeat
from wanbench.workloads.process.joining import join, membership

ROW_INTERVAL_S = 1.0
Counters = Callable[[], dict[str, Any]]


class Trainer:
    """A worker of one job.

    Args:
        channel: to the controller.
        address: of this worker. interface: its device.
        counters: reads the counters of this network.
        routed: the congestion control of the route to the peers, if it was set.
    """

    def __init__(
        self, channel: Channel, job: Job, address: str, interface: str, counters: Counters, routed: str | None
    ) -> None:
        self._channel, self._job, self._counters = channel, job, counters
        torch.set_num_threads(1)
        self._membership = None if job.deadline_s is None else membership(job, address)
        self._comm = self._join(address, interface)
        if routed is not None and (others := connections.congestion_in_use() - {routed}):
            raise CommError(f"connections use {', '.join(sorted(others))}; expected {routed}, as the route says")

    def _join(self, address: str, interface: str) -> Comm:
        if self._job.returned:
            return Alone()
        return join(self._job, address, interface) if self._membership is None else self._membership.first().comm

    def run(self, before: dict[str, Any] | None = None) -> None:
        """Train, and tell the controller.

        Args:
            before: the counters when all workers were warm; None: they are not warm yet.
        """
        if before is None:
            self._tell("joined")
            expect(self._channel, "go")
        clock, begun = MonotonicClock(), dict(before or {})
        # A row that has left is known, even if the trainer is killed next; `mortal` sends them in batches.
        rows = RowStream(self._channel, self._job.told_steps, ROW_INTERVAL_S if self._membership is None else 0.0)
        heart: list[Heartbeat] = []

        def warm() -> None:
            heart.append(Heartbeat())
            counted = self._counters()
            if before is None:
                begun.update(counted)
                self._tell("warm", now_ns=clock.now())
            else:
                begun["cpu_wait_ns"] = counted["cpu_wait_ns"]  # of this process

        try:
            outcome = session.run(
                self._job,
                self._comm,
                clock,
                rows.add,
                warm=warm,
                windows=self._windows,
                evaluating=lambda: self._tell("evaluating"),  # many evaluations are no hang
                membership=self._membership,
            )
        finally:
            lost = [each for beat in heart for each in beat.stop()]
        rows.flush()
        counters = {"counters_before": begun, "counters_after": self._counters()}
        self._tell("finished", outcome=vars(outcome), imports=imported.noted(), lost=lost, **counters)

    def _windows(self) -> int:
        self._tell("warming")  # nor is a long warm-up
        return connections.congestion_windows()

    def close(self) -> None:
        """Hang up."""
        self._comm.close()

    def _tell(self, event: str, **details: Any) -> None:
        self._channel.send({"cmd": "job", "event": event, **details})


class RowStream:
    """Sends step rows in batches, about one per second, at no measurable cost. Reports some steps at once.

    Args:
        reported: the numbers of those steps.
        interval_s: least time between batches.
    """

    def __init__(self, channel: Channel, reported: Sequence[int] = (), interval_s: float = ROW_INTERVAL_S) -> None:
        self._channel, self._reported, self._interval_s = channel, frozenset(reported), interval_s
        self._rows: list[dict[str, Any]] = []
        self._sent = time.monotonic()

    def add(self, row: dict[str, Any]) -> None:
        """Send a row, now or later."""
        self._rows.append(row)
        if row["step"] + 1 in self._reported:
            self._channel.send({"cmd": "job", "event": "step", "step": row["step"] + 1, "now_ns": row["end_ns"]})
        if time.monotonic() - self._sent >= self._interval_s:
            self.flush()

    def flush(self) -> None:
        """Send all rows."""
        if self._rows:
            self._channel.send({"cmd": "job", "event": "rows", "rows": self._rows})
        self._rows = []
        self._sent = time.monotonic()


def expect(channel: Channel, command: str) -> None:
    """Wait for a command. Raises: SystemExit: the controller is gone. ControlError: another command."""
    message = channel.recv()
    if message is None:
        raise SystemExit(0)
    if text(message, "cmd") != command:
        raise ControlError(f"control channel: the controller sent {message['cmd']!r}; expected {command!r}")
