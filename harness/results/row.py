"""One repetition as one row: the columns of the results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from wanbench.harness.emulators.base import EmulatorStats
from wanbench.harness.plan.cell import Cell, CommandCell, TrainingCell
from wanbench.harness.results.columns import Row, empty
from wanbench.harness.results.goodput import recovered
from wanbench.harness.results.target import Reached, reached
from wanbench.harness.spec.command import name_of
from wanbench.harness.timeline.changes import described

_THROUGHOUT = 0.99  # a worker was there from begin to end, except that it ended a little earlier than others


@dataclass
class Measured:
    """The reports of the workers of a repetition."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    finished: dict[int, dict[str, Any]] = field(default_factory=dict)
    tcp: dict[str, Any] = field(default_factory=dict)

    @property
    def lead(self) -> Mapping[str, Any]:
        """What the worker measured that evaluated its model: the lowest rank that was there at the end."""
        outcome: Mapping[str, Any] = self.finished[min(self.finished)]["outcome"]
        return outcome


def measured_row(
    cell: Cell,
    rep: int,
    trained: Mapping[str, Any],
    measured: Measured,
    stats: EmulatorStats,
    host: Mapping[str, Any],
    report: Mapping[str, Any] | None,
    verdict: list[str],
) -> Row:
    """The repetition as one row. Values that do not apply are None.

    Args:
        trained: the columns about steps and training. report: of the probe. verdict: reasons why it is invalid.
    """
    measurements = {
        "status": "invalid" if verdict else "ok",
        "reason": "; ".join(verdict) or None,
        "wire_bytes": _wire_bytes(measured, stats) if cell.workers > 1 else 0,
        "retransmits": _counted(measured, "RetransSegs"),
        "tcp_window_change_pct": _window_change_pct(measured),
        "one_way_error_ms": report["one_way_error_ms"] if report else None,
        "lateness_p99_ms": stats.lateness_p99_ms if cell.workers > 1 else None,
        "overdue_pct": stats.overdue_pct if cell.workers > 1 else None,
        "packets_per_segment": stats.packets / stats.segments if stats.segments and cell.workers > 1 else None,
        "host_cpu_pct": host["cpu_pct"],
        "paused_pct": host["paused_pct"],
    }
    return cast(Row, {**describe(cell, rep), **trained, **measurements})


def trained(cell: TrainingCell, measured: Measured, reported_steps: int) -> dict[str, Any]:
    """The columns that follow from the workers' reports of their training, on every testbed.

    Args:
        reported_steps: number of steps that all workers reported, also those that were lost later.
    """
    outcomes = [measured.finished[rank]["outcome"] for rank in sorted(measured.finished)]
    windows_s = [(outcome["window_end_ns"] - outcome["window_begin_ns"]) / 1e9 for outcome in outcomes]
    times_s = [cell.each_step_time_s[rank] for rank in sorted(measured.finished)]
    seconds, slowest = max(windows_s), outcomes[_slowest(times_s, windows_s)]
    throughout = True
    if cell.loses_workers:
        own_s, seconds = seconds, (max(o["window_end_ns"] for o in outcomes) - _begin_ns(measured, outcomes)) / 1e9
        throughout = own_s > _THROUGHOUT * seconds
    compute = slowest["window"]["compute_ns"] / 1e9
    stall = slowest["window"]["stall_ns"] / 1e9
    losses = [o["final_loss"] for o in outcomes if o["final_loss"] is not None]
    spreads = [o["replica_spread"] for o in outcomes]
    evaluations = measured.lead["evaluations"]
    target = _reached(cell, measured)
    steps = cell.window
    return {
        "steps": steps,
        "steps_total": cell.steps,
        "step_time_s": seconds / steps,
        "compute_s": compute / steps if throughout else None,
        "stall_s": stall / steps if throughout else None,
        "overhead_s": (seconds - compute - stall) / steps if throughout else None,
        "fastest_step_time_s": min(windows_s) / steps if cell.step_times and not cell.loses_workers else None,
        "payload_bytes": sum(o["total"]["payload_bytes"] for o in outcomes),
        "messages_sent": sum(o["total"]["messages_sent"] for o in outcomes),
        "blocks_lost_pct": _blocks_lost_pct(outcomes),
        "final_loss": statistics.fmean(losses) if losses else None,
        "accuracy": evaluations[-1]["accuracy"] if evaluations else None,
        "replica_spread": None if None in spreads else max(spreads),
        "time_to_target_s": None if target is None else target.seconds,
        "steps_to_target": None if target is None else target.steps,
        **(_losses(cell, outcomes, reported_steps) if cell.loses_workers else {}),
    }


