"""One repetition of a cell whose workload is a command: the user's program in every worker's network, timed.

A step time is (end - begin) / steps of the slowest process, between the end of the last step of the warm-up and the end
of the last step there is. Where nobody tells steps, the whole program is what is timed. A process that a timeline
starts again tells its steps on: how long it was gone is in its step time, and steps that it makes again count again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.base import EmulatorError
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.cell import CommandCell
from wanbench.harness.rep.fidelity import HostMeter, judge
from wanbench.harness.rep.outputs import copied, kept, log
from wanbench.harness.rep.program import Ended, Program, caught, play_timeline, start, watch
from wanbench.harness.rep.train import (
    EVENTS,
    group_of,
    network_of,
    schedule_of,
    write_network,
)
from wanbench.harness.results.columns import Row
from wanbench.harness.results.row import Measured, measured_row
from wanbench.harness.results.steps import Steps
from wanbench.harness.results.store import write_json
from wanbench.harness.spec import command
from wanbench.harness.testbeds import contained
from wanbench.harness.testbeds.base import EmulatedSlot, Group, WorkerDied
from wanbench.harness.testbeds.training import set_tcp
from wanbench.workloads.loop.stepping import forget, read_steps, reporter

_LOG_TAIL_LINES = 12
_NS = 1e9

ReportedSteps = Mapping[int, tuple[str, list[int]]]


@dataclass(frozen=True)
class Attended:
    """How a program is run whose user looks on: signals are passed on to it, it may take its time, and fail.

    Attributes:
        say: one line for the user.
        group: what its workers are. fit: puts into the program what no spec says.
    """

    say: Callable[[str], None]
    group: Group
    fit: Callable[[Program], Program]


def measure(
    cell: CommandCell, rep: int, slot: EmulatedSlot, folder: Path, control: Path, report: Mapping[str, Any] | None
) -> Row:
    """Run the program and return the row, judged: status "ok" or "invalid"; arguments as of `rep.train.measure`.

    Raises:
        RepFailed: a process failed or could not be started, time was up, a worker or the emulator ended, or steps that
            were asked for were not reported.
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
    """As `measure`, with how the processes ended. The row of an attended program that fails says so.

    Raises:
        WorkerDied, TimeoutError, EmulatorError: one of them ended, or does not answer.
    """
    network, meter = network_of(cell), HostMeter()
    stem = control / f"{cell.key}-{rep}-{time.monotonic_ns()}"
    door = Path(f"{stem}-door")
    program = program_of(cell, rep, stem)
    if attended is not None:
        program = attended.fit(program)
    try:
        ended = _execute(cell, rep, program, slot, folder, door, meter, attended)
        stats = slot.emulator.stats()
        failure = _failure(cell, ended, folder)
        if failure is not None and attended is None:
            raise failure
        reported = {rank: (who, read_steps(path)) for rank, path, who in _reported_steps(program)}
        timed = step_time(cell, reported, ended.lasted)
    finally:
        door.unlink(missing_ok=True)
        for rank in program.ranks() if program.steps is not None else ():
            forget(program.steps_file(rank))
    host = meter.stop()
    measured = Measured([], ended.finished, ended.tcp)
    verdict = judge(cell, network, stats, host, report, timed["step_time_s"])
    steps = Steps()
    steps.extend(_step_rows(reported))
    steps.write(folder / "steps.parquet")
    write_network(folder, network, measured, report, stats, host)
    row = measured_row(cell, rep, timed, measured, stats, host, report, verdict)
    row["image"] = slot.image
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
    """From the workers to the end of the program. Raises: as `run`."""
    group = group_of(cell) if attended is None else attended.group
    handles = slot.prepare(group)
    ended = Ended(tcp=set_tcp(handles, dict(group.tcp)))
    slot.emulator.apply(network_of(cell), seed=cell.seed + rep)
    slot.emulator.stats(reset=True)
    meter.start()
    say = attended.say if attended is not None else lambda line: None
    outputs = copied if attended is not None else kept
    limit_s = cell.timeout_s if attended is None else None
    signals: AbstractContextManager[list[int]] = caught() if attended is not None else nullcontext([])
    with (
        signals as received,
        play_timeline(program.schedule, slot, handles, ended, say) as begin,
        outputs(program.sites, program.processes, folder) as ends,
    ):
        start(program, handles, door, ends)
        begin()
        watch(program, slot, handles, ended, received, limit_s or float("inf"))
    return ended


