"""Base and head alternately: A B, B A, A B, ... Each is measured by its own code, one repetition at a time.

The code of a revision only needs `wanbench run`, which resumes: `run.repeats = r + 1` adds repetition r. So a base
without `check` can be measured too.
"""

from __future__ import annotations

import math
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.errors import (
    EXIT_FAILED,
    EXIT_HOST,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_SPEC,
    HostError,
    Interrupted,
    SpecError,
)
from wanbench.harness.gate.measured import Sides, other_machine
from wanbench.harness.gate.noise import HostNoise
from wanbench.harness.gate.sides import HOOK, Side
from wanbench.harness.gate.verdict import name, name_of
from wanbench.harness.plan.cell import Cell
from wanbench.harness.process.git import environment
from wanbench.harness.results.columns import Row
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import StopRequest, stoppable
from wanbench.harness.spec.command import files
from wanbench.harness.spec.tables import GateTable
from wanbench.netprofiles import toml_text
from wanbench.workloads.process.namespace import die_with_parent

_GRACE_S = 60.0  # for a run that was asked to stop
_TICK_S = 0.2

Axes = Mapping[str, Any]


class CannotRun(Exception):
    """The code of the base refuses the spec, with this message."""


@dataclass(frozen=True)
class RunRequest:
    """The command line of `run` without the number of repetitions.

    Attributes:
        spec: its file. name: of the experiment. excluded: `sweep.exclude` of the spec. options: further arguments.
        commands: those of its cells, which run in the folder of the spec.
    """

    spec: Path
    name: str
    excluded: tuple[Axes, ...]
    options: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...] = ()


class Measurement:
    """The repetitions of one side, in its own folder."""

    def __init__(self, side: Side, request: RunRequest, out: Path) -> None:
        self.side, self._request, self._out = side, request, out
        self.folder = RunFolder(out / request.name)
        self._passed_on: set[str] = set()
        self._record = out / "imports.jsonl"
        self.ran: dict[str, str] = {}  # digests of the files of its checkout that it ran, by path in it
        self._spec = request.spec
        if side.own is not None and request.commands:  # they run in the folder of the spec
            self._spec = side.own.copied(request.spec)

    def rows(self) -> list[Row]:
        """The rows so far."""
        if not self.folder.path.is_dir():
            return []
        content = self.folder.read()
        return [*content.rows, *content.earlier]  # the plan of a round does not have the cells that it leaves out

    def measure(self, repeats: int, leave_out: Iterable[Axes]) -> None:
        """Measure up to `repeats` repetitions of all cells except those left out.

        Raises:
            CannotRun: the base refuses the spec, as an earlier version can. SpecError: the head refuses it.
            OtherFiles: it ran files that are not its own.
            HostError: this host cannot run it, or it ended with an unexpected status.
            Interrupted: the user stopped it.
        """
        left_out = [*self._request.excluded, *leave_out]
        sets = [*self.side.assignments, f"run.repeats={repeats}"]
        sets += [f"sweep.exclude={toml_text.value(left_out)}"] if left_out else []
        assigned = [part for assignment in sets for part in ("--set", assignment)]
        command = [self.side.python, "-P", "-m", "wanbench.harness.cli", "run", str(self._spec), "--no-figures",
                   "--out", str(self._out), *self._request.options, *assigned]  # fmt: skip
        self._out.mkdir(parents=True, exist_ok=True)
        code, last = _run(command, self.side, self._record, self._say)
        if self.side.own is not None:
            scripts = {path for command in self._request.commands for path in files(command, self._spec.parent)}
            self.ran = self.side.own.prove(self.side.role, self._record, sorted(scripts))
        if code == EXIT_SPEC:
            raise CannotRun(last) if self.side.role == "base" else SpecError(f"head ({self.side.title}): {last}")
        if code == EXIT_HOST:
            raise HostError(f"{self.side.role} ({self.side.title}): {last}")
        if code not in {EXIT_OK, EXIT_FAILED}:
            raise HostError(f"{self.side.role} ({self.side.title}): `wanbench run` ended with status {code}: {last}")

    def _say(self, line: str) -> None:
        """Print a line to stderr, but only once if rounds repeat it."""
        if line not in self._passed_on:
            self._passed_on.add(line)
            print(f"{self.side.role}: {line}", file=sys.stderr, flush=True)