def _begin_ns(measured: Measured, outcomes: Sequence[Mapping[str, Any]]) -> int:
    """When the first step began, also if all workers that made it were lost later."""
    first = [row["end_ns"] - round(row["step_time_s"] * 1e9) for row in measured.rows[:1]]
    return int(min([*first, *(o["window_begin_ns"] for o in outcomes)]))


def _losses(cell: TrainingCell, outcomes: Sequence[Mapping[str, Any]], reported_steps: int) -> dict[str, Any]:
    """The columns of a cell that loses workers."""
    algorithm = cell.algorithm()
    histories = [outcome["epochs"] for outcome in outcomes]
    found = recovered(
        histories,
        cell.workers,
        cell.steps,
        delay=algorithm.delay_steps,
        period=algorithm.period_steps,
        alike=algorithm.own_pace,
    )
    return {
        "counted_steps": found.counted,
        "lost_steps": max(0, reported_steps - found.counted),
        "membership_changes": found.changes,
        "recovery_s": found.seconds,
        "recovery_bytes": found.nbytes,
    }


def _slowest(times_s: Sequence[float], windows_s: Sequence[float]) -> int:
    """The place of the longest window. Of machines that differ and wait for each other, that of the slowest machine.

    Those have windows of the same length, to within a step.

    Args:
        times_s: step time of each worker. windows_s: length of its window.
    """
    longest = [place for place, window_s in enumerate(windows_s) if window_s >= max(windows_s) - max(times_s)]
    return max(longest, key=lambda place: (times_s[place], windows_s[place]))


def describe(cell: Cell, rep: int) -> Row:
    """The columns of a row that are known before measuring. The others, including run and code, are empty."""
    alone = cell.workers == 1
    known = {
        **empty(),
        "cell": cell.slug,
        "cell_key": cell.key,
        "base_key": cell.base_key,
        "code": "",
        "rep": rep,
        "testbed": cell.testbed,
        "emulator": None if alone else cell.emulator,
        "algorithm": cell.label,
        "kind": cell.kind,
        "params": dict(cell.params),
        "workers": cell.workers,
        "profile": None if alone else cell.network.name,
        **_conditions(cell),
        "tcp": None if alone else cell.tcp.congestion,
        "seed": cell.seed + rep,
        "timeline": described(cell.changes),
        "events": [] if cell.changes else None,
        "axes": dict(cell.axes),
        **(_of_our_loop(cell) if isinstance(cell, TrainingCell) else {}),
        **(_of_a_command(cell) if isinstance(cell, CommandCell) else {}),
    }
    return cast(Row, known)


def _of_our_loop(cell: TrainingCell) -> dict[str, Any]:
    """The columns that are known before training with our loop."""
    law, alone, failing = cell.law_inputs, cell.workers == 1, cell.failures
    random = failing.mtbf != "none"
    return {
        "mtbf_s": failing.mtbf.seconds if failing.mtbf != "none" else None,
        "mttr_s": failing.mttr.seconds if random else None,
        "collective": None if alone else cell.comm.collective,
        "channels": None if alone else cell.channels,
        "workload": cell.workload.name,
        "payload_scale": cell.workload.payload_scale,
        "predicted_step_time_s": cell.predicted_step_time_s,
        "undisturbed_key": cell.undisturbed_key,
        "law_inputs": law.to_json(),
        "message_bytes": law.message_bytes,
        "messages_per_sync": law.messages,
    }


