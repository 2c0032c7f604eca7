"""One repetition of a cell whose workload is a command: the user's program runs in every worker's network and is timed.

The step time is (end - begin) / steps of the slowest process, from the end of its last warm-up step to the end of its
last step. If no process reports steps, the whole program is timed. A process that a timeline starts again continues to
report steps: its step time includes the time that it was down, and repeated steps count again.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.cell import CommandCell
from wanbench.harness.rep import launcher, pauses, sources
from wanbench.harness.rep.fidelity import HostMeter, judge, judge_settings, share_of_programs
from wanbench.harness.rep.group import group_environments
from wanbench.harness.rep.outputs import log, to_files, to_files_and_terminal
from wanbench.harness.rep.program import Ended, Program, caught_signals, play_timeline, start, watch
from wanbench.harness.rep.train import (
    EVENTS,
    group_of,
    network_of,
    schedule_of,
    write_network,
)
from wanbench.harness.results.columns import Row
from wanbench.harness.results.disk import write_json
from wanbench.harness.results.row import Measured, measured_row
from wanbench.harness.results.steps import Steps
from wanbench.harness.spec import command
from wanbench.harness.testbeds import contained
from wanbench.harness.testbeds.base import EmulatedSlot, Group, WorkerDied
from wanbench.harness.testbeds.hosts import host_names
from wanbench.harness.testbeds.training import set_tcp
from wanbench.workloads.loop.stepping import forget, read_idle_s, read_operations, read_steps, reporter

_LOG_TAIL_LINES = 12
_NS = 1e9

ReportedSteps = Mapping[int, tuple[str, list[int]]]


@dataclass(frozen=True)
class Attended:
    """How to run a program that its user watches: it gets the user's signals, and can fail.

    Attributes:
        say: prints one line for the user.
        group: its workers.
        fit: adds settings to the program that no spec has.
        timeout_s: it is killed after this time; None for never.
        launches: whether it runs once, and starts processes on other workers itself.
    """

    say: Callable[[str], None]
    group: Group
    fit: Callable[[Program], Program]
    timeout_s: float | None = None
    launches: bool = False


def measure(
    cell: CommandCell, rep: int, slot: EmulatedSlot, folder: Path, control: Path, report: Mapping[str, Any] | None
) -> Row:
    """Run the program and return the judged row, with status "ok" or "invalid". Arguments as in `rep.train.measure`.

    Raises:
        RepFailed: a process failed or could not be started, the time limit was reached, a worker or the emulator ended,
            or the requested steps were not reported.
        HostError: workers or the emulator cannot be started.
    """
    try:
        return run(cell, rep, slot, folder, control, report)[0]
    except (WorkerDied, TimeoutError, EmulatorError) as error:
        slot.discard()
        raise RepFailed(str(error)) from None
    except RepFailed:
        slot.discard()
        raise


def run(
    cell: CommandCell,
    rep: int,
    slot: EmulatedSlot,
    folder: Path,
    control: Path,
    report: Mapping[str, Any] | None,
    attended: Attended | None = None,
) -> tuple[Row, Ended]:
    """Run the program as `measure` does. Return the row, and how the processes ended.

    If an attended program fails, its row has the status "failed".

    Raises:
        WorkerDied, TimeoutError, EmulatorError: a worker or the emulator ended, or does not answer.
    """
    network = network_of(cell)
    stem = control / f"{cell.key}-{rep}-{time.monotonic_ns()}"
    door = Path(f"{stem}-door")
    program, before = program_of(cell, rep, stem), sources.known_before(cell)
    if attended is not None:
        program = attended.fit(program)
    try:
        if attended is not None and attended.launches:
            program = _with_launcher(program, Path(f"{stem}-launcher"))
        for worker in range(program.workers) if program.temporary is not None else ():
            program.temporary_of(worker).mkdir(parents=True)
        with HostMeter() as meter:
            ended = _execute(cell, rep, program, slot, folder, door, meter, attended)
        stats = slot.emulator.stats()
        limit_s, key = (cell.timeout_s, "workload.timeout") if attended is None else (attended.timeout_s, "--timeout")
        failure = _failure(ended, folder, f"{limit_s or 0:g} s ({key})")
        if failure is not None and attended is None:
            raise failure
        reported = {rank: (source, read_steps(path)) for rank, path, source in _reported_steps(program)}
        idle = [read_idle_s(path, cell.warmup) for _, path, _ in _reported_steps(program)]
        ended.idle_s = statistics.median(known) if (known := [each for each in idle if each is not None]) else None
        begun = [read_operations(path) for _, path, _ in _reported_steps(program)]
        if attended is not None and any(len(ends) <= cell.warmup for _, ends in reported.values()):
            reported = {}  # too short a program to be timed by steps
        timed = step_time(cell, reported, ended.lasted)
        counted = [each for each in begun if each is not None]
        timed["messages_sent"] = sum(counted) if reported and len(counted) == len(begun) else None
    finally:
        door.unlink(missing_ok=True)
        for made in filter(None, (program.temporary, program.launcher)):
            shutil.rmtree(made, ignore_errors=True)
        for rank in program.ranks():
            forget(program.steps_file(rank))
        for worker in range(program.workers):
            program.imports_file(worker).unlink(missing_ok=True)
    measured = Measured([], ended.finished, ended.tcp)
    found = pauses.gathered(ended.finished, stats, meter.lost)
    window = window_of(cell, reported, ended.lasted, meter.begin_ns)
    host = meter.stop() | pauses.described(found, window)
    host |= share_of_programs(host, [message["processor"] for message in ended.finished.values()], stats)
    ran, void = sources.used(cell, before, ended.finished.values())
    changed = {worker: message["changed"] for worker, message in ended.finished.items()}
    other_network = judge_settings(changed, cell.placement, stats)
    if other_network:
        slot.discard()
    verdict = [*void, *other_network, *judge(cell, network, stats, host, report, timed["step_time_s"])]
    verdict += pauses.judge(found, [window])
    steps = Steps()
    steps.extend(_step_rows(reported))
    steps.write(folder / "steps.parquet")
    write_network(folder, network, measured, report, stats, host)
    row = measured_row(cell, rep, timed, measured, stats, host, report, verdict)
    row["image"], row["sources"] = slot.image, ran
    if failure is not None:
        row["status"], row["reason"] = "failed", str(failure)
    if cell.changes:
        row["events"] = ended.events
        write_json(folder / EVENTS, ended.events)
    return row, ended


def _execute(
    cell: CommandCell,
    rep: int,
    program: Program,
    slot: EmulatedSlot,
    folder: Path,
    door: Path,
    meter: HostMeter,
    attended: Attended | None,
) -> Ended:
    """Prepare the workers and run the program to its end. Raises: as `run`."""
    group = group_of(cell) if attended is None else attended.group
    handles = slot.prepare(group)
    ended = Ended(tcp=set_tcp(handles, dict(group.tcp)))
    slot.emulator.apply(network_of(cell), seed=cell.seed + rep)
    slot.emulator.stats(reset=True)
    meter.start()
    say = attended.say if attended is not None else lambda line: None
    outputs = to_files_and_terminal if attended is not None else to_files
    limit_s = cell.timeout_s if attended is None else attended.timeout_s
    signals: AbstractContextManager[list[int]] = caught_signals() if attended is not None else nullcontext([])
    with (
        signals as received,
        play_timeline(program.schedule, slot, handles, ended, say) as begin,
        outputs(program.sites, program.processes, folder) as ends,
    ):
        start(program, handles, door, ends)
        begin()
        watch(program, slot, handles, ended, received, limit_s or float("inf"))
    return ended


def _with_launcher(program: Program, folder: Path) -> Program:
    variables = launcher.prepare(folder, program.hosts, program.processes, contained=program.contained)
    return replace(program, launcher=folder, environment={**variables, **program.environment})


def program_of(cell: CommandCell, rep: int, stem: Path) -> Program:
    """Return the program of a cell. `stem` is the beginning of the paths of files that its processes share."""
    return Program(
        argv=cell.command,
        sites=cell.placement,
        processes=cell.processes,
        cwd=cell.folder.resolve(),
        contained=contained(cell.testbed),
        schedule=schedule_of(cell),
        environment={**command.axis_environment(cell.axes), **cell.environment, "WANBENCH_SEED": str(cell.seed + rep)},
        group=group_environments(cell),
        steps=Path(f"{stem}-steps"),
        hook=cell.hook,
        hosts=host_names(cell.placement),
        rendezvous=cell.rendezvous,
        # A short name, because paths of Unix sockets in it have at most 107 bytes.
        temporary=None if contained(cell.testbed) else stem.with_name(f"{time.monotonic_ns() % 10**9:x}"),
    )


def step_time(cell: CommandCell, reported: ReportedSteps, lasted: Mapping[int, float]) -> dict[str, Any]:
    """Return the columns of the step time, of the slowest process.

    Args:
        reported: for each rank that reported steps, their source and their ends in ns.
        lasted: duration of each process in seconds.

    Raises:
        RepFailed: the hook was requested and saw no step, or no step is left after the warm-up.
    """
    if not reported:
        if cell.hook:
            raise RepFailed(
                "workload.step_times: no optimizer step of torch was seen; call wanbench.step() at the end of each "
                "step, or leave step_times out to time the whole program"
            )
        return {
            "steps": None,
            "steps_total": None,
            "step_time_s": max(lasted.values(), default=None),
            "step_times": "total",
        }
    warmup = cell.warmup
    counted = _counted(reported)
    for rank, ends in counted.items():
        if len(ends) <= warmup:
            later = ", or kill it later" if any(change.kind == "kill" for change in cell.changes) else ""
            raise RepFailed(
                f"workload.warmup: rank {rank} reported {len(ends)} steps, and the first {warmup} are warm-up; "
                f"let it run longer{later}"
            )
    windows = [((ends[-1] - ends[warmup - 1]) / _NS, len(ends) - warmup) for ends in counted.values()]
    seconds, steps = max(windows, key=lambda window: window[0] / window[1])
    return {
        "steps": steps,
        "steps_total": steps + warmup,
        "step_time_s": seconds / steps,
        "step_times": _source(reported),
    }


def window_of(cell: CommandCell, reported: ReportedSteps, lasted: Mapping[int, float], begin_ns: int) -> pauses.Window:
    """Return the measured steps of all processes, or the whole program if they reported none.

    Args:
        begin_ns: when the program began.
    """
    counted = _counted(reported)
    if not counted:
        return pauses.Window(begin_ns, begin_ns + round(max(lasted.values(), default=0.0) * _NS), begin_ns)
    first_ns = min(ends[cell.warmup - 1] for ends in counted.values())
    return pauses.Window(first_ns, max(ends[-1] for ends in counted.values()), first_ns)


def _source(reported: ReportedSteps) -> str:
    return "step" if any(source == "step" for source, _ in reported.values()) else "hook"


def _counted(reported: ReportedSteps) -> dict[int, list[int]]:
    """Return the ends of the steps of the processes that count: those that call `wanbench.step`, if any does."""
    return {rank: ends for rank, (source, ends) in reported.items() if source == _source(reported)}


def _reported_steps(program: Program) -> Iterator[tuple[int, Path, str]]:
    for rank in program.ranks():
        path = program.steps_file(rank)
        if (source := reporter(path)) is not None:
            yield rank, path, source


def _step_rows(reported: ReportedSteps) -> Iterator[dict[str, Any]]:
    """Yield one row per rank and step. The duration of the first step is not known."""
    for rank, (_, ends) in reported.items():
        durations = [None, *((after - before) / _NS for before, after in pairwise(ends))]
        for step, (end, seconds) in enumerate(zip(ends, durations, strict=True)):
            yield {"rank": rank, "step": step, "end_ns": end, "step_time_s": seconds}


def _failure(ended: Ended, folder: Path, limit: str) -> RepFailed | None:
    """Return the failure, with the last lines of the process that failed. `limit` says how long it may take."""
    if ended.failed is not None:
        how = f"failed with status {ended.code}" if ended.code < 128 else f"was killed by signal {ended.code - 128}"
        return RepFailed(f"rank {ended.failed} {how}", _last_lines(folder, ended.failed))
    if ended.late:
        ranks = f"rank{'s' * (len(ended.late) > 1)} {', '.join(map(str, ended.late))}"
        return RepFailed(
            f"hung: {ranks} had not ended after {limit}",
            _last_lines(folder, ended.late[0]),
        )
    return RepFailed(f"ended by signal {ended.code - 128}") if ended.code else None


def _last_lines(folder: Path, rank: int) -> tuple[str, ...]:
    path = log(folder, rank, "err")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return tuple(f"rank-{rank}: {line}" for line in lines[-_LOG_TAIL_LINES:])
