"""One repetition as one row: the columns of the results."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from wanbench.harness.emulators.emulator import EmulatorStats
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.repetition import Repetition, TrainingRepetition
from wanbench.harness.results.columns import Row, empty
from wanbench.harness.results.goodput import recovered
from wanbench.harness.results.target import reached
from wanbench.workloads.loop.job import Evaluated, Outcome, StepRow
from wanbench.workloads.process.connections import TIMES_US
from wanbench.workloads.process.finished import Finished, FinishedJob

_THROUGHOUT = 0.99  # a worker was there from begin to end, except that it ended a little earlier than others


@dataclass
class Measured:
    """The reports of the workers of a repetition."""

    finished: Mapping[int, Finished]
    tcp: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class MeasuredTraining(Measured):
    """The reports of workers that trained. `rows`: the steps of rank 0."""

    finished: Mapping[int, FinishedJob]
    rows: Sequence[StepRow] = ()

    @property
    def outcomes(self) -> list[Outcome]:
        """In the order of ranks; first, that of the worker that evaluated its model."""
        return [finished.outcome for _, finished in sorted(self.finished.items())]

    @property
    def evaluations(self) -> list[Evaluated]:
        """The evaluations of the first outcome. A mean of models exists once the last worker has made the step."""
        own, ended_ns = self.outcomes[0].evaluations, [o.ended_ns for o in self.outcomes if o.ended_ns]
        latest = [max(times) for times in zip(*ended_ns, strict=False)]
        return [replace(at, end_ns=end) for at, end in zip(own, latest, strict=False)] if ended_ns else own


def measured_row(
    repetition: Repetition,
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
    tcp = [(report.counters_before.tcp, report.counters_after.tcp) for report in measured.finished.values()]
    measurements = {
        "status": "invalid" if verdict else "ok",
        "reason": "; ".join(verdict) or None,
        "wire_bytes": _wire_bytes(measured, stats) if repetition.workers > 1 else 0,
        "retransmits": sum(after.get("RetransSegs", 0) - before.get("RetransSegs", 0) for before, after in tcp),
        **_windows(tcp, watched=not isinstance(measured, MeasuredTraining)),
        "tcp_window_change_pct": _window_change_pct(measured),
        "one_way_error_ms": report["one_way_error_ms"] if report else None,
        "lateness_p99_ms": stats.lateness_p99_ms if repetition.workers > 1 else None,
        "overdue_pct": stats.overdue_pct if repetition.workers > 1 else None,
        "packets_per_segment": stats.packets / stats.segments if stats.segments and repetition.workers > 1 else None,
        "host_cpu_pct": host["cpu_pct"],
        "paused_pct": host["paused_pct"],
    }
    return cast(Row, {**empty(), **repetition.columns, **trained, **measurements})


def trained(repetition: TrainingRepetition, measured: MeasuredTraining, reported_steps: int) -> dict[str, Any]:
    """The columns that follow from the workers' reports of their training, on every testbed.

    Args:
        reported_steps: number of steps that all workers reported, also those that were lost later.
    """
    outcomes = measured.outcomes
    windows_s = [(outcome.window_end_ns - outcome.window_begin_ns) / 1e9 for outcome in outcomes]
    times_s = [repetition.step_times_s[rank] for rank in sorted(measured.finished)]
    seconds, slowest = max(windows_s), outcomes[_slowest(times_s, windows_s)]
    throughout = True
    if repetition.loses_workers:
        own_s, seconds = seconds, (max(o.window_end_ns for o in outcomes) - _begin_ns(measured)) / 1e9
        throughout = own_s > _THROUGHOUT * seconds
    compute = slowest.window.compute_ns / 1e9
    stall = slowest.window.stall_ns / 1e9
    losses = [o.final_loss for o in outcomes if o.final_loss is not None]
    spreads = [o.replica_spread for o in outcomes if o.replica_spread is not None]
    steps = repetition.window
    return {
        "steps": steps,
        "steps_total": repetition.steps,
        "step_time_s": seconds / steps,
        "compute_s": compute / steps if throughout else None,
        "stall_s": stall / steps if throughout else None,
        "overhead_s": (seconds - compute - stall) / steps if throughout else None,
        "fastest_step_time_s": min(windows_s) / steps if repetition.uneven and not repetition.loses_workers else None,
        "payload_bytes": sum(o.total.payload_bytes for o in outcomes),
        "messages_sent": sum(o.total.messages_sent for o in outcomes),
        "blocks_lost_pct": _blocks_lost_pct(outcomes),
        "final_loss": statistics.fmean(losses) if losses else None,
        **_learned(measured, repetition.target),
        "replica_spread": max(spreads) if len(spreads) == len(outcomes) else None,
        **(_losses(repetition, outcomes, reported_steps) if repetition.loses_workers else {}),
    }


def _learned(measured: MeasuredTraining, target: float | None) -> dict[str, Any]:
    """The columns of the trained model, as the lowest rank evaluated it, and when it reached `train.target`."""
    evaluations = measured.evaluations
    names = ("accuracy", "accuracy_before_drain", "accuracy_own_buffers")
    reach = None if target is None else reached(evaluations, target, _begin_ns(measured))
    return {
        "weights": measured.outcomes[0].weights,
        **{name: getattr(evaluations[-1], name) if evaluations else None for name in names},
        **dict(zip(("steps_to_target", "time_to_target_s"), reach or (None, None), strict=True)),
    }


def _begin_ns(measured: MeasuredTraining) -> int:
    """When the first step began, also if all workers that made it were lost later."""
    first = [row.end_ns - round(row.step_time_s * 1e9) for row in measured.rows[:1]]
    return min([*first, *(outcome.window_begin_ns for outcome in measured.outcomes)])


def _losses(repetition: TrainingRepetition, outcomes: Sequence[Outcome], reported_steps: int) -> dict[str, Any]:
    """The columns of a repetition that loses workers."""
    columns = recovered(
        [outcome.epochs for outcome in outcomes],
        repetition.workers,
        repetition.steps,
        delay=repetition.delay,
        period=repetition.period,
        alike=repetition.own_pace,
    )
    return {**columns, "lost_steps": max(0, reported_steps - columns["counted_steps"])}


def _slowest(times_s: Sequence[float], windows_s: Sequence[float]) -> int:
    """The place of the longest window. Of machines that differ and wait for each other, that of the slowest machine.

    Those have windows of the same length, to within a step.

    Args:
        times_s: step time of each worker. windows_s: length of its window.
    """
    longest = [index for index, window_s in enumerate(windows_s) if window_s >= max(windows_s) - max(times_s)]
    return max(longest, key=lambda index: (times_s[index], windows_s[index]))


def describe(cell: Cell, rep: int) -> Row:
    """The columns of a row that are known before measuring. The others, including run and code, are empty."""
    return cast(Row, {**empty(), **cell.columns(rep)})


def _wire_bytes(measured: Measured, stats: EmulatorStats) -> int:
    """Bytes that left the workers from the first step to the end of their connections, with all headers."""
    if stats.sent_bytes is not None:
        return stats.sent_bytes
    return sum(
        m.counters_after.device["tx_bytes"] - m.counters_before.device["tx_bytes"] for m in measured.finished.values()
    )


def _windows(
    tcp: Sequence[tuple[Mapping[str, int], Mapping[str, int]]], *, watched: bool
) -> dict[str, float | int | None]:
    """What limited the connections, from the counters of each worker at the beginning and at the end.

    Args:
        watched: whether they were looked at in between, when bytes were in flight.
    """
    spent = {key: sum(after.get(key, 0) - before.get(key, 0) for before, after in tcp) for key in TIMES_US}
    busy, waited, queued = spent.values()
    window, in_flight, to_a_peer = (
        max((after.get(key, 0) for _, after in tcp), default=0) for key in ("WindowBytes", "InFlightBytes", "ToAPeer")
    )
    return {
        "window_bytes": window or None,
        "in_flight_bytes": in_flight if window and watched else None,
        "connections_to_a_peer": to_a_peer or None,
        "window_limited_pct": round(100.0 * waited / busy, 1) if busy else None,
        "buffer_limited_pct": round(100.0 * queued / busy, 1) if busy else None,
    }


def _window_change_pct(measured: Measured) -> float | None:
    """The change of TCP's windows while measuring, of the worker with the largest; None without connections."""
    finished = measured.finished.values()
    pairs = [report.outcome.tcp_windows for report in finished if isinstance(report, FinishedJob)]
    changes = [100.0 * end / begin - 100.0 for begin, end in pairs if begin]
    largest = max(changes, key=abs, default=None)
    return None if largest is None else round(largest, 1)


def cpu_wait_pct(measured: Measured, seconds: float) -> float | None:
    """The share of the time that a worker was ready to run but had no processor, in percent; maximum over workers."""
    pairs = [(m.counters_before.cpu_wait_ns, m.counters_after.cpu_wait_ns) for m in measured.finished.values()]
    waits = [after - before for before, after in pairs if before is not None and after is not None]
    return round(max(waits) / 1e9 / seconds * 100, 2) if waits else None


def _blocks_lost_pct(outcomes: Sequence[Outcome]) -> float | None:
    """The share of expected blocks that did not arrive in time, in percent; None without datagrams."""
    expected = sum(o.total.blocks_expected for o in outcomes)
    return 100.0 * sum(o.total.blocks_lost for o in outcomes) / expected if expected else None


def udp_overflows(measured: Measured) -> int:
    """The number of datagrams lost in the workers' own sockets."""
    return sum(m.counters_after.udp_overflows - m.counters_before.udp_overflows for m in measured.finished.values())
