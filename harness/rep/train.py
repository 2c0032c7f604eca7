"""One repetition of a training run: the workers train, and what they did is judged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from wanbench.harness.emulators.emulator import EmulatorStats
from wanbench.harness.plan.repetition import TrainingRepetition
from wanbench.harness.rep import pauses, sources
from wanbench.harness.rep.fidelity import HostMeter, judge, judge_settings
from wanbench.harness.rep.stragglers import Stragglers
from wanbench.harness.results.columns import Row, empty
from wanbench.harness.results.evidence import write_evaluations, write_events, write_messages, write_network
from wanbench.harness.results.row import Measured, cpu_wait_pct, measured_row, trained, udp_overflows
from wanbench.harness.testbeds.base import Slot, Trained, Training
from wanbench.harness.testbeds.group import group_of


def measure(
    repetition: TrainingRepetition, slot: Slot, folder: Path, control: Path, report: Mapping[str, Any] | None
) -> Row:
    """Run the repetition and return its judged row, with status "ok" or "invalid".

    Args:
        folder: folder for logs, step rows and network values.
        control: folder for rendezvous files, shared with the workers.
        report: the idle probe's report on this network; None without paths.

    Raises:
        RepFailed: a worker died, hung, or reported an error, or the emulator ended.
        HostError: workers or the emulator cannot be started.
    """
    rendezvous = control / f"{repetition.name}-{time.monotonic_ns()}"
    before = sources.known_before(repetition.inputs)
    with HostMeter() as meter:
        training = Training(
            jobs=[replace(job, rendezvous=str(rendezvous)) for job in repetition.jobs],
            group=group_of(repetition),
            network=repetition.network,
            schedule=repetition.schedule,
            patience_s=repetition.patience_s,
            folder=folder,
            warm=meter.start,
            tcp_ramp=repetition.tcp_ramp,
        )
        try:
            done = slot.train(training)
        finally:
            rendezvous.unlink(missing_ok=True)
    measured = Measured(done.steps.first_rank, done.finished, done.tcp)
    columns = trained(repetition, measured, reported_steps=len(done.steps))
    ran, void = sources.used(repetition.inputs, before, done.finished.values())
    done.steps.write(folder / "steps.parquet")
    write_messages(folder, measured.lead["messages"])
    write_evaluations(folder, measured.lead["evaluations"])
    if done.stats is None:  # everything was simulated, so nothing is judged
        write_network(folder, repetition.network, measured, report)
        judged = {"status": "invalid", "reason": "; ".join(void)} if void else {"status": "ok"}
        row = cast(Row, {**empty(), **repetition.columns, **columns, **judged})
    else:
        host, verdict = _judged(repetition, measured, done, done.stats, meter, report)
        write_network(folder, repetition.network, measured, report, done.stats, host)
        row = measured_row(repetition, columns, measured, done.stats, host, report, [*void, *verdict])
    if done.timeline is not None:
        events = _stragglers(repetition, measured).events(done.timeline)
        if repetition.at_random:  # drawn for a longer time than training takes
            events = [event for event in events if event.actual_s is not None]
        row["events"] = write_events(folder, [event.to_json() for event in events])
    row["image"], row["sources"] = done.image, ran
    return row


def _judged(
    repetition: TrainingRepetition,
    measured: Measured,
    done: Trained,
    stats: EmulatorStats,
    meter: HostMeter,
    report: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], list[str]]:
    """The load of this host during the repetition, and the reasons why it must not be published."""
    stopped = pauses.gathered(measured.finished, stats, meter.lost)
    windows = _windows(repetition, measured)
    host = meter.stop() | {
        "worker_cpu_wait_pct": cpu_wait_pct(measured, stats.seconds),
        "udp_overflows": udp_overflows(measured),
        **pauses.described(stopped, windows[0]),
    }
    verdict = judge_settings(done.changed, repetition.sites, stats)
    return host, [*verdict, *judge(repetition, stats, host, report), *pauses.judge(stopped, windows)]


def _windows(repetition: TrainingRepetition, measured: Measured) -> list[pauses.Window]:
    """The window, and the whole training if the time to a target is measured.

    Workers that do not wait for each other can be late in the window because of a pause before it.
    """
    outcomes = [message["outcome"] for message in measured.finished.values()]
    begin_ns, end_ns = min(o["window_begin_ns"] for o in outcomes), max(o["window_end_ns"] for o in outcomes)
    windows = [pauses.Window(begin_ns, end_ns, since_ns=0)]
    if repetition.target is not None and measured.rows:
        first_ns = min(row["end_ns"] - round(row["step_time_s"] * 1e9) for row in measured.rows)
        windows.append(pauses.Window(first_ns, max(row["end_ns"] for row in measured.rows), since_ns=0))
    return windows


def _stragglers(repetition: TrainingRepetition, measured: Measured) -> Stragglers:
    """The times at which workers were slow, as they reported them."""
    slowed_ns = [
        measured.finished[rank]["outcome"]["slowed_ns"] if rank in measured.finished else ()
        for rank in range(repetition.workers)
    ]
    return Stragglers(repetition.changes, repetition.network, repetition.profile, slowed_ns)
