"""Executes the cells of an experiment that are not finished yet. Running it again resumes it."""

from __future__ import annotations

import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from wanbench.harness.errors import Interrupted, RepFailed
from wanbench.harness.plan.cell import Cell, CommandCell
from wanbench.harness.plan.load import DEFAULT_SLOTS, Capacity, Load, load_of, makespan, simulators
from wanbench.harness.process.awake import processors_awake
from wanbench.harness.rep.measure import SINGLE_PACKETS, measure, probe_cell
from wanbench.harness.rep.train import network_of
from wanbench.harness.results.columns import Row
from wanbench.harness.results.goodput import goodput, undisturbed_step_times
from wanbench.harness.results.row import describe
from wanbench.harness.results.scalability import calibration, one_worker_step_times, scalability
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import check_host, sweep_stale, write_owner
from wanbench.harness.run.local import Kind, LocalEngine
from wanbench.harness.run.manifest import code_hash, host_facts
from wanbench.harness.run.progress import Reporter, brief, clock
from wanbench.harness.run.redraw import Redrawer
from wanbench.harness.run.room import Room, Running
from wanbench.harness.testbeds import opened, side_by_side, simulated

_TRIES = 2  # an invalid repetition is measured once more, a failed one is not


_Network = tuple[Kind, str]
_Result = TypeVar("_Result")


@dataclass
class Item:
    """One repetition to do."""

    cell: Cell
    rep: int
    load: Load
    tries: int = 0
    began: float = 0.0


@dataclass
class Tally:
    """Outcome of the repetitions of this invocation."""

    ok: int = 0
    failed: list[str] = field(default_factory=list)


def execute(
    todo: list[Item], folder: RunFolder, jobs: int | None, host: Capacity, say: Reporter, *, draw: bool = True
) -> Tally:
    """Measure every repetition of `todo`.

    The outer loop is over repetitions and the inner loop over cells, so slow drift affects all cells alike. One-worker
    cells, probes and second tries run alone on the host. All others run side by side, as many as the processors can
    carry. Simulations run side by side too, one per processor.

    Args:
        jobs: maximum number of repetitions at a time, or None. host: its processors and memory.
        draw: redraw the figures as results come in.

    Raises:
        HostError: the host cannot emulate. OSError: the results cannot be written.
        Interrupted: Ctrl-C or SIGTERM; finished repetitions are kept.
    """
    tally = Tally()
    if not todo:
        return tally
    check_host([item.cell for item in todo])
    emulated = side_by_side(jobs or DEFAULT_SLOTS) if not all(map(_simulated, todo)) else 0
    processes = simulators([item.load for item in todo if _simulated(item)], jobs, host)
    with control_folder() as control, stoppable() as stopped:
        trains = any(not isinstance(item.cell, CommandCell) for item in todo)
        start = partial(opened, control=control, slots=processes, trains=trains)
        engine = LocalEngine(start, max(emulated, processes))
        redrawer = Redrawer(folder.path) if draw else None
        session = _Session(folder, engine, control, say, tally, stopped, redrawer, host, emulated)
        try:
            with processors_awake() if emulated else nullcontext():
                session.simulate([item for item in todo if _simulated(item)], processes)
                session.emulate([item for item in todo if not _simulated(item)])
        finally:
            if redrawer is not None:
                redrawer.close()
            engine.close()
    return tally


def pending(cells: list[Cell], repeats: int, folder: RunFolder) -> list[Item]:
    """Repetitions without a result, in the order of execution: by repetition, then the longest first."""
    items = []
    for rep in range(repeats):
        todo = [Item(cell, rep, load_of(cell)) for cell in cells if not folder.is_finished(cell, rep)]
        items += sorted(todo, key=lambda item: (not item.cell.is_baseline, -item.load.seconds))
    return items


