"""One repetition of a cell whose workload is a command: the user's program runs in every worker's network and is timed.

The step time is (end - begin) / steps of the slowest process, from the end of its last warm-up step to the end of its
last step. If no process reports steps, the whole program is timed. A process that a timeline starts again continues to
report steps: its step time includes the time that it was down, and repeated steps count again.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.emulator import EmulatorError, EmulatorStats
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.repetition import Command, CommandRepetition
from wanbench.harness.process import child
from wanbench.harness.rep import launcher, sources
from wanbench.harness.rep.fidelity import (
    HostMeter,
    Window,
    describe_pauses,
    judge,
    judge_pauses,
    judge_settings,
    pauses_of,
    share_of_programs,
)
from wanbench.harness.rep.outputs import log, to_files, to_files_and_terminal
from wanbench.harness.rep.program import Ended, Program, caught_signals, play_timeline, start, watch
from wanbench.harness.results.columns import Row
from wanbench.harness.results.evidence import write_events, write_network
from wanbench.harness.results.row import Measured, measured_row
from wanbench.harness.results.steps import ProgramStep, Steps
from wanbench.harness.spec.launch_lines import cause
from wanbench.harness.testbeds import contained
from wanbench.harness.testbeds.base import FolderMount, Group, WorkerDied
from wanbench.harness.testbeds.group import group_of, host_names
from wanbench.harness.testbeds.slot import WorkerSlot
from wanbench.harness.testbeds.training import set_tcp
from wanbench.workloads.loop.stepping import forget, read_idle_s, read_operations, read_steps, reporter

_LOG_TAIL_LINES = 12
_NS = 1e9
_SILENT_BYTES = 2_000  # of a worker: some connections and no messages
_PATIENCE_S = 30.0  # a program that fails sooner did not wait for others, and says itself what is wrong

ReportedSteps = Mapping[int, tuple[str, list[int]]]


@dataclass(frozen=True)
class Attended:
    """A program that its user watches: it gets the user's signals, can fail, and has settings that no spec has.

    Attributes:
        say: prints one line for the user.
        cwd: working folder. environment: variables in addition to those that torchrun sets.
        mounts: folders of the host that containers see. gpus: those of each worker, as in `Group`.
        private_tmp: whether each worker has a /tmp of its own. stdin: descriptor of the input of rank 0, or None.
        timeout_s: it is killed after this time; None for never.
        launches: whether it runs once, and starts processes on other workers itself.
    """

    say: Callable[[str], None]
    cwd: Path
    environment: Mapping[str, str]
    mounts: tuple[FolderMount, ...] = ()
    gpus: tuple[str, ...] = ()
    private_tmp: bool = False
    stdin: int | None = None
    timeout_s: float | None = None
    launches: bool = False

    def fitted(self, program: Program) -> Program:
        """The program with these settings. Steps of torch's optimizers are counted, but it need not have any."""
        return replace(
            program,
            environment=self.environment,
            temporary=None if self.private_tmp else program.temporary,
            hook=True,
            cwd=self.cwd,
            gpus=self.gpus,
            stdin=self.stdin,
            timeout_s=self.timeout_s,
        )

    def group(self, repetition: CommandRepetition, control: Path) -> Group:
        """Its workers. `control` is the folder of files that they share with the controller."""
        inside = contained(repetition.testbed)
        return replace(
            group_of(repetition, self.mounts),
            gpus=self.gpus if inside else (),
            private_tmp=(control, self.cwd, *child.folders()) if self.private_tmp and not inside else None,
        )


def measure(
    repetition: CommandRepetition, slot: WorkerSlot, folder: Path, control: Path, report: Mapping[str, Any] | None
) -> Row:
    """Run the program and return the judged row, with status "ok" or "invalid". Arguments as in `rep.measure.measure`.

    Raises:
        RepFailed: a process failed or could not be started, the time limit was reached, a worker or the emulator ended,
            or the requested steps were not reported.
        HostError: workers or the emulator cannot be started.
    """
    try:
        return run(repetition, slot, folder, control, report)[0]
    except (WorkerDied, TimeoutError, EmulatorError, RepFailed) as error:
        slot.discard()
        raise error if isinstance(error, RepFailed) else RepFailed(str(error)) from None


