"""A host whose relay runs late, on a simulated clock.

Workers and probe are fakes. The relay's queues and meter, the verdict, the run, its folder and the commands that read
it are real.
"""

from __future__ import annotations

import itertools
import socket
from dataclasses import replace
from types import SimpleNamespace

import pytest

from wanbench.harness.emulators.emulator import EmulatorStats
from wanbench.harness.emulators.plan import EmulatedNetwork, worker_address
from wanbench.harness.emulators.relay.process import Meter
from wanbench.harness.emulators.relay.segment import NO_OFFLOAD
from wanbench.harness.emulators.relay.switch import Switch
from wanbench.harness.testbeds.training import train
from wanbench.workloads.loop.job import Outcome, StepRow, Sums
from wanbench.workloads.process.finished import Counters

MS = 1e6
PACKET_EVERY_MS = 2.0
STEP_S = 0.02


def relay_stats(network: EmulatedNetwork, turn_every_ms: float, monkeypatch: pytest.MonkeyPatch) -> EmulatorStats:
    """Return the statistics of a relay whose loop gets a processor only now and then, for one second."""
    clock = SimpleNamespace(ms=0.0)
    monkeypatch.setattr("wanbench.harness.emulators.relay.process.time.monotonic", lambda: clock.ms / 1e3)
    switch = Switch()
    ports = [switch.attach(rank, socket.inet_aton(worker_address(rank)), rank) for rank in range(network.workers)]
    switch.apply(network, seed=1)
    meter = Meter(switch)
    sent = itertools.count(0.0, PACKET_EVERY_MS)
    arrives = next(sent)
    while clock.ms < 1000:
        before, clock.ms = clock.ms, clock.ms + turn_every_ms
        meter.turn(before * MS, clock.ms * MS)
        while arrives <= clock.ms:
            switch.accept(_packet(0, 1), ports[0], arrives * MS)
            arrives = next(sent)
        for segment in switch.release(clock.ms * MS, 10_000):
            meter.delivered(segment, clock.ms * MS)
    stats = EmulatorStats(**meter.report(reset=False))
    monkeypatch.undo()
    return stats


def _packet(src: int, dst: int) -> bytes:
    """Return an IPv4 header with the fields that a switch reads, without a payload."""
    addresses = socket.inet_aton(worker_address(src)) + socket.inet_aton(worker_address(dst))
    return NO_OFFLOAD + b"\x45" + bytes(11) + addresses + bytes(80)


class Testbed:
    """A testbed whose relay is late by `turn_every_ms`, which depends on the algorithm and its earlier attempts."""

    name = "netns"

    def __init__(self, turn_every_ms) -> None:
        self.turn_every_ms = turn_every_ms
        self.measured: list[str] = []  # algorithms, in the order of measurement

    def open_slot(self, emulator):
        return _Slot(self)

    def kill(self):
        pass

    close = kill


class _Slot:
    image = None

    def __init__(self, testbed: Testbed) -> None:
        self.testbed, self.emulator = testbed, self
        self.jobs: dict[int, dict] = {}
        self.network: EmulatedNetwork | None = None

    def train(self, training):
        self.said = None
        return train(self, training)

    def prepare(self, group):
        return [_Worker(rank, self) for rank in range(group.workers)]

    def events(self, ranks, silence_s):
        """Yield the events of workers that join, warm up, take `STEP_S` for each step, and leave."""
        if self.said is None:
            order = ("joined", "warm", "rows", "finished", "left")
            self.said = [(rank, event) for event in order for rank in range(ranks)]
        while self.said:
            rank, event = self.said.pop(0)
            yield rank, {"cmd": "job", "event": event, **_report(self.jobs[rank])}

    def apply(self, network, *, seed=0):
        self.network = network

    def stats(self, *, reset=False):
        kind = self.jobs[0]["kind"]
        if not reset:
            self.testbed.measured.append(kind)
        tries = self.testbed.measured.count(kind)
        with pytest.MonkeyPatch.context() as patch:
            return relay_stats(self.network, self.testbed.turn_every_ms(kind, tries), patch)


class _Worker:
    def __init__(self, rank: int, slot: _Slot) -> None:
        self.rank, self.slot = rank, slot

    def send(self, message, fds=()):
        if message["cmd"] == "job":
            self.slot.jobs[self.rank] = message["job"]

    def receive(self, timeout_s, expected):
        return {"tcp": {"congestion": "reno"}}


def _report(job: dict) -> dict:
    """Return the report of a worker after a job without problems."""
    step_ns, nothing = round(STEP_S * 1e9), Sums(0, 0, 0, 0, 0, 0)
    begin_ns, window_ns = job["window_begin"] * step_ns, job["window_steps"] * step_ns
    outcome = Outcome(
        window_begin_ns=begin_ns, window_end_ns=begin_ns + window_ns, window=replace(nothing, compute_ns=window_ns),
        total=nothing, final_loss=None, replica_spread=None, evaluations=[], ended_ns=[], messages=[], slowed_ns=[],
        tcp_windows=(0, 0), epochs=[],
    )  # fmt: skip
    counters = Counters({"tx_bytes": 0}, {}, 0, 0)
    parts = {"compute_s": STEP_S, "stall_s": 0.0, "overhead_s": 0.0, "payload_bytes": 0, "messages_sent": 0}
    rows = [
        StepRow(rank=job["rank"], step=step, end_ns=(step + 1) * step_ns, step_time_s=STEP_S, **parts, loss=None)
        for step in range(job["steps"])
    ]
    return {
        "rows": rows, "now_ns": 0, "outcome": outcome, "counters_before": counters, "counters_after": counters,
        "lost": [], "changed": None, "imports": [],
    }  # fmt: skip


def overload(monkeypatch: pytest.MonkeyPatch, turn_every_ms) -> Testbed:
    """Make `wanbench run` in this process measure on such a testbed, on an otherwise idle host."""
    probed = {"ok": True, "reasons": [], "one_way_error_ms": 0.1}
    testbed, idle = Testbed(turn_every_ms), (0, [0] * 8)
    monkeypatch.setattr("wanbench.harness.run.session.check_host", lambda cells: None)
    monkeypatch.setattr("wanbench.harness.run.session.probe_network", lambda repetition, slot: probed)
    monkeypatch.setattr("wanbench.harness.rep.fidelity._sample", lambda: idle)
    monkeypatch.setattr("wanbench.harness.run.session.opened", lambda name, **settings: testbed)
    return testbed
