"""How a worker trains: joins its group, reports, streams rows back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from wanbench.workloads import imported
from wanbench.workloads.comm.alone import Alone
from wanbench.workloads.comm.base import Comm, CommError
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.loop.job import Job
from wanbench.workloads.loop.train import Hooks, run
from wanbench.workloads.process import connections
from wanbench.workloads.process.control import Channel, ControlError, text
from wanbench.workloads.process.finished import Counters, FinishedJob
from wanbench.workloads.process.heartbeat import Heartbeat
from wanbench.workloads.process.joining import join, membership

ROW_INTERVAL_S = 1.0


class Trainer:
    """A worker of one job.

    Args:
        channel: to the controller.
        address: of this worker. interface: its device.
        counters: reads the counters of this network.
        routed: the congestion control of the route to the peers, if it was set.
    """

    def __init__(
        self,
        channel: Channel,
        job: Job,
        address: str,
        interface: str,
        counters: Callable[[], Counters],
        routed: str | None,
    ) -> None:
        self._channel, self._job, self._counters = channel, job, counters
        self._heart: Heartbeat | None = None
        self._begun: Counters | None = None
        torch.set_num_threads(1)
        self._membership = None if job.deadline_s is None else membership(job, address)
        self._comm = self._join(address, interface)
        if routed is not None and (others := connections.congestion_in_use() - {routed}):
            raise CommError(f"connections use {', '.join(sorted(others))}; expected {routed}, as the route says")

    def _join(self, address: str, interface: str) -> Comm:
        if self._job.returned:
            return Alone()
        return join(self._job, address, interface) if self._membership is None else self._membership.first().comm

    def run(self, before: Counters | None = None) -> None:
        """Train, and tell the controller.

        Args:
            before: the counters when all workers were warm; None: they are not warm yet.
        """
        if before is None:
            self._tell("joined")
            expect(self._channel, "go")
        # A row that has left is known, even if the trainer is killed next; `mortal` sends them in batches.
        rows = RowStream(self._channel, self._job.told_steps, ROW_INTERVAL_S if self._membership is None else 0.0)
        hooks = Hooks(lambda row: rows.add(vars(row)), partial(self._warm, before), self._evaluating, self._windows)
        try:
            outcome = run(self._job, self._comm, MonotonicClock(), hooks, membership=self._membership)
        finally:
            lost = [] if self._heart is None else self._heart.stop()
        rows.flush()
        assert self._begun is not None, "training calls warm"
        after, imports = self._counters(), imported.noted()
        finished = FinishedJob(
            outcome=outcome, imports=imports, lost=lost, counters_before=self._begun, counters_after=after
        )
        self._tell("finished", **asdict(finished))

    def _warm(self, before: Counters | None) -> None:
        self._heart = Heartbeat()
        self._begun = counted = self._counters()
        if before is None:
            self._tell("warm", now_ns=time.monotonic_ns())
        else:
            self._begun = replace(before, cpu_wait_ns=counted.cpu_wait_ns)  # of this process

    def _evaluating(self) -> None:
        self._tell("evaluating")  # many evaluations are no hang

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
