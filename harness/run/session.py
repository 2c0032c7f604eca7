"""Executes the cells of an experiment that are not finished yet. Running it again resumes it.

All state is in the run folder. Repetitions run in slots, side by side. Slots stay open for the whole run, and the slot
that was used last is used next, because its workers already run. The emulator of a slot ends with the thread that
started it, so threads live as long as the engine.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from wanbench.harness.errors import Interrupted, RepFailed, SpecError
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.load import Capacity, Load, makespan, simulators
from wanbench.harness.process import apart
from wanbench.harness.process.priority import processors_awake
from wanbench.harness.rep import sources
from wanbench.harness.rep.fidelity import strain
from wanbench.harness.rep.measure import SINGLE_PACKETS, measure, probe_network
from wanbench.harness.results.claims import TRIES, Answer, SharedRun
from wanbench.harness.results.columns import Row
from wanbench.harness.results.goodput import goodput, undisturbed_step_times
from wanbench.harness.results.row import describe
from wanbench.harness.results.scalability import calibration, one_worker_step_times, scalability
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import StopRequest, check_host, control_folder, host_turn, stoppable
from wanbench.harness.run.manifest import host_facts
from wanbench.harness.run.progress import Remaining, Reporter, brief, clock
from wanbench.harness.run.room import Room, Running
from wanbench.harness.testbeds import opened, side_by_side, simulated
from wanbench.harness.testbeds.base import Slot, Testbed

_LOOK_S = 1.0  # from one look at what other workers have to the next
_END_S = 5.0  # a task whose workers are dead ends at once
STOPPED = "interrupted; finished repetitions are kept; the same command continues"
T = TypeVar("T")


@dataclass
class Item:
    """One repetition to do.

    Attributes:
        host: of an emulated one-worker cell, which each host measures for itself; else None.
    """

    cell: Cell
    rep: int
    load: Load
    host: str | None = None
    began: float = 0.0


@dataclass
class Tally:
    """Outcome of the repetitions of this invocation."""

    ok: int = 0
    failed: list[str] = field(default_factory=list)


def pending(cells: Sequence[Cell], repeats: int, folder: RunFolder, host: str) -> list[Item]:
    """Repetitions without a result, in the order of execution: by repetition, then the longest first.

    A one-worker cell that another host has measured is needed again only if a cell that is divided by it has to be
    measured on this one.

    Args:
        host: the name of the host that asks.
    """
    divided = {
        cell.base_key
        for cell in cells
        if not cell.is_baseline and not all(folder.is_finished(cell, rep) for rep in range(repeats))
    }
    items = []
    for rep in range(repeats):
        todo = []
        for cell in cells:
            own = host if cell.is_baseline and not simulated(cell.testbed) else None
            if not folder.is_finished(cell, rep, own if cell.key in divided else None):
                todo.append(Item(cell, rep, cell.load, own))
        items += sorted(todo, key=lambda item: (not item.cell.is_baseline, -item.load.seconds))
    return items


def execute(
    todo: list[Item],
    folder: SharedRun,
    jobs: int | None,
    host: Capacity,
    say: Reporter,
) -> Tally:
    """Measure every repetition of `todo` that no other worker measures, and wait until all are settled.

    Args:
        jobs: maximum number of repetitions at a time, or None. host: its processors and memory.

    Raises: HostError: the host cannot emulate. OSError: the results cannot be written. Interrupted: Ctrl-C or SIGTERM;
        finished repetitions are kept.
    """
    if not todo:
        return Tally()
    check_host([item.cell for item in todo])
    simulations = [item for item in todo if simulated(item.cell.testbed)]
    emulations = [item for item in todo if not simulated(item.cell.testbed)]
    slots = side_by_side(jobs or host.slots) if emulations else 0
    processes = simulators([item.load for item in simulations], jobs, host)
    with control_folder() as control, stoppable() as stopped:
        start = partial(opened, control=control, slots=processes, trains=any(item.cell.trains for item in todo))
        engine = LocalEngine(start, max(slots, processes))
        session = _Session(todo, folder, engine, control, say, stopped, host, slots, processes)
        try:
            session.simulate(simulations, processes)
            if emulations:
                with host_turn(say.say) as session.turn, processors_awake():
                    session.emulate(emulations)
        finally:
            engine.close()
    return session.tally


class _Session:
    """One invocation: the engine, and the results so far.

    The outer loop is over repetitions and the inner loop over cells, so slow drift affects all cells alike. One-worker
    cells, probes and second tries run alone on the host. All others run side by side, as many as the processors can
    carry. Simulations run side by side too, one per processor.
    """

    def __init__(
        self,
        todo: Sequence[Item],
        folder: SharedRun,
        engine: LocalEngine,
        control: Path,
        say: Reporter,
        stopped: StopRequest,
        host: Capacity,
        slots: int,
        processes: int,
    ) -> None:
        self.folder, self.engine, self.control = folder, engine, control
        self.say, self.tally, self.stopped = say, Tally(), stopped
        self.slots, self.processes, self.room = slots, processes, Room(host)
        self.turn: str | None = None  # while this emulates
        rows = folder.rows()
        self._compare_with(rows)
        finished = {name: digest for row in rows for name, digest in (row["sources"] or {}).items()}
        self.sources = sources.current(todo[0].cell.inputs, {sources.OWN_CODE: "", **finished})
        self.sources |= sources.named(todo[0].cell.inputs, apart.modules())  # the plan was made from these
        self.probes: dict[tuple[Kind, str], Mapping[str, Any]] = {}
        self.again: list[Item] = []  # invalid at the first try
        self.unsettled, self.remaining = {id(item): item for item in todo}, Remaining()

    def _compare_with(self, rows: Sequence[Row]) -> None:
        """Take the step times that rows are divided by from the repetitions of all invocations and workers.

        To go through all rows after each repetition would take ever longer.
        """
        self.alone, self.undisturbed = one_worker_step_times(rows), undisturbed_step_times(rows)

    def simulate(self, todo: list[Item], slots: int) -> None:
        """Run simulations. One-worker cells go first and in order, so no row depends on which repetition is faster."""
        self._side_by_side([item for item in todo if item.cell.is_baseline], slots, in_order=True)
        self._compare_with(self.folder.rows())  # other workers may have measured one-worker cells
        self._side_by_side([item for item in todo if not item.cell.is_baseline], slots)
        self._side_by_side(self.again, slots)

    def emulate(self, todo: list[Item]) -> None:
        """Run emulations. Networks and repetitions that fail a check are tried again at the end, alone on the host."""
        rest = [item for item in todo if not item.cell.is_baseline and not self._is_measured(item)]
        divided = {item.cell.base_key for item in rest}
        first = [item for item in todo if item.cell.is_baseline]
        # Others may have done the rest while this worker waited for its turn.
        self._side_by_side([i for i in first if i.cell.key in divided or not self._is_measured(i)], slots=1)
        again, self.again = self.again, []  # now, because all other cells are compared with them
        self._side_by_side(again, slots=1)
        self._compare_with(self.folder.rows())  # other workers may have measured one-worker cells on this host
        self._probe(rest)
        doubtful = [item for item in rest if not self._report(item)["ok"]]
        self._side_by_side([item for item in rest if self._report(item)["ok"]], self.slots)
        self._probe(doubtful)
        self.again += doubtful
        while self.again:
            again, self.again = self.again, []
            self._side_by_side(again, slots=1)

    def _probe(self, items: list[Item]) -> None:
        """Measure every distinct network once, on an idle host."""
        networks = {_network(item.cell): item.cell for item in items}
        if networks:
            self.say.say(f"probing {len(networks)} network{'s' * (len(networks) > 1)} (delay, jitter, rate, order)")
        for key, cell in networks.items():
            for _ in range(TRIES):
                report = self._probed(cell)
                self.probes[key] = report
                if report["ok"]:
                    break
            for reason in report["reasons"]:
                self.say.say(f"probe: {cell.title}: {reason}")

        if any(self.probes[key].get("offload") is False for key in networks):
            self.say.say(SINGLE_PACKETS)

    def _probed(self, cell: Cell) -> Mapping[str, Any]:
        try:
            # Slots are opened now, because to open one disturbs what is measured beside it.
            future = self.engine.submit(_kind(cell), partial(probe_network, cell.repetition(0)), in_new=True)
            while not self._ended({future}):
                pass
            return future.result()
        except RepFailed as error:
            return {"ok": False, "reasons": [str(error)], "one_way_error_ms": None}

    def _report(self, item: Item) -> Mapping[str, Any]:
        return self.probes[_network(item.cell)]

    def _side_by_side(self, items: list[Item], slots: int, *, in_order: bool = False) -> None:
        """Run as many at a time as slots and processors allow, then wait for those that other workers have.

        Args:
            in_order: results are handled in the items' order.
        """
        queue = list(items)
        elsewhere: list[Item] = []
        running: dict[Future[Row], tuple[Item, Path]] = {}
        while queue or running or elsewhere:
            beside = [Running(item.load, item.began) for item, _ in running.values()]
            # The first that may start beside those that run; lower numbers go first.
            index = self.room.first((item.load for item in queue), beside) if len(running) < slots else None
            if index is not None:
                chosen = queue.pop(index)
                if self._is_mine(chosen, elsewhere):
                    part = self.folder.begin(chosen.cell, chosen.rep)
                    running[self._start(chosen, part)] = (chosen, part)
            elif running:
                awaited = set(running) if not in_order else {next(iter(running))}
                for future in self._ended(awaited, beside):
                    item, part = running.pop(future)
                    if not self._settle(item, part, future):
                        queue.append(item)  # whoever has it may die, too
            else:  # what others have may become free, if they are killed
                self.say.waiting(len(elsewhere))
                if self.stopped.wait(_LOOK_S):
                    raise Interrupted(STOPPED)
                queue, elsewhere = elsewhere, []

    def _is_mine(self, item: Item, elsewhere: list[Item]) -> bool:
        """Claim a repetition. If another worker has it, put it into `elsewhere`; if one settled it, count it."""
        answer = self.folder.take(item.cell, item.rep, item.host)
        if answer is Answer.ELSEWHERE:
            elsewhere.append(item)
        elif answer is Answer.SETTLED:
            self.unsettled.pop(id(item), None)
            self.say.elsewhere()
            if not self._is_measured(item):
                self.tally.failed.append(item.cell.slug)
        return answer is Answer.MINE

    def _is_measured(self, item: Item) -> bool:
        return self.folder.is_finished(item.cell, item.rep)

    def _start(self, item: Item, part: Path) -> Future[Row]:
        item.began = time.monotonic()
        self.folder.event("started", cell=item.cell.slug, rep=item.rep)
        probe = self.probes.get(_network(item.cell)) if not item.cell.is_baseline else None
        return self.engine.submit(
            _kind(item.cell), lambda slot: measure(item.cell.repetition(item.rep), slot, part, self.control, probe)
        )

    def _settle(self, item: Item, part: Path, future: Future[Row]) -> bool:
        """Handle a repetition that ended: publish it, or keep the failure.

        Returns:
            False if another worker has it, because it took this one for dead: what was measured here is discarded.
        """
        if not self.folder.has(item.cell, item.rep, item.host):
            return self._discard(item, part)
        identity: Any = {"run": self.folder.name, **host_facts(item.cell), "turn": self.turn}
        try:
            row = future.result() | identity
        except RepFailed as error:
            row = describe(item.cell, item.rep) | identity | {"status": "failed", "reason": str(error)}
            return self._keep(item, part, row, error.log_tail)
        row["code"] = sources.code_hash(row["sources"] or {})
        self._stop_if_other_code(item, part, row)
        self.remaining.ended(item.load.seconds, item.began, time.monotonic())
        self.room.judged(item.began, valid=row["status"] != "invalid", strain=strain(row))
        if row["status"] == "invalid":
            return self._keep(item, part, row)
        self.sources |= row["sources"] or {}
        self.alone.add(row)
        self.undisturbed.add(row)
        row["calibration_s"], row["scalability"] = calibration(row, self.alone), scalability(row, self.alone)
        row["goodput"] = goodput(row, self.undisturbed)
        if self.folder.finish(item.cell, item.rep, part, row, item.host) is None:
            return self._discard(item, part)
        self.folder.release(item.cell, item.rep, item.host)
        self.folder.event("finished", cell=item.cell.slug, rep=item.rep, step_time_s=row["step_time_s"])
        self.tally.ok += 1
        self._report_done(item, _line(item, row))
        return True

    def _stop_if_other_code(self, item: Item, part: Path, row: Row) -> None:
        """Keep a repetition as invalid if its code is not that of the plan and of finished ones. Raises: SpecError."""
        ran = row["sources"] or {}
        common = {name: digest for name, digest in self.sources.items() if name in ran}
        other = next((name for name, digest in common.items() if ran[name] != digest), None)
        if row["status"] == "invalid":
            other = other or sources.changed(item.cell.inputs, common)
        if other is not None:
            reason = f"{other} changed after this run began"
            self._keep(item, part, row | {"status": "invalid", "reason": reason})
            raise SpecError(
                f"{self.folder.path}: {reason}, so the run ends; finished repetitions are kept; the same command goes "
                "on with the new code, and asks for --keep or --fresh if the old code measured some"
            )

    def _discard(self, item: Item, part: Path) -> bool:
        shutil.rmtree(part, ignore_errors=True)
        self._compare_with(self.folder.rows())  # without the discarded step times
        self.folder.event("discarded", cell=item.cell.slug, rep=item.rep)
        self.say.say(f"{item.cell.title}  rep {item.rep}  discarded: another process took it over while this one stood")
        return False

    def _keep(self, item: Item, part: Path, row: Row, log_tail: tuple[str, ...] = ()) -> bool:
        """Keep a repetition that failed. An invalid one is measured once more, by whoever comes first: if this worker
        kept it until then, workers could wait for each other."""
        kept = self.folder.fail(item.cell, item.rep, part, {"row": row, "log_tail": list(log_tail)}, item.host)
        if kept is None:
            return self._discard(item, part)
        is_last, reason = self.folder.is_settled(item.cell, item.rep, item.host), row["reason"] or ""
        self.folder.release(item.cell, item.rep, item.host)
        self.folder.event("failed" if is_last else "invalid", cell=item.cell.slug, rep=item.rep, reason=reason)
        if not is_last:
            self.again.append(item)
            self.say.say(f"{item.cell.title}  rep {item.rep}  invalid, will be measured again: {brief(reason)}")
            return True
        self.tally.failed.append(item.cell.slug)
        self._report_done(item, f"{item.cell.title}  rep {item.rep}  {row['status'].upper()}: {brief(reason)}")
        for line in log_tail:
            self.say.say(f"        {line}")
        self.say.say(f"        {kept}")
        return True

    def _report_done(self, item: Item, line: str) -> None:
        """Report a repetition that is settled. How long simulations take on this host is not known at first."""
        self.unsettled.pop(id(item), None)
        seconds = None
        if self.remaining.is_known or not simulated(item.cell.testbed):
            condition = (self.room.host, len(self.again))
            seconds = self.remaining.seconds(len(self.unsettled), condition, self._predicted_s)
        self.say.finished(line, seconds)

    def _predicted_s(self) -> float:
        """The predicted seconds until all repetitions are settled. Second tries run alone."""
        again = set(map(id, self.again))
        first = [item.load for key, item in self.unsettled.items() if key not in again]
        simulations_s = makespan([load for load in first if load.simulated], self.processes, self.room.host)
        emulations_s = makespan([load for load in first if not load.simulated], self.slots, self.room.host)
        return simulations_s + emulations_s + sum(item.load.seconds for item in self.again)

    def _ended(self, futures: set[Future[T]], running: Sequence[Running] = ()) -> set[Future[T]]:
        """Those that end within a fifth of a second, if any."""
        done, _ = wait(futures, timeout=0.2, return_when=FIRST_COMPLETED)
        if self.stopped.is_set():
            raise Interrupted(STOPPED)
        self.room.sample(running)
        return done


def _kind(cell: Cell) -> Kind:
    return Kind(cell.testbed, cell.emulator)


def _network(cell: Cell) -> tuple[Kind, str]:
    """Identity of a network for probing: the network, and the kind of slot that builds it."""
    return _kind(cell), cell.emulated_network.key()


def _line(item: Item, row: Row) -> str:
    scal = f"  scalability {row['scalability']:.3f}" if row["scalability"] is not None else ""
    law = row["predicted_step_time_s"]
    against = f" (law {law:.3f})" if law is not None else ""
    took = clock(time.monotonic() - item.began)
    return f"{item.cell.title}  rep {item.rep}  step {row['step_time_s']:.3f} s{against}{scal}  in {took}"


class Kind(NamedTuple):
    """Names of the testbed and the emulator that a repetition runs on."""

    testbed: str
    emulator: str | None


class LocalEngine:
    """Executes repetitions in slots on this host.

    Args:
        open_testbed: starts a testbed by name; called once per name. The testbed is closed with the engine.
        slots: maximum number of repetitions at a time.
    """

    def __init__(self, open_testbed: Callable[[str], Testbed], slots: int) -> None:
        self._open_testbed, self._slots = open_testbed, slots
        self._opening = threading.Lock()
        self._testbeds: dict[str, Testbed] = {}
        self._opened = Counter[Kind]()
        self._idle: dict[Kind, list[Slot]] = {}
        self._threads = ThreadPoolExecutor(slots, "slot")
        self._tasks: set[Future[Any]] = set()  # that have not ended

    def submit(self, kind: Kind, task: Callable[[Slot], T], *, in_new: bool = False) -> Future[T]:
        """Run `task` in a free slot of this kind, or `in_new` in one that is opened for it, while there may be more."""
        future = self._threads.submit(self._run, kind, task, in_new)
        self._tasks.add(future)
        future.add_done_callback(self._tasks.discard)
        return future

    def close(self) -> None:
        """Kill running tasks and remove everything. Their errors are not reported."""
        for testbed in self._testbeds.values():
            testbed.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)
        wait(self._tasks, _END_S)
        for testbed in self._testbeds.values():
            testbed.close()

    def _run(self, kind: Kind, task: Callable[[Slot], T], in_new: bool) -> T:
        with self._opening:
            idle = self._idle.setdefault(kind, [])
            slot = idle.pop() if idle and not (in_new and self._opened[kind] < self._slots) else None
            self._opened[kind] += slot is None
        slot = slot or self._testbed(kind.testbed).open_slot(kind.emulator or "")
        try:
            return task(slot)
        finally:
            idle.append(slot)

    def _testbed(self, name: str) -> Testbed:
        with self._opening:
            if name not in self._testbeds:
                self._testbeds[name] = self._open_testbed(name)
            return self._testbeds[name]
