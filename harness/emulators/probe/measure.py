"""Measure the network that an emulator built, with real packets between real workers.

The network is otherwise idle. Directed paths are measured in rounds: in one round every worker either sends or
receives, and no two paths share a queue. `plan.py` schedules the packets, `report.py` judges those that arrived.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from wanbench.harness.emulators.impairments.base import Tolerance
from wanbench.harness.emulators.plan import EmulatedNetwork, worker_address
from wanbench.harness.emulators.probe.plan import (
    Flow,
    Pair,
    flows_of,
    ranks_by_site,
    rounds_of,
    shared_up_flows,
    wire_ns,
)
from wanbench.harness.emulators.probe.report import (
    RELAY_TOLERANCE,
    Arrival,
    PathProbe,
    ProbeReport,
    SharedUpProbe,
    judge,
    judge_shared_up,
)

_LEAD_NS = 50_000_000  # time for the commands to reach all workers before the first packet leaves
_LATE_NS = 150_000_000  # how long receivers wait beyond the expected end
_ROUNDS = 30  # covers all paths of up to 16 sites, and an evenly spread sample of larger networks
_REPEATS = 2  # a wrong network fails every time, a busy host does not
_ANSWER_S = 20.0


class ProbeWorker(Protocol):
    """A worker that answers probe messages by `workloads.process.probing.handle`."""

    def send(self, message: dict[str, Any]) -> None:
        """Send a command."""

    def receive(self, timeout_s: float, expected: str = "") -> dict[str, Any]:
        """Return the next answer, which is `expected`. Raises: TimeoutError."""
        ...


def probe(
    network: EmulatedNetwork, workers: Sequence[ProbeWorker], *, tolerance: Tolerance = RELAY_TOLERANCE
) -> ProbeReport:
    """Measure a network that has been applied and is idle. `workers` are in the order of their ranks.

    This takes about (0.25 s + one-way delay) x 2 (N-1) for N sites: 2 s for four sites, 5 s at an RTT of 1 s.

    Raises:
        TimeoutError: a worker does not answer.
    """
    began = time.monotonic()
    rounds, total = _rounds(network)
    prober = _Prober(network, workers, tolerance, sum(len(pairs) for pairs in rounds))
    rows = {pair: row for pairs in rounds for pair, row in prober.measure(pairs).items()}
    shared = prober.measure_shared_up()
    repeated = 0
    for _ in range(_REPEATS):
        failed = sorted(pair for pair, row in rows.items() if not row.ok)
        repeated += len(failed)
        for pair in failed:
            rows |= prober.measure([pair])
        if shared is not None and shared.reasons:
            shared = prober.measure_shared_up()
    prober.close()
    ordered = tuple(rows[pair] for pair in sorted(rows))
    return ProbeReport(network.key(), time.monotonic() - began, total, repeated, ordered, shared)


def _rounds(network: EmulatedNetwork) -> tuple[list[list[Pair]], int]:
    """Return the rounds to measure, and the number of all paths."""
    rounds = list(rounds_of(len(network.sites)))
    local = [(site, site) for site, ranks in enumerate(ranks_by_site(network)) if len(ranks) > 1]
    total = sum(len(pairs) for pairs in rounds) + len(local)
    if len(rounds) > _ROUNDS:
        rounds = [rounds[index * len(rounds) // _ROUNDS] for index in range(_ROUNDS)]
    return [*rounds, *([local] if local else [])], total


class _Prober:
    """Runs rounds of flows on the workers and judges what arrives."""

    def __init__(
        self, network: EmulatedNetwork, workers: Sequence[ProbeWorker], tolerance: Tolerance, paths_judged: int
    ) -> None:
        self._network = network
        self._workers = workers[: network.workers]
        self._tolerance = tolerance
        self._paths_judged = paths_judged
        self._number = 0
        for rank, worker in enumerate(self._workers):
            worker.send({"cmd": "probe", "role": "listen", "address": worker_address(rank)})
        self._ports = [worker.receive(_ANSWER_S, "probe listen")["port"] for worker in self._workers]

    def measure(self, pairs: Sequence[Pair]) -> dict[Pair, PathProbe]:
        """Measure these paths, which share no worker and no queue, in one round."""
        network = self._network
        flows = flows_of(network, pairs, time.monotonic_ns() + _LEAD_NS)
        return {
            pair: judge(
                (network.sites[pair[0]], network.sites[pair[1]]),
                network.link(*pair),
                network.rate(*pair),
                wire_ns(network, pair),
                flow.trains,
                arrivals,
                tolerance=self._tolerance,
                paths_judged=self._paths_judged,
            )
            for pair, flow, (_, arrivals) in zip(pairs, flows, self._run(flows), strict=True)
        }

    def measure_shared_up(self) -> SharedUpProbe | None:
        """Measure several streams out of one site. Return None if no `up` rate is a limit."""
        network = self._network
        planned = shared_up_flows(network, time.monotonic_ns() + _LEAD_NS)
        if planned is None:
            return None
        site, rate, flows = planned
        departures: list[int] = []
        to: list[str] = []
        for receiver, arrivals in self._run(flows):
            dst = network.site_of[receiver]
            to.append(network.sites[dst])
            # The arrival time minus the delay of the path is the departure from the queue under test.
            delay_ns = network.links[site, dst].delay_ns
            departures.extend(received - delay_ns for _, _, _, received, _ in arrivals)
        jitter_ms = max(network.links[site, network.sites.index(name)].jitter_ns for name in to) / 1e6
        (train,) = flows[0].trains
        nbytes, sent = train["bytes"] * train["segment"], len(to) * (train["packets"] // train["segment"])
        return judge_shared_up(network.sites[site], tuple(to), rate, departures, nbytes, sent=sent, jitter_ms=jitter_ms)

    def close(self) -> None:
        """Let the workers close their sockets."""
        for worker in self._workers:
            worker.send({"cmd": "probe", "role": "close"})
        for worker in self._workers:
            worker.receive(_ANSWER_S, "probe close")

    def _run(self, flows: Sequence[Flow]) -> Iterator[tuple[int, list[Arrival]]]:
        """Run one round. Yield each receiver of each flow with its arrivals."""
        self._number += 1
        end_ns = max(flow.end_ns for flow in flows) + _LATE_NS
        for flow in flows:
            for receiver in flow.receivers:
                self._command(receiver, {"role": "receive", "expect": flow.packets, "until_ns": end_ns})
        for flow in flows:
            to = [[worker_address(receiver), self._ports[receiver]] for receiver in flow.receivers]
            message = {"role": "send", "address": worker_address(flow.sender), "to": to}
            self._command(flow.sender, message | {"trains": flow.trains})
        for flow in flows:
            self._workers[flow.sender].receive(_ANSWER_S, "probe send")
        for flow in flows:
            for receiver in flow.receivers:
                wait_s = max(0.0, end_ns - time.monotonic_ns()) / 1e9 + _ANSWER_S
                yield receiver, self._workers[receiver].receive(wait_s, "probe receive")["segments"]

    def _command(self, rank: int, message: dict[str, Any]) -> None:
        self._workers[rank].send({"cmd": "probe", "round": self._number, **message})
