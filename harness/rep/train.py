"""One repetition of a cell that trains: the jobs of the workers, and the judged row of results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from wanbench.harness.emulators.base import EmulatorStats
from wanbench.harness.emulators.plan import PAYLOAD_SHARE, EmulatedNetwork, build
from wanbench.harness.plan.cell import Cell, CommandCell, TrainingCell
from wanbench.harness.plan.law import all_reduce_time, predict
from wanbench.harness.plan.load import GUESSED_STEP_S, WARM_ROUNDS, warm_in_flight
from wanbench.harness.plan.losses import changes_of, deadline_s
from wanbench.harness.plan.pacing import paces
from wanbench.harness.rep import pauses, sources
from wanbench.harness.rep.fidelity import HostMeter, judge, judge_settings
from wanbench.harness.rep.stragglers import Stragglers, slowdowns
from wanbench.harness.results.columns import Row
from wanbench.harness.results.disk import write_json
from wanbench.harness.results.evidence import EVALUATIONS
from wanbench.harness.results.row import Measured, cpu_wait_pct, describe, measured_row, trained, udp_overflows
from wanbench.harness.testbeds import contained
from wanbench.harness.testbeds.base import Event, FolderMount, Group, Slot, Training
from wanbench.harness.testbeds.docker.mounts import current
from wanbench.harness.testbeds.hosts import host_names
from wanbench.harness.testbeds.virtual.sender import MAX_TIMEOUT_NS
from wanbench.harness.timeline.changes import has_endless_outage, planned_outage_s
from wanbench.harness.timeline.schedule import Schedule
from wanbench.workloads.loop.job import Job

PATIENCE_S = 60.0  # allowed silence of workers on a busy host, in addition to the predicted times
EVENTS = "events.json"
_PATIENCE_STEPS = 10


def network_of(cell: Cell) -> EmulatedNetwork:
    """Return the cell's network, ready for an emulator."""
    return build(cell.profile, cell.placement)


def schedule_of(cell: Cell, rep: int = 0) -> Schedule | None:
    """Return the schedule of the cell's timeline in a repetition; None if nothing changes."""
    changes = changes_of(cell, rep)
    lost = isinstance(cell, TrainingCell) and cell.loses_workers
    return Schedule(changes, network_of(cell), cell.profile, cell.rate_scale) if changes or lost else None


def group_of(cell: Cell, mounts: Sequence[FolderMount] | None = None) -> Group:
    """Return the workers that the cell needs. `mounts` replaces the folders that containers of the cell see."""
    if mounts is None:
        mounts = [current(folder) for folder in _folders(cell)] if contained(cell.testbed) else ()
    around = cell.containers
    return Group(
        workers=cell.workers,
        sites=cell.placement,
        tcp=tuple(sorted(tcp_of(cell).items())),
        congestion=cell.tcp.congestion,
        image=around.image,
        memory_bytes=None if around.memory is None else around.memory.bytes,
        cpuset=(around.cpuset,) if isinstance(around.cpuset, str) else tuple(around.cpuset or ()),
        mounts=tuple(mounts),
        hosts=host_names(cell.placement) if isinstance(cell, CommandCell) else (),
    )


def _folders(cell: Cell) -> list[Path]:
    """Return the folders of this host that workers read: that of a program, or of a data set."""
    if isinstance(cell, CommandCell):
        return [cell.folder.resolve()]
    data = cell.task.data if isinstance(cell, TrainingCell) else None
    return [] if data is None else [Path(data)]