def run(
    repetition: CommandRepetition,
    slot: WorkerSlot,
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
    before, stem = sources.sources_before(repetition.inputs), control / f"{repetition.name}-{time.monotonic_ns()}"
    with _files_of(repetition, stem, attended) as program:
        with HostMeter() as meter:
            ended = _execute(repetition, program, slot, folder, Path(f"{stem}-door"), meter, attended)
        stats = slot.emulator.stats()
        limit = f"{program.timeout_s or 0:g} s ({'workload.timeout' if attended is None else '--timeout'})"
        if ended.code == 0 or max(ended.lasted.values(), default=0.0) > _PATIENCE_S:
            ended.silence = silence(program, program.cwd, program.workers, stats.bytes)
        failure = _failure(ended, folder, limit)
        if failure is not None and attended is None:
            raise failure
        steps, ended.idle_s, ended.messages = _reported(program, repetition.warmup, can_be_short=attended is not None)
    ran, void = sources.used(repetition.inputs, before, ended.finished.values())
    row, changed = _row(repetition, ended, steps, stats, meter, folder, report, void)
    if changed:
        slot.discard()
    row["image"], row["sources"] = slot.image, ran
    if failure is not None:
        row["status"], row["reason"] = "failed", str(failure)
    return row, ended


def _row(
    repetition: CommandRepetition,
    ended: Ended,
    reported: ReportedSteps,
    stats: EmulatorStats,
    meter: HostMeter,
    folder: Path,
    report: Mapping[str, Any] | None,
    void: Sequence[str],
) -> tuple[Row, bool]:
    """Write what was measured and judge it. Return the row, and whether the network did not stay as it was set.

    Args:
        void: reasons why it is invalid anyway.
    """
    columns = step_time(repetition, reported, ended.lasted)
    columns["messages_sent"] = ended.messages if reported else None
    window = window_of(repetition, reported, ended.lasted, meter.begin_ns)
    stopped = pauses_of(ended.finished, stats, meter.lost)
    host = meter.load() | describe_pauses(stopped, window)
    host |= share_of_programs(host, [finished.processor for finished in ended.finished.values()], stats)
    changes = {worker: finished.changed for worker, finished in ended.finished.items()}
    changed = judge_settings(changes, repetition.sites, stats)
    verdict = [
        *void,
        *changed,
        *judge(repetition, stats, host, report, columns["step_time_s"]),
        *judge_pauses(stopped, [window]),
    ]
    steps, measured = Steps(), Measured(ended.finished, ended.tcp)
    steps.extend(_step_rows(reported))
    steps.write(folder / "steps.parquet")
    write_network(folder, repetition.network, measured, report, stats, host)
    row = measured_row(repetition, columns, measured, stats, host, report, verdict)
    if repetition.changes:
        row["events"] = write_events(folder, ended.events)
    return row, bool(changed)


@contextmanager
def _files_of(repetition: CommandRepetition, stem: Path, attended: Attended | None) -> Iterator[Program]:
    """The program, with the files that its processes share, which are removed at the end."""
    program = program_of(repetition, stem)
    if attended is not None:
        program = attended.fitted(program)
    try:
        if attended is not None and attended.launches:
            made = Path(f"{stem}-launcher")
            variables = launcher.prepare(made, program.hosts, program.processes, contained=program.contained)
            program = replace(program, launcher=made, environment={**variables, **program.environment})
        for worker in range(program.workers) if program.temporary is not None else ():
            program.temporary_of(worker).mkdir(parents=True)
        yield program
    finally:
        Path(f"{stem}-door").unlink(missing_ok=True)
        for made in filter(None, (program.temporary, program.launcher)):
            shutil.rmtree(made, ignore_errors=True)
        for rank in program.ranks():
            forget(program.steps_file(rank))
        for worker in range(program.workers):
            program.imports_file(worker).unlink(missing_ok=True)


def _execute(
    repetition: CommandRepetition,
    program: Program,
    slot: WorkerSlot,
    folder: Path,
    door: Path,
    meter: HostMeter,
    attended: Attended | None,
) -> Ended:
    """Prepare the workers and run the program to its end. Raises: as `run`."""
    group = group_of(repetition) if attended is None else attended.group(repetition, door.parent)
    handles = slot.prepare(group)
    ended = Ended(tcp=set_tcp(handles, dict(group.tcp)))
    slot.emulator.apply(repetition.network, seed=repetition.seed)
    slot.emulator.stats(reset=True)
    meter.start()
    say = attended.say if attended is not None else lambda line: None
    outputs = to_files_and_terminal if attended is not None else to_files
    signals: AbstractContextManager[list[int]] = caught_signals() if attended is not None else nullcontext([])
    with (
        signals as received,
        play_timeline(program.schedule, slot, handles, ended, say) as begin,
        outputs(program.sites, program.processes, folder) as ends,
    ):
        start(program, handles, door, ends)
        begin()
        watch(program, slot, handles, ended, _alarm(program, slot, say), received)
    return ended


def program_of(repetition: CommandRepetition, stem: Path) -> Program:
    """Return the program. `stem` is the beginning of the paths of files that its processes share."""
    inside = contained(repetition.testbed)
    return Program(
        **repetition.settings(),
        sites=repetition.sites,
        cwd=repetition.inputs.folder,
        contained=inside,
        schedule=repetition.schedule,
        group=repetition.group,
        steps=Path(f"{stem}-steps"),
        hosts=host_names(repetition.sites),
        # A short name, because paths of Unix sockets in it have at most 107 bytes.
        temporary=None if inside else stem.with_name(f"{time.monotonic_ns() % 10**9:x}"),
    )


def _reported(program: Program, warmup: int, *, can_be_short: bool) -> tuple[ReportedSteps, float | None, int | None]:
    """What the processes reported: their steps, and `idle_s` and `messages` of `Ended`.

    A program that `can_be_short` is not timed by steps if one of its processes made too few.
    """
    paths = {rank: program.steps_file(rank) for rank in program.ranks()}
    by = {rank: source for rank, path in paths.items() if (source := reporter(path)) is not None}
    idle_s = [seconds for rank in by if (seconds := read_idle_s(paths[rank], warmup)) is not None]
    sent = [read_operations(paths[rank]) for rank in by]
    counted = [number for number in sent if number is not None]
    steps = {rank: (source, read_steps(paths[rank])) for rank, source in by.items()}
    short = can_be_short and any(len(ends) <= warmup for _, ends in steps.values())
    return (
        {} if short else steps,
        statistics.median(idle_s) if idle_s else None,
        sum(counted) if len(counted) == len(sent) else None,
    )


def step_time(repetition: CommandRepetition, reported: ReportedSteps, lasted: Mapping[int, float]) -> dict[str, Any]:
    """Return the columns of the step time, of the slowest process.

    Args:
        reported: for each rank that reported steps, their source and their ends in ns.
        lasted: duration of each process in seconds.

    Raises:
        RepFailed: the hook was requested and saw no step, or no step is left after the warm-up.
    """
    if not reported:
        if repetition.hook:
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
    warmup, counted = repetition.warmup, _counted(reported)
    for rank, ends in counted.items():
        if len(ends) <= warmup:
            later = ", or kill it later" if any(change.kind == "kill" for change in repetition.changes) else ""
            raise RepFailed(
                f"workload.warmup: rank {rank} reported {len(ends)} steps, and the first {warmup} are warm-up; "
                f"let the program run longer{later}"
            )
    windows = [((ends[-1] - ends[warmup - 1]) / _NS, len(ends) - warmup) for ends in counted.values()]
    seconds, steps = max(windows, key=lambda window: window[0] / window[1])
    return {
        "steps": steps,
        "steps_total": steps + warmup,
        "step_time_s": seconds / steps,
        "step_times": _source(reported),
    }


def window_of(
    repetition: CommandRepetition, reported: ReportedSteps, lasted: Mapping[int, float], begin_ns: int
) -> Window:
    """Return the measured steps of all processes, or the whole program if they reported none.

    Args:
        begin_ns: when the program began.
    """
    counted = _counted(reported)
    if not counted:
        return Window(begin_ns, begin_ns + round(max(lasted.values(), default=0.0) * _NS), begin_ns)
    first_ns = min(ends[repetition.warmup - 1] for ends in counted.values())
    return Window(first_ns, max(ends[-1] for ends in counted.values()), first_ns)


def _source(reported: ReportedSteps) -> str:
    return "step" if any(source == "step" for source, _ in reported.values()) else "hook"


def _counted(reported: ReportedSteps) -> dict[int, list[int]]:
    """Return the ends of the steps of the processes that count: those that call `wanbench.step`, if any does."""
    return {rank: ends for rank, (source, ends) in reported.items() if source == _source(reported)}


def _step_rows(reported: ReportedSteps) -> Iterator[ProgramStep]:
    """Yield one row per rank and step."""
    for rank, (_, ends) in reported.items():
        durations = [None, *((after - before) / _NS for before, after in itertools.pairwise(ends))]
        for step, (end, seconds) in enumerate(zip(ends, durations, strict=True)):
            yield ProgramStep(rank, step, end, seconds)


def silence(command: Command, folder: Path, workers: int, nbytes: int) -> str | None:
    """What to say of workers that exchanged next to nothing: each made its own world, or waits for others in vain.

    Args:
        folder: has the files that the command names. nbytes: received by all workers.
    """
    if workers == 1 or nbytes > _SILENT_BYTES * workers:
        return None
    return f"the {workers} workers exchanged next to nothing: {cause(command.command, command.node(workers), folder)}"


def _alarm(program: Program, slot: WorkerSlot, say: Callable[[str], None]) -> Iterator[None]:
    """At each step of the iteration, look whether nothing was sent in the first 30 s, and say so once."""
    due = time.monotonic() + _PATIENCE_S
    while program.workers == 1 or time.monotonic() < due:
        yield
    if text := silence(program, program.cwd, program.workers, slot.emulator.stats().bytes):
        say(f"hint: after {_PATIENCE_S:.0f} s, {text}; if the program is still preparing, wait")
    yield from itertools.repeat(None)


def _failure(ended: Ended, folder: Path, limit: str) -> RepFailed | None:
    """Return the failure, with the last lines of the process that failed. `limit` says how long it may take."""
    hint = "" if ended.silence is None else f"; {ended.silence}"
    if ended.failed is not None:
        how = (
            f"was killed by signal {ended.code - 128}"
            if 128 < ended.code <= 192
            else f"failed with status {ended.code}"
        )
        return RepFailed(f"rank {ended.failed} {how}{hint}", _last_lines(folder, ended.failed))
    if ended.late:
        ranks = f"rank{'s' * (len(ended.late) > 1)} {', '.join(map(str, ended.late))}"
        return RepFailed(
            f"hung: {ranks} had not ended after {limit}{hint}",
            _last_lines(folder, ended.late[0]),
        )
    return RepFailed(f"ended by signal {ended.code - 128}{hint}") if ended.code else None


def _last_lines(folder: Path, rank: int) -> tuple[str, ...]:
    path = log(folder, rank, "err")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return tuple(f"rank-{rank}: {line}" for line in lines[-_LOG_TAIL_LINES:])
