"""One repetition of any kind on any testbed: of a training run, whose workers train and are judged, or of a program.

`probe_network` measures its network before.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from wanbench.harness.emulators.emulator import EmulatorError, EmulatorStats
from wanbench.harness.emulators.probe import TOLERANCES, probe
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.repetition import CommandRepetition, Repetition, TrainingRepetition
from wanbench.harness.rep import command, sources
from wanbench.harness.rep.fidelity import (
    HostMeter,
    Window,
    describe_pauses,
    judge,
    judge_pauses,
    judge_settings,
    pauses_of,
)
from wanbench.harness.results.columns import Row, empty
from wanbench.harness.results.evidence import write_evaluations, write_events, write_messages, write_network
from wanbench.harness.results.row import MeasuredTraining, cpu_wait_pct, measured_row, trained, udp_overflows
from wanbench.harness.testbeds.base import Event, Group, Slot, TimelineRecord, Trained, Training, WorkerDied
from wanbench.harness.testbeds.group import group_of
from wanbench.harness.testbeds.slot import WorkerSlot

SINGLE_PACKETS = (
    "note: the workers' devices have no segmentation offload: the relay moves single packets, about 0.5 Gbit/s per core"
)
_NS = 1e9

SlowTimes = Sequence[Sequence[int | None]]


def measure(repetition: Repetition, slot: Slot, folder: Path, control: Path, report: Mapping[str, Any] | None) -> Row:
    """Run the repetition and return its judged row, with status "ok" or "invalid".

    Args:
        folder: folder for logs, step rows and network values.
        control: folder for rendezvous files, shared with the workers.
        report: the idle probe's report on this network; None without paths.

    Raises:
        RepFailed: a worker died, hung, or reported an error, or the emulator ended; of a program: see `rep.command`.
        HostError: workers or the emulator cannot be started.
    """
    measures: Mapping[type[Repetition], Callable[..., Row]] = {
        TrainingRepetition: _train,
        CommandRepetition: command.measure,  # the plan refuses commands on simulated testbeds
    }
    return measures[type(repetition)](repetition, slot, folder, control, report)


def probe_network(repetition: Repetition, slot: Slot, group: Group | None = None) -> dict[str, Any]:
    """Return the report of a probe on the network of a repetition, and whether the emulator moves segments.

    The host has to be idle. Raises: RepFailed.

    Args:
        group: the workers; default: those that the repetition needs.
    """
    emulated, network = cast(WorkerSlot, slot), repetition.network
    try:
        handles = emulated.prepare(group or group_of(repetition))
        emulated.emulator.apply(network)
        report = probe(network, handles, tolerance=TOLERANCES[emulated.emulator.name]).to_json()
        return report | {"offload": emulated.emulator.stats().offload}
    except (WorkerDied, TimeoutError, EmulatorError) as error:
        emulated.discard()
        raise RepFailed(f"probe: {str(error) or 'a worker did not answer'}") from None


# ---------------------------------------------------------------- of a training run


def _train(
    repetition: TrainingRepetition, slot: Slot, folder: Path, control: Path, report: Mapping[str, Any] | None
) -> Row:
    """As `measure`: the workers train, and what they did is judged."""
    rendezvous = control / f"{repetition.name}-{time.monotonic_ns()}"
    before = sources.sources_before(repetition.inputs)
    with HostMeter() as meter:
        jobs = tuple(replace(job, rendezvous=str(rendezvous)) for job in repetition.jobs)
        try:
            done = slot.train(Training(replace(repetition, jobs=jobs), group_of(repetition), folder, meter.start))
        finally:
            rendezvous.unlink(missing_ok=True)
    ran, void = sources.used(repetition.inputs, before, done.finished.values())
    row = _row(repetition, done, void, meter, folder, report)
    row["image"], row["sources"] = done.image, ran
    return row


def _row(
    repetition: TrainingRepetition,
    done: Trained,
    void: Sequence[str],
    meter: HostMeter,
    folder: Path,
    report: Mapping[str, Any] | None,
) -> Row:
    """Write what the workers reported, judge it, and return the row. `void`: reasons why it is invalid anyway."""
    measured = MeasuredTraining(done.finished, done.tcp, done.steps.first_rank)
    columns = trained(repetition, measured, reported_steps=len(done.steps))
    done.steps.write(folder / "steps.parquet")
    write_messages(folder, measured.outcomes[0].messages)
    write_evaluations(folder, measured.evaluations)
    if done.stats is None:  # everything was simulated, so nothing is judged
        write_network(folder, repetition.network, measured, report)
        judged = {"status": "invalid", "reason": "; ".join(void)} if void else {"status": "ok"}
        row = cast(Row, {**empty(), **repetition.columns, **columns, **judged})
    else:
        host, verdict = _judged(repetition, measured, done, done.stats, meter, report)
        write_network(folder, repetition.network, measured, report, done.stats, host)
        row = measured_row(repetition, columns, measured, done.stats, host, report, [*void, *verdict])
    if done.timeline is not None:
        finished = [measured.finished.get(rank) for rank in range(repetition.workers)]
        slowed_ns = [() if message is None else message.outcome.slowed_ns for message in finished]
        events = straggler_events(repetition, slowed_ns, done.timeline)
        if repetition.at_random:  # drawn for a longer time than training takes
            events = [event for event in events if event.actual_s is not None]
        row["events"] = write_events(folder, [asdict(event) for event in events])
    return row


def _judged(
    repetition: TrainingRepetition,
    measured: MeasuredTraining,
    done: Trained,
    stats: EmulatorStats,
    meter: HostMeter,
    report: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], list[str]]:
    """The load of this host during the repetition, and the reasons why it must not be published."""
    stopped = pauses_of(measured.finished, stats, meter.lost)
    windows = _windows(repetition, measured)
    host = meter.load() | {
        "worker_cpu_wait_pct": cpu_wait_pct(measured, stats.seconds),
        "udp_overflows": udp_overflows(measured),
        **describe_pauses(stopped, windows[0]),
    }
    return host, [
        *judge_settings(done.changed, repetition.sites, stats),
        *judge(repetition, stats, host, report),
        *judge_pauses(stopped, windows),
    ]


def _windows(repetition: TrainingRepetition, measured: MeasuredTraining) -> list[Window]:
    """The window, and the whole training if the time to a target is measured.

    Workers that do not wait for each other can be late in the window because of a pause before it.
    """
    begin_ns = min(outcome.window_begin_ns for outcome in measured.outcomes)
    end_ns = max(outcome.window_end_ns for outcome in measured.outcomes)
    windows = [Window(begin_ns, end_ns, since_ns=0)]
    if repetition.target is not None and measured.rows:
        first_ns = min(row.end_ns - round(row.step_time_s * 1e9) for row in measured.rows)
        windows.append(Window(first_ns, max(row.end_ns for row in measured.rows), since_ns=0))
    return windows


def straggler_events(
    repetition: TrainingRepetition, slowed_ns: Sequence[SlowTimes], record: TimelineRecord
) -> list[Event]:
    """The events of a timeline, with the actual times at which workers became slow and normal again.

    That is always at the start of a step. An event has the time of the last worker that it names; None if a worker
    never changed.

    Args:
        slowed_ns: `Slowdowns.turned_ns` of each rank, for its entries in `Job.slow`; empty if it was lost.
    """
    actual: dict[tuple[str, float], list[int | None]] = defaultdict(list)
    for what, due_ns, at_ns in _transitions(repetition, slowed_ns, record.steps):
        actual[what, due_ns / _NS] += at_ns
    return [_corrected(event, actual.get((event.what, event.asked_s)), record.begun_ns) for event in record.events]


def _corrected(event: Event, actual_ns: Sequence[int | None] | None, begun_ns: int) -> Event:
    if actual_ns is None:
        return event
    changed = [at_ns for at_ns in actual_ns if at_ns is not None]
    if len(changed) < len(actual_ns):
        return replace(event, actual_s=None, at_ns=None, with_step=True)
    return replace(event, actual_s=(max(changed) - begun_ns) / _NS, at_ns=max(changed), with_step=True)


def _transitions(
    repetition: TrainingRepetition, slowed_ns: Sequence[SlowTimes], steps: Mapping[int, int]
) -> Iterator[tuple[str, int, list[int | None]]]:
    """Yield the text of each transition, when it was due, and when each worker made it."""
    assert repetition.schedule is not None, "it has a timeline"
    remaining = [iter(times) for times in slowed_ns]
    for number, change in enumerate(repetition.schedule.changes):
        if change.kind != "slow":
            continue
        spans = len(list(change.spans()))
        ranks = repetition.schedule.ranks(number)
        times_of = [list(chain.from_iterable(islice(remaining[rank], spans))) for rank in ranks]
        alone = repetition.schedule.alone(number, steps)
        texts = [alone.what(due_ns)[0] for due_ns in alone.times[:2]]  # begins and ends alternate
        for index, due_ns in enumerate(alone.times):
            yield texts[index % 2], due_ns, [times[index] if index < len(times) else None for times in times_of]