def jobs(cell: TrainingCell, rep: int, rendezvous: str) -> list[Job]:
    """Return the job of every rank."""
    algorithm = cell.algorithm()
    slow, told_steps = _slow(cell), _told_steps(cell)
    workload = cell.task.plain()
    workloads = [{**workload, "step_time": str(time)} for time in cell.step_times] or [workload] * cell.workers
    shared: dict[str, Any] = {  # built once instead of for each of a thousand ranks
        "world_size": cell.workers,
        "seed": cell.seed + rep,
        "train": cell.train.plain(),
        "kind": cell.kind,
        "params": cell.params,
        "collective": cell.comm.collective,
        "channels": cell.channels,
        "bucket_bytes": cell.comm.buckets.bytes,
        "steps": cell.steps,
        "window_begin": cell.window_begin,
        "window_steps": cell.window,
        "eval_every": cell.train.eval_every,
        # Datagrams have no window to open, and TCP is very slow on a path with high loss.
        "warm_rounds": 0 if cell.workers == 1 or algorithm.datagrams else WARM_ROUNDS,
        "warm_in_flight": warm_in_flight(cell),
        "warm_numel": max(cell.workers, cell.message_bytes // 4),
        "warm_spacing_s": all_reduce_time(cell.law_inputs, cell.law_inputs.message_bytes)[1],
        # The controller reports a hang before the workers do.
        "timeout_s": 2 * patience_s(cell) + _ahead_s(cell),
        "rendezvous": rendezvous,
        "deadline_s": deadline_s(cell),
        "one_shot_bytes": 0 if algorithm.datagrams else cell.law_inputs.one_shot_bytes,
        "datagram_bytes_per_s": _datagram_rate(cell) if algorithm.datagrams else None,
    }
    by_site = cell.comm.collective == "hierarchical"
    # A change can raise a rate, and connections keep their pace.
    steady = all(change.kind in ("kill", "slow") for change in cell.changes)
    paced = cell.comm.collective != "gloo" and cell.testbed != "virtual" and steady
    network = network_of(cell) if paced else None
    shared["site_of"] = network_of(cell).site_of
    shared["ring"] = ring = cell.ring if cell.comm.collective == "ring" else ()
    return [
        Job(
            rank=rank,
            workload=workloads[rank],
            slow=slow[rank],
            told_steps=told_steps[min(rank, 1)],
            paces=() if network is None else paces(network, rank, leaders=by_site, ring=ring),
            **shared,
        )
        for rank in range(cell.workers)
    ]


def _ahead_s(cell: TrainingCell) -> float:
    """How long the fastest worker waits at the end for the slowest, if no step waits."""
    if not cell.step_times or not cell.algorithm().promises.goes_on:
        return 0.0
    return cell.steps * (max(cell.step_times).seconds - min(cell.step_times).seconds)


def _datagram_rate(cell: TrainingCell) -> float | None:
    """Bytes per second with headers; None is unlimited."""
    payload_rate = cell.law_inputs.rate_bytes_per_s
    return None if payload_rate is None else payload_rate / PAYLOAD_SHARE


def _slow(cell: Cell) -> Sequence[Sequence[dict[str, Any]]]:
    """Return the slowdowns of each rank."""
    return slowdowns(cell.changes, network_of(cell), cell.profile) if cell.changes else [()] * cell.workers


def _told_steps(cell: TrainingCell) -> tuple[Sequence[int], Sequence[int]]:
    """Return the steps whose end is reported at once: by rank 0, and by the other ranks."""
    schedule = schedule_of(cell)
    if schedule is None:
        last = (cell.steps,) if cell.emulator is not None and network_of(cell).loses else ()
        return last, last
    return (*schedule.awaited_steps, cell.steps), (cell.steps,)


def training_of(cell: TrainingCell, rep: int, folder: Path, rendezvous: str, warm: Callable[[], None]) -> Training:
    """Return the training run of a cell for a slot. Arguments are those of `Training` and `Job`."""
    return Training(
        jobs=jobs(cell, rep, rendezvous),
        group=group_of(cell),
        network=network_of(cell),
        schedule=schedule_of(cell, rep),
        patience_s=patience_s(cell),
        folder=folder,
        warm=warm,
        tcp_ramp=cell.virtual.tcp_ramp,
    )


def measure(
    cell: TrainingCell, rep: int, slot: Slot, folder: Path, control: Path, report: Mapping[str, Any] | None
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
    rendezvous = control / f"{cell.key}-{rep}-{time.monotonic_ns()}"
    known = sources.known_before(cell)
    with HostMeter() as meter:
        try:
            done = slot.train(training_of(cell, rep, folder, str(rendezvous), meter.start))
        finally:
            rendezvous.unlink(missing_ok=True)
    measured = Measured(done.steps.first_rank, done.finished, done.tcp)
    columns = trained(cell, measured, reported_steps=len(done.steps))
    ran, void = sources.used(cell, known, done.finished.values())
    done.steps.write(folder / "steps.parquet")
    write_messages(folder / "messages.parquet", measured.lead["messages"])
    write_evaluations(folder / EVALUATIONS, measured.lead["evaluations"])
    if done.stats is None:  # everything was simulated, so nothing is judged
        write_network(folder, network_of(cell), measured, report)
        judged = {"status": "invalid", "reason": "; ".join(void)} if void else {"status": "ok"}
        row = cast(Row, {**describe(cell, rep), **columns, **judged})
    else:
        host = _host(meter, measured, done.stats)
        found = pauses.gathered(measured.finished, done.stats, meter.lost)
        windows = windows_of(cell, measured)
        host |= pauses.described(found, windows[0])
        verdict = [*void, *judge_settings(done.changed, cell.placement, done.stats)]
        verdict += [*judge(cell, network_of(cell), done.stats, host, report), *pauses.judge(found, windows)]
        write_network(folder, network_of(cell), measured, report, done.stats, host)
        row = measured_row(cell, rep, columns, measured, done.stats, host, report, verdict)
    if done.timeline is not None:
        events = stragglers_of(cell, measured).events(done.timeline)
        if cell.failures.mtbf != "none":  # drawn for a longer time than training takes
            events = [event for event in events if event.actual_s is not None]
        row["events"] = write_events(folder, events)
    row["image"], row["sources"] = done.image, ran
    return row


def _host(meter: HostMeter, measured: Measured, stats: EmulatorStats) -> dict[str, Any]:
    """Return the load of this host during the repetition."""
    return meter.stop() | {
        "worker_cpu_wait_pct": cpu_wait_pct(measured, stats.seconds),
        "udp_overflows": udp_overflows(measured),
    }


def windows_of(cell: TrainingCell, measured: Measured) -> list[pauses.Window]:
    """Return the window, and the whole training if the time to a target is measured.

    Workers that do not wait for each other can be late in the window because of a pause before it.
    """
    outcomes = [message["outcome"] for message in measured.finished.values()]
    begin_ns, end_ns = min(o["window_begin_ns"] for o in outcomes), max(o["window_end_ns"] for o in outcomes)
    windows = [pauses.Window(begin_ns, end_ns, since_ns=0)]
    if cell.train.target is not None and measured.rows:
        first_ns = min(row["end_ns"] - round(row["step_time_s"] * 1e9) for row in measured.rows)
        windows.append(pauses.Window(first_ns, max(row["end_ns"] for row in measured.rows), since_ns=0))
    return windows


def stragglers_of(cell: Cell, measured: Measured) -> Stragglers:
    """Return the times at which workers were slow, as they reported them."""
    finished = measured.finished
    slowed_ns = [finished[rank]["outcome"]["slowed_ns"] if rank in finished else () for rank in range(cell.workers)]
    return Stragglers(cell.changes, network_of(cell), cell.profile, slowed_ns)


def patience_s(cell: TrainingCell) -> float:
    """The allowed silence of a cell's workers before they count as hung. They report about every second."""
    law = predict(cell.law_inputs)
    step_time_s = GUESSED_STEP_S if cell.workload.step_time_s is None else law.step_time_s
    slowest: float = max([1.0, *(change.value for change in cell.changes if change.kind == "slow")])
    # TCP doubles its timeout with each retransmission, so a stall can be twice as long as the outage.
    outage_s = 2 * planned_outage_s(cell.changes)
    if has_endless_outage(cell.changes):  # it ends with training
        outage_s += min(MAX_TIMEOUT_NS / 1e9, 2 * cell.steps * step_time_s)
    return PATIENCE_S + outage_s + _PATIENCE_STEPS * (slowest * step_time_s + law.all_reduce_s)


def tcp_of(cell: Cell) -> Mapping[str, Any]:
    """Return the TCP settings of the workers' network namespaces; empty for a single worker, which has no TCP."""
    if cell.workers == 1:
        return {}
    return {**cell.tcp.model_dump(), "buffer_bytes": network_of(cell).socket_buffer_bytes}


def write_network(
    folder: Path,
    network: EmulatedNetwork,
    measured: Measured,
    report: Mapping[str, Any] | None,
    stats: EmulatorStats | None = None,
    host: Mapping[str, Any] | None = None,
) -> None:
    """Write the configured and probed values of the network, and its counters if it was emulated."""
    values = {"configured": network.to_json(), "probe": report, "tcp": measured.tcp}
    if stats is not None:
        counters = {str(rank): message["counters_after"] for rank, message in measured.finished.items()}
        values |= {"emulator": stats.to_json(), "workers": counters, "host": host}
    write_json(folder / "network.json", values)


def write_events(folder: Path, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Write the changes of the timeline, and return them as plain data for the row."""
    data = [event.to_json() for event in events]
    write_json(folder / EVENTS, data)
    return data


def write_evaluations(path: Path, evaluations: Sequence[Mapping[str, Any]]) -> None:
    """Write the evaluations of rank 0 as Parquet, one row per evaluation. Write no file if there are none."""
    import pandas as pd

    if evaluations:
        pd.DataFrame(evaluations).to_parquet(path, index=False)


def write_messages(path: Path, messages: Sequence[Mapping[str, Any]]) -> None:
    """Write the messages of rank 0 as Parquet, one row per message. Write no file if there are none."""
    import pandas as pd

    if messages:
        frame = pd.DataFrame(messages)
        frame.astype({"ended_ns": "Int64", "collected_ns": "Int64"}).to_parquet(path, index=False)