def program_of(cell: CommandCell, rep: int, stem: Path) -> Program:
    """What to run, and where. `stem`: what the files begin with that its processes share."""
    return Program(
        argv=cell.command,
        sites=cell.placement,
        processes=cell.processes,
        cwd=cell.folder.resolve(),
        contained=contained(cell.testbed),
        schedule=schedule_of(cell) if cell.changes else None,
        environment={**command.axis_environment(cell.axes), **cell.environment, "WANBENCH_SEED": str(cell.seed + rep)},
        steps=Path(f"{stem}-steps"),
        hook=cell.hook,
    )


def step_time(cell: CommandCell, reported: ReportedSteps, lasted: Mapping[int, float]) -> dict[str, Any]:
    """The columns that say how long a step took, of the slowest process.

    Args:
        reported: for each rank that reported steps, who reported them and when they ended, in ns.
        lasted: seconds of each process.

    Raises:
        RepFailed: the hook was asked for and saw nothing, or no step is left after the warm-up.
    """
    if not reported:
        if cell.hook:
            raise RepFailed(
                "no optimizer step of torch was seen (workload.step_times): call wanbench.step() where a step ends, or "
                "leave step_times out and the whole program is timed"
            )
        return {"steps": None, "step_time_s": max(lasted.values(), default=None), "step_times": "total"}
    warmup = cell.warmup
    who = "step" if any(who == "step" for who, _ in reported.values()) else "hook"
    counted = {rank: ends for rank, (by, ends) in reported.items() if by == who}
    for rank, ends in counted.items():
        if len(ends) <= warmup:
            later = ", or kill it later" if any(change.kind == "kill" for change in cell.changes) else ""
            raise RepFailed(
                f"rank {rank} reported {len(ends)} steps, and the first {warmup} are warm-up (workload.warmup): "
                f"let it run longer{later}"
            )
    windows = [((ends[-1] - ends[warmup - 1]) / _NS, len(ends) - warmup) for ends in counted.values()]
    seconds, steps = max(windows, key=lambda window: window[0] / window[1])
    return {"steps": steps, "step_time_s": seconds / steps, "step_times": who}


def _reported_steps(program: Program) -> Iterator[tuple[int, Path, str]]:
    for rank in program.ranks() if program.steps is not None else ():
        path = program.steps_file(rank)
        if (who := reporter(path)) is not None:
            yield rank, path, who


def _step_rows(reported: ReportedSteps) -> Iterator[dict[str, Any]]:
    """One row a rank and step; how long the first one took is not known."""
    for rank, (_, ends) in reported.items():
        durations = [None, *((after - before) / _NS for before, after in pairwise(ends))]
        for step, (end, seconds) in enumerate(zip(ends, durations, strict=True)):
            yield {"rank": rank, "step": step, "end_ns": end, "step_time_s": seconds}


def _failure(cell: CommandCell, ended: Ended, folder: Path) -> RepFailed | None:
    """What went wrong, with the last words of the process that failed."""
    if ended.failed is not None:
        how = f"failed with status {ended.code}" if ended.code < 128 else f"was killed by signal {ended.code - 128}"
        return RepFailed(f"rank {ended.failed} {how}", _last_words(folder, ended.failed))
    if ended.late:
        ranks = f"rank{'s' * (len(ended.late) > 1)} {', '.join(map(str, ended.late))}"
        return RepFailed(
            f"hung: {ranks} had not ended after {cell.timeout_s:g} s (workload.timeout)",
            _last_words(folder, ended.late[0]),
        )
    return RepFailed(f"ended by signal {ended.code - 128}") if ended.code else None


def _last_words(folder: Path, rank: int) -> tuple[str, ...]:
    path = log(folder, rank, "err")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return tuple(f"rank-{rank}: {line}" for line in lines[-_LOG_TAIL_LINES:])