class _Session:
    """One invocation: the engine, and the results so far."""

    def __init__(
        self,
        folder: RunFolder,
        engine: LocalEngine,
        control: Path,
        say: Reporter,
        tally: Tally,
        stopped: threading.Event,
        redrawer: Redrawer | None,
        host: Capacity,
        slots: int,
    ) -> None:
        self.folder, self.engine, self.control = folder, engine, control
        self.say, self.tally, self.stopped, self.redrawer = say, tally, stopped, redrawer
        self.host, self.slots, self.room = host, slots, Room(host)
        self.rows = folder.rows()  # of earlier invocations and of this one
        self.probes: dict[_Network, Mapping[str, Any]] = {}
        self.lasted_s: list[float] = []  # durations of commands
        self.again: list[Item] = []  # invalid at the first try

    def simulate(self, todo: list[Item], slots: int) -> None:
        """Run simulations. One-worker cells go first and in order, so no row depends on which repetition is faster."""
        self._side_by_side([item for item in todo if item.cell.is_baseline], slots, in_order=True)
        self._side_by_side([item for item in todo if not item.cell.is_baseline], slots)

    def emulate(self, todo: list[Item]) -> None:
        """Run emulations. Networks and repetitions that fail a check are tried again at the end, alone on the host."""
        self._side_by_side([item for item in todo if item.cell.is_baseline], slots=1)
        again, self.again = self.again, []  # now, because all other cells are compared with them
        self._side_by_side(again, slots=1)
        rest = [item for item in todo if not item.cell.is_baseline]
        self._probe(rest)
        doubtful = [item for item in rest if not self._report(item)["ok"]]
        for item in doubtful:
            item.tries += 1
        self._side_by_side([item for item in rest if self._report(item)["ok"]], self.slots)
        self._probe(doubtful)
        self._side_by_side([*self.again, *doubtful], slots=1)

    def _probe(self, items: list[Item]) -> None:
        """Measure every distinct network once, on an idle host."""
        networks = {_network(item.cell): item.cell for item in items}
        if networks:
            self.say.say(f"probing {len(networks)} network{'s' * (len(networks) > 1)} (delay, jitter, rate, order)")
        for key, cell in networks.items():
            for _ in range(_TRIES):
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
            future = self.engine.submit(_kind(cell), partial(probe_cell, cell))
            while not self._ended({future}):
                pass
            return future.result()
        except RepFailed as error:
            return {"ok": False, "reasons": [str(error)], "one_way_error_ms": None}

    def _report(self, item: Item) -> Mapping[str, Any]:
        return self.probes[_network(item.cell)]

    def _side_by_side(self, items: list[Item], slots: int, *, in_order: bool = False) -> None:
        """Run as many at a time as slots and processors allow. `in_order`: results are handled in the items' order."""
        queue = list(items)
        running: dict[Future[Row], tuple[Item, Path]] = {}
        while queue or running:
            chosen = self._choose(queue, [item for item, _ in running.values()], slots)
            if chosen is not None:
                queue.remove(chosen)
                future, part = self._start(chosen)
                running[future] = (chosen, part)
                loads = [self._load(item) for item in (*(item for item, _ in running.values()), *queue)]
                self.say.eta(makespan(loads, slots, self.host))
                continue
            for future in self._ended(set(running) if not in_order else {next(iter(running))}):
                item, part = running.pop(future)
                self._settle(item, part, future)

    def _start(self, item: Item) -> tuple[Future[Row], Path]:
        item.began = time.monotonic()
        part = self.folder.begin(item.cell, item.rep)
        self.folder.event("started", cell=item.cell.slug, rep=item.rep)
        return self._submit(item, part), part

    def _load(self, item: Item) -> Load:
        """The load of a repetition; for a command, its duration is estimated from those that have ended."""
        if isinstance(item.cell, CommandCell) and self.lasted_s:
            return replace(item.load, seconds=statistics.fmean(self.lasted_s))
        return item.load

    def _choose(self, queue: list[Item], items: list[Item], slots: int) -> Item | None:
        """The first repetition that may start beside those that run; lower repetition numbers go first."""
        if len(items) >= slots:
            return None
        running = [Running(item.load, item.began) for item in items]
        return next((item for item in queue if self.room.for_another(item.load, running)), None)

    def _submit(self, item: Item, part: Path) -> Future[Row]:
        probe = self.probes.get(_network(item.cell)) if not item.cell.is_baseline else None
        return self.engine.submit(
            _kind(item.cell), lambda slot: measure(item.cell, item.rep, slot, part, self.control, probe)
        )

    def _settle(self, item: Item, part: Path, future: Future[Row]) -> None:
        """Handle a repetition that ended: publish it, try again, or keep the failure."""
        known: Any = {"run": self.folder.name, "code": code_hash(item.cell), **host_facts(item.cell)}
        try:
            row = future.result() | known
        except RepFailed as error:
            row = describe(item.cell, item.rep) | known | {"status": "failed", "reason": str(error)}
            self._keep_failure(item, part, row, error.log_tail)
            return
        if row["status"] == "invalid":
            item.tries += 1
            if item.tries < _TRIES:
                self.folder.fail(item.cell, item.rep, part, {"row": row})
                self.folder.event("invalid", cell=item.cell.slug, rep=item.rep, reason=row["reason"])
                self.say.say(
                    f"{item.cell.title}  rep {item.rep}  invalid, will be measured again: {brief(row['reason'] or '')}"
                )
                self.again.append(item)
                return
            self._keep_failure(item, part, row, ())
            return
        if isinstance(item.cell, CommandCell):
            self.lasted_s.append(time.monotonic() - item.began)
        self.rows.append(row)
        one_worker = one_worker_step_times(self.rows)
        row["calibration_s"], row["scalability"] = calibration(row, one_worker), scalability(row, one_worker)
        row["goodput"] = goodput(row, undisturbed_step_times(self.rows))
        self.folder.finish(item.cell, item.rep, part, row)
        self.folder.event("finished", cell=item.cell.slug, rep=item.rep, step_time_s=row["step_time_s"])
        self.tally.ok += 1
        self.say.finished(_line(item, row))
        if self.redrawer is not None:
            self.redrawer.changed()

    def _keep_failure(self, item: Item, part: Path, row: Row, log_tail: tuple[str, ...]) -> None:
        kept = self.folder.fail(item.cell, item.rep, part, {"row": row, "log_tail": list(log_tail)})
        self.folder.event("failed", cell=item.cell.slug, rep=item.rep, reason=row["reason"])
        self.tally.failed.append(item.cell.slug)
        self.say.finished(f"{item.cell.title}  rep {item.rep}  {row['status'].upper()}: {brief(row['reason'] or '')}")
        for line in log_tail:
            self.say.say(f"        {line}")
        self.say.say(f"        {kept}")

    def _ended(self, futures: set[Future[_Result]]) -> set[Future[_Result]]:
        """Those that end within a fifth of a second, if any."""
        done, _ = wait(futures, timeout=0.2, return_when=FIRST_COMPLETED)
        if self.stopped.is_set():
            raise Interrupted("interrupted; finished repetitions are kept; the same command continues")
        self.room.sample()
        return done


def _kind(cell: Cell) -> Kind:
    return Kind(cell.testbed, cell.emulator)


def _simulated(item: Item) -> bool:
    return simulated(_kind(item.cell).testbed)


def _network(cell: Cell) -> _Network:
    """Identity of a network for probing: the network, and the kind of slot that builds it."""
    return _kind(cell), network_of(cell).key()


def _line(item: Item, row: Row) -> str:
    scal = f"  scalability {row['scalability']:.3f}" if row["scalability"] is not None else ""
    law = row["predicted_step_time_s"]
    against = f" (law {law:.3f})" if law is not None else ""
    took = clock(time.monotonic() - item.began)
    return f"{item.cell.title}  rep {item.rep}  step {row['step_time_s']:.3f} s{against}{scal}  in {took}"


@contextmanager
def control_folder() -> Iterator[Path]:
    """A private folder for rendezvous files and logs. It is removed at the end, or after a crash by the next run."""
    sweep_stale()
    folder = Path(tempfile.mkdtemp(prefix="wanbench-"))
    try:
        write_owner(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event. SIGINT needs a handler: background jobs inherit it ignored.

    Only the main thread gets signals. In another one, the caller decides what they do.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {s: signal.signal(s, lambda *_: event.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