def turns(first: int, last: int, base: Measurement, head: Measurement) -> Iterable[tuple[int, Measurement]]:
    """(round, side) in the order of measuring. The first side alternates, so that a steady drift cancels."""
    for index in range(first, last):
        for side in (base, head) if index % 2 == 0 else (head, base):
            yield index, side


def _run(command: Sequence[str], side: Side, record: Path, say: Callable[[str], None]) -> tuple[int, str]:
    """Run a command: (exit status, last line on stderr). `say` gets every line. Raises: Interrupted."""
    parent = os.getpid()
    given = environment()
    own = side.own.environment(record) if side.own is not None else {}
    path = os.pathsep.join(filter(None, [str(HOOK) if own else "", *side.path, given.get("PYTHONPATH")]))
    last = ""
    # An exception from a signal handler can get lost while Python forks, but an event cannot.
    with stoppable() as stopped:
        process = subprocess.Popen(
            command,
            cwd=side.folder,
            env=given | own | ({"PYTHONPATH": path} if path else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),
        )
        with process:
            for line in _lines(process, stopped):
                say(line)
                last = line.strip() or last
    if stopped.is_set() or process.returncode in {-signal.SIGINT, EXIT_INTERRUPTED}:
        raise Interrupted("interrupted; nothing was judged")
    return process.returncode, last.removeprefix("wanbench: ")


def _lines(process: subprocess.Popen[bytes], stopped: StopRequest) -> Iterator[str]:
    """The lines of the process on stderr. It is interrupted when we are, and killed if it does not stop."""
    assert process.stderr is not None
    rest, deadline_s = b"", math.inf
    while True:
        if stopped.is_set() and deadline_s == math.inf:
            process.send_signal(signal.SIGINT)
            deadline_s = time.monotonic() + _GRACE_S
        if time.monotonic() > deadline_s:
            process.kill()
        if not select.select([process.stderr], [], [], _TICK_S)[0]:
            continue
        part = os.read(process.stderr.fileno(), 1 << 16)
        if not part:
            return
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


class Pair:
    """The measurements of base and head while they are compared."""

    def __init__(self, cells: Sequence[Cell], order: RunRequest, folder: Path, base: Side, head: Side) -> None:
        """`cells`: those to compare. `folder`: for the results of both sides; earlier ones are removed."""
        self._cells = cells
        self._done = 0
        for side in (base, head):
            shutil.rmtree(folder / side.role, ignore_errors=True)
        self.base = Measurement(base, order, folder / base.role)
        self.head = Measurement(head, order, folder / head.role)
        self.files = {"base": str(self.base.folder.path), "head": str(self.head.folder.path)}

    def measure(self, rounds: int, only: Collection[str]) -> None:
        """Measure up to this many rounds of the cells in `only` (all if empty), except failed and exact ones.

        Raises: as `Measurement.measure`.
        """
        for index, side in turns(self._done, rounds, self.base, self.head):
            leave_out = self._left_out(only) if index else ()
            print(f"check: round {index + 1} of {rounds}, {side.side.role}", file=sys.stderr, flush=True)
            if leave_out is None:
                break
            side.measure(index + 1, leave_out)
        self._done = rounds
        for side in (self.base, self.head):  # if the host was busy: once more, after the other cells
            doubtful = {name(row) for row in side.rows() if row["status"] == "invalid"}
            leave_out = self._left_out(doubtful)
            if doubtful and leave_out is not None:
                side.measure(rounds, leave_out)

    def sides(self, gate: GateTable, noise: HostNoise) -> Sides:
        """The results of both sides so far."""
        machines = [side.folder.manifest() for side in (self.base, self.head)]
        return Sides(self.base.rows(), self.head.rows(), gate, other_machine(*machines), noise.wire_band)

    def _left_out(self, only: Collection[str]) -> list[Mapping[str, Any]] | None:
        """Axes of the cells to leave out, None if no other cell is left. One-worker cells follow the others."""
        rows = [*self.base.rows(), *self.head.rows()]
        # More repetitions cannot change cells that failed on one side, or are simulated.
        settled = {name(row) for row in rows if row["status"] == "failed" or row["testbed"] == "virtual"}
        names = {name_of(cell): cell for cell in self._cells if not cell.is_baseline}
        unsettled = [cell for cell in names if cell not in settled]
        # If only one-worker cells are wanted, the first cell of several workers brings its own.
        keep = [cell for cell in unsettled if not only or cell in only] or unsettled[:1]
        return [dict(cell.axes) for text, cell in names.items() if text not in keep] if keep else None
