"""One repetition of a cell whose workload is a command: the user's program in every worker's network, timed.

A step time is (end - begin) / steps of the slowest process, between the end of the last step of the warm-up and the end
of the last step there is. Where nobody tells steps, the whole program is what is timed. A process that a timeline
starts again tells its steps on: how long it was gone is in its step time, and steps that it makes again count again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.base import EmulatorError
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.cell import CommandCell
from wanbench.harness.rep.fidelity import HostMeter, judge
from wanbench.harness.rep.program import Ended, Program, playing, start, watch
from wanbench.harness.rep.train import (
    EVENTS,
    group_of,
    network_of,
    schedule_of,
    tcp_of,
    write_network,
)
from wanbench.harness.results.columns import Row
from wanbench.harness.results.row import Measured, measured_row
from wanbench.harness.results.steps import Steps
from wanbench.harness.results.store import write_json
from wanbench.harness.spec import command
from wanbench.harness.testbeds.base import EmulatedSlot, WorkerDied
from wanbench.harness.testbeds.training import set_tcp
from wanbench.workloads.loop.stepping import forget, read_steps, told_by

_LOG_TAIL_LINES = 12
_NS = 1e9

Told = Mapping[int, tuple[str, list[int]]]


def measure(
    cell: CommandCell, rep: int, slot: EmulatedSlot, folder: Path, control: Path, report: Mapping[str, Any] | None
) -> Row:
    """Run the program and return the row, judged: status "ok" or "invalid"; arguments as of `rep.train.measure`.

    Raises:
        RepFailed: a process failed or could not be started, time was up, a worker or the emulator ended, or steps that
            were asked for were not told.
        HostError: workers or the emulator cannot be started.
    """
    network, meter, ended = network_of(cell), HostMeter(), Ended()
    stem = control / f"{cell.key}-{rep}-{time.monotonic_ns()}"
    program = program_of(cell, rep, stem)
    try:
        tcp = _execute(cell, rep, program, slot, folder, Path(f"{stem}-door"), meter, ended)
        stats = slot.emulator.stats()
        told = {rank: (who, read_steps(path)) for rank, path, who in _told(program)}
        timed = step_time(cell, told, ended.lasted)
    except (WorkerDied, TimeoutError, EmulatorError) as error:
        slot.discard()
        raise RepFailed(str(error)) from None
    except RepFailed:
        slot.discard()
        raise
    finally:
        Path(f"{stem}-door").unlink(missing_ok=True)
        for rank in program.ranks():
            forget(program.steps_file(rank))
    host = meter.stop()
    measured = Measured([], ended.finished, tcp)
    verdict = judge(cell, network, stats, host, report, timed["step_time_s"])
    steps = Steps()
    steps.extend(_step_rows(told))
    steps.write(folder / "steps.parquet")
    write_network(folder, network, measured, report, stats, host)
    row = measured_row(cell, rep, timed, measured, stats, host, report, verdict)
    row["image"] = slot.image
    if cell.changes:
        row["events"] = ended.events
        write_json(folder / EVENTS, ended.events)
    return row


def _execute(
    cell: CommandCell,
    rep: int,
    program: Program,
    slot: EmulatedSlot,
    folder: Path,
    door: Path,
    meter: HostMeter,
    ended: Ended,
) -> dict[str, Any]:
    """From the workers to the end of the program; returns what of TCP is in force. Raises: as `measure`."""
    handles = slot.prepare(group_of(cell))
    tcp = set_tcp(handles, tcp_of(cell))
    slot.emulator.apply(network_of(cell), seed=cell.seed + rep)
    slot.emulator.stats(reset=True)
    meter.start()
    with playing(program.schedule, slot, handles, ended) as begin:
        with _logs(program, folder) as logs:
            start(program, handles, door, logs.__getitem__)
        begin()
        watch(program, slot, handles, ended, limit_s=cell.timeout_s or float("inf"))
    _check(cell, ended, folder)
    return tcp


def program_of(cell: CommandCell, rep: int, stem: Path) -> Program:
    """What to run, and where. `stem`: what the files begin with that its processes share."""
    return Program(
        argv=cell.command,
        profile=cell.profile,
        sites=cell.placement,
        processes=cell.processes,
        cwd=cell.folder.resolve(),
        testbed=cell.testbed,
        emulator=cell.emulator or "",
        tcp=tcp_of(cell),
        schedule=schedule_of(cell) if cell.changes else None,
        image=cell.containers.image,
        environment={**command.told(cell.axes), **cell.environment, "WANBENCH_SEED": str(cell.seed + rep)},
        steps=Path(f"{stem}-steps"),
        hook=cell.hook,
    )


def step_time(cell: CommandCell, told: Told, lasted: Mapping[int, float]) -> dict[str, Any]:
    """The columns that say how long a step took, of the slowest process.

    Args:
        told: of each rank that told steps, who told them and when they ended, in ns.
        lasted: seconds of each process.

    Raises:
        RepFailed: the hook was asked for and saw nothing, or no step is left after the warm-up.
    """
    if not told:
        if cell.hook:
            raise RepFailed(
                "no optimizer step of torch was seen (workload.step_times): call wanbench.step() where a step ends, or "
                "leave step_times out and the whole program is timed"
            )
        return {"steps": None, "step_time_s": max(lasted.values()), "step_times": "total"}
    warmup = cell.warmup
    who = "step" if any(who == "step" for who, _ in told.values()) else "hook"
    counted = {rank: ends for rank, (by, ends) in told.items() if by == who}
    for rank, ends in counted.items():
        if len(ends) <= warmup:
            later = ", or kill it later" if any(change.kind == "kill" for change in cell.changes) else ""
            raise RepFailed(
                f"rank {rank} told {len(ends)} steps, and the first {warmup} are warm-up (workload.warmup): let it run "
                f"longer{later}"
            )
    windows = [((ends[-1] - ends[warmup - 1]) / _NS, len(ends) - warmup) for ends in counted.values()]
    seconds, steps = max(windows, key=lambda window: window[0] / window[1])
    return {"steps": steps, "step_time_s": seconds / steps, "step_times": who}


def _told(program: Program) -> Iterator[tuple[int, Path, str]]:
    for rank in program.ranks():
        path = program.steps_file(rank)
        if (who := told_by(path)) is not None:
            yield rank, path, who


def _step_rows(told: Told) -> Iterator[dict[str, Any]]:
    """One row a rank and step; how long the first one took is not known."""
    for rank, (_, ends) in told.items():
        durations = [None, *((after - before) / _NS for before, after in pairwise(ends))]
        for step, (end, seconds) in enumerate(zip(ends, durations, strict=True)):
            yield {"rank": rank, "step": step, "end_ns": end, "step_time_s": seconds}


def _check(cell: CommandCell, ended: Ended, folder: Path) -> None:
    """Raises: RepFailed, with the last words of the process that failed."""
    if ended.failed is not None:
        how = f"failed with status {ended.code}" if ended.code < 128 else f"was killed by signal {ended.code - 128}"
        raise RepFailed(f"rank {ended.failed} {how}", _last_words(folder, ended.failed))
    if ended.late:
        ranks = f"rank{'s' * (len(ended.late) > 1)} {', '.join(map(str, ended.late))}"
        raise RepFailed(
            f"hung: {ranks} had not ended after {cell.timeout_s:g} s (workload.timeout)",
            _last_words(folder, ended.late[0]),
        )


def _last_words(folder: Path, rank: int) -> tuple[str, ...]:
    lines = _log(folder, rank, "err").read_text(errors="replace").splitlines()
    return tuple(f"rank-{rank}: {line}" for line in lines[-_LOG_TAIL_LINES:])


def _log(folder: Path, rank: int, stream: str) -> Path:
    return folder / f"rank-{rank}.{stream}.log"


@contextmanager
def _logs(program: Program, folder: Path) -> Iterator[list[list[int]]]:
    """Files for stdout and stderr of every process, by worker; ours are closed when the workers have theirs."""
    opened: list[list[int]] = []
    try:
        for worker in range(program.workers):
            opened.append([])
            for local in range(program.processes):
                for stream in ("out", "err"):
                    path = _log(folder, worker * program.processes + local, stream)
                    opened[-1].append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))
        yield opened
    finally:
        for descriptor in (fd for worker in opened for fd in worker):
            os.close(descriptor)
