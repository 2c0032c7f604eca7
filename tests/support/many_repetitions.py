"""Runs of many repetitions that measure nothing, and a count of what they do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from on_relay import planned

from wanbench.harness.plan.load import Capacity
from wanbench.harness.plan.plan import Plan
from wanbench.harness.plan.repetition import Repetition
from wanbench.harness.rep.sources import code_hash, sources_before
from wanbench.harness.results.claims import SharedRun, Watch
from wanbench.harness.results.columns import empty
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run import session
from wanbench.harness.run.progress import Reporter
from wanbench.harness.run.session import pending
from wanbench.harness.spec.experiment import Spec

HOST = Capacity(cores=2, memory_bytes=64e9)
REPEATS = 2
_SPEC = """\
schema = 1
name = "many"
[workload]
params = 1000
step_time = "10ms"
[algorithms]
ssgd = {{}}
[sweep]
workers = [2]
rtt = {rtts}
[run]
testbed = "virtual"
repeats = {repeats}
"""


def spec(repetitions: int) -> str:
    """A spec with a cell for every second repetition, and the one-worker cell."""
    return _SPEC.format(rtts=[f"{1 + place}ms" for place in range(repetitions // REPEATS)], repeats=REPEATS)


def plan(repetitions: int) -> Plan:
    """Its plan."""
    return planned(Spec.from_toml(spec(repetitions), "many.toml"), "many.toml")


def row_of(repetition: Repetition) -> dict[str, Any]:
    """What `measure` returns for a repetition, at once."""
    measured = {"status": "ok", "step_time_s": 0.01 * repetition.workers, "sources": sources_before(repetition.inputs)}
    return {**empty(), **repetition.columns, **measured}


def finished(folder: RunFolder, made: Plan) -> None:
    """Write every repetition of a plan."""
    folder.prepare("", made.to_json(), {"schema": 1})
    for cell in made.cells:
        for rep in range(REPEATS):
            row: Any = {
                **row_of(cell.repetition(rep)),
                "run": folder.name,
                "code": code_hash(sources_before(cell.inputs)),
            }
            folder.finish(cell, rep, folder.begin(cell, rep), row)


def executed(folder: RunFolder, made: Plan, monkeypatch) -> None:
    """Run a plan; its repetitions measure nothing."""
    monkeypatch.setattr(session, "measure", lambda repetition, *_: row_of(repetition))
    monkeypatch.setattr("os.fsync", lambda _: None)
    folder.prepare("", made.to_json(), {"schema": 1})
    todo = pending(list(made.cells), REPEATS, folder, "here")
    with closing(SharedRun(folder.path, Watch(folder.path))) as shared:
        session.execute(todo, shared, 2, HOST, Reporter(len(todo)))


@contextmanager
def calls() -> Iterator[list[int]]:
    """Count the calls in this thread: of functions, generators and builtins."""
    found = [0]

    def count(_frame: Any, event: str, _argument: Any) -> None:
        found[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(None)


@contextmanager
def instructions(module: ModuleType) -> Iterator[list[int]]:
    """Count the instructions of a module's own code in this thread."""
    found = [0]

    def count(frame: Any, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        found[0] += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield found
    finally:
        sys.settrace(before)


def growth(
    work: Callable[[RunFolder, Plan], object],
    root: Path,
    few: int,
    many: int,
    counted: Callable[[], AbstractContextManager[list[int]]] = calls,
    before: Callable[[RunFolder, Plan], object] = lambda folder, made: None,
) -> float:
    """How many times as much `work` does per repetition for `many` repetitions as for `few`."""
    each = []
    for repetitions in (few, few, many):  # the first time, modules are imported
        folder, made = RunFolder(root / f"{repetitions}-{len(each)}" / "many"), plan(repetitions)
        before(folder, made)
        with counted() as found:
            work(folder, made)
        each.append(found[0] / repetitions)
    return each[2] / each[1]
