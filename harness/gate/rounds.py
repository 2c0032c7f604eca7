"""Base and head by turns: A B, B A, A B, ... Each is measured by its own code, one repetition of all cells at a time.

All that is asked of the code of a revision is `wanbench run`, which resumes: repetition r is what `run.repeats = r + 1`
adds. So a base that never heard of `check` can be measured.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from wanbench.harness.gate.sides import Side
from wanbench.harness.results.columns import Row
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.session import stoppable
from wanbench.workloads.process.namespace import die_with_parent

_GRACE_S = 60.0  # for a run that was told to stop
_TICK_S = 0.2

Axes = Mapping[str, Any]


class CannotRun(Exception):
    """The code of a side refuses the spec; the message is what it said."""


@dataclass(frozen=True)
class RunRequest:
    """What is to be measured: the command line of `run`, but for the repetitions.

    Attributes:
        spec: file. name: of the experiment. excluded: `sweep.exclude` of the spec.
        options: further arguments.
    """

    spec: Path
    name: str
    excluded: tuple[Axes, ...]
    options: tuple[str, ...]


class Measurement:
    """The repetitions of one side, in a folder of its own."""

    def __init__(self, side: Side, request: RunRequest, out: Path) -> None:
        self.side, self._request, self._out = side, request, out
        self.folder = RunFolder(out / request.name)
        self._said: set[str] = set()

    def rows(self) -> list[Row]:
        """So far."""
        if not self.folder.path.is_dir():
            return []
        found = self.folder.read()
        return [*found.rows, *found.earlier]  # a round that leaves cells out has a plan without them

    def measure(self, repeats: int, leave_out: Iterable[Axes]) -> None:
        """Repetitions up to `repeats` of all cells but some.

        Raises:
            CannotRun: the side's code refuses the spec.
            HostError: it says that this host cannot, or ended in a way of its own.
            Interrupted: the user stopped it.
        """
        left_out = [*self._request.excluded, *leave_out]
        sets = [*self.side.assignments, f"run.repeats={repeats}"]
        sets += [f"sweep.exclude={toml(left_out)}"] if left_out else []
        assigned = [part for assignment in sets for part in ("--set", assignment)]
        command = [self.side.python, "-P", "-m", "wanbench.harness.cli", "run", str(self._request.spec), "--no-figures",
                   "--out", str(self._out), *self._request.options, *assigned]  # fmt: skip
        code, last = _run(command, self.side, self._say)
        if code == EXIT_SPEC:
            raise CannotRun(last)
        if code == EXIT_HOST:
            raise HostError(f"{self.side.role} ({self.side.title}): {last}")
        if code not in {EXIT_OK, EXIT_FAILED}:
            raise HostError(f"{self.side.role} ({self.side.title}): `wanbench run` ended with status {code}: {last}")

    def _say(self, line: str) -> None:
        """Pass a line on; what every round says is said once."""
        if line not in self._said:
            self._said.add(line)
            print(f"{self.side.role}: {line}", file=sys.stderr, flush=True)


def turns(first: int, last: int, base: Measurement, head: Measurement) -> Iterable[tuple[int, Measurement]]:
    """(round, side) in the order of measuring: which side goes first alternates, so a steady drift cancels."""
    for index in range(first, last):
        for side in (base, head) if index % 2 == 0 else (head, base):
            yield index, side


def toml(value: Any) -> str:
    """Plain data as a TOML value. Raises: SpecError: it has none."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str | bool | int | float):
        return json.dumps(value)
    raise SpecError(f"sweep: {value!r} cannot be written as TOML")


def _run(command: Sequence[str], side: Side, say: Callable[[str], None]) -> tuple[int, str]:
    """(exit status, last line on stderr); `say` gets every line. Raises: Interrupted."""
    parent = os.getpid()
    path = os.pathsep.join(filter(None, [*side.path, os.environ.get("PYTHONPATH")]))
    last = ""
    # An exception from a signal handler may get lost while Python forks; an event does not.
    with stoppable() as stopped:
        process = subprocess.Popen(
            command,
            cwd=side.folder,
            env=os.environ | ({"PYTHONPATH": path} if path else {}),
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


def _lines(process: subprocess.Popen[bytes], stopped: threading.Event) -> Iterator[str]:
    """What the process says on stderr; it is told to stop when we are, and killed if it does not."""
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