def _of_a_command(cell: CommandCell) -> dict[str, Any]:
    """The columns that are known before running a command. Its messages are not scaled."""
    return {
        "collective": cell.collective,
        "workload": name_of(cell.command),
        "payload_scale": cell.rate_scale,
        "command": list(cell.command),
        "scaling": cell.scaling,
    }


def _conditions(cell: Cell) -> dict[str, float | None]:
    """The conditions that all paths in use share; None if they differ, or if no path is in use."""
    profile, sites = cell.profile, dict.fromkeys(cell.placement)
    pairs = [(a, b) for a in sites for b in sites if a != b]
    paths = [profile.path(a, b) for a, b in pairs]
    rtts = sorted(profile.rtt(a, b).ms for a, b in pairs)
    if cell.network.is_uniform:  # paths are unlimited, but each site's own link is not
        rates = {site.up.mbit if site.up else None for site in profile.sites}
    else:
        rates = {path.rate.mbit if path.rate else None for path in paths}
    return {
        "rtt_ms": statistics.median(rtts) if rtts else None,
        "rtt_max_ms": rtts[-1] if rtts else None,
        "rate_mbps": _only(rates) if paths else None,
        "loss_pct": _only({path.loss.percent for path in paths}),
        "loss_burst": _only({path.loss_burst.value or None if path.loss_burst else None for path in paths}),
        "jitter_ms": _only({path.jitter.ms for path in paths}),
    }


def _only(values: set[float | None] | set[float]) -> float | None:
    return next(iter(values)) if len(values) == 1 else None


def _wire_bytes(measured: Measured, stats: EmulatorStats) -> int:
    """Bytes that left the workers from the first step to the end of their connections, with all headers."""
    if stats.sent_bytes is not None:
        return stats.sent_bytes
    return sum(
        m["counters_after"]["device"]["tx_bytes"] - m["counters_before"]["device"]["tx_bytes"]
        for m in measured.finished.values()
    )


def _counted(measured: Measured, name: str) -> int:
    return sum(
        m["counters_after"]["tcp"].get(name, 0) - m["counters_before"]["tcp"].get(name, 0)
        for m in measured.finished.values()
    )


def _window_change_pct(measured: Measured) -> float | None:
    """The change of TCP's windows while measuring, of the worker with the largest; None without connections."""
    pairs = [m["outcome"]["tcp_windows"] for m in measured.finished.values() if "outcome" in m]
    changes = [100.0 * end / begin - 100.0 for begin, end in pairs if begin]
    largest = max(changes, key=abs, default=None)
    return None if largest is None else round(largest, 1)


def cpu_wait_pct(measured: Measured, seconds: float) -> float | None:
    """The share of the time that a worker was ready to run but had no processor, in percent; maximum over workers."""
    pairs = [
        (m["counters_before"]["cpu_wait_ns"], m["counters_after"]["cpu_wait_ns"]) for m in measured.finished.values()
    ]
    waits = [after - before for before, after in pairs if after is not None]
    return round(max(waits) / 1e9 / seconds * 100, 2) if waits else None


def _blocks_lost_pct(outcomes: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of expected blocks that did not arrive in time, in percent; None without datagrams."""
    expected = sum(o["total"]["blocks_expected"] for o in outcomes)
    return 100.0 * sum(o["total"]["blocks_lost"] for o in outcomes) / expected if expected else None


def udp_overflows(measured: Measured) -> int:
    """The number of datagrams lost in the workers' own sockets."""
    return sum(
        m["counters_after"]["udp_overflows"] - m["counters_before"]["udp_overflows"] for m in measured.finished.values()
    )


def _reached(cell: TrainingCell, measured: Measured) -> Reached | None:
    """When rank 0 reached `train.target`."""
    rows = sorted((row for row in measured.rows if row["rank"] == 0), key=lambda row: row["step"])
    if cell.train.target is None or not rows:
        return None
    begin_ns = round(rows[0]["end_ns"] - rows[0]["step_time_s"] * 1e9)
    return reached(measured.lead["evaluations"], cell.train.target, begin_ns)
