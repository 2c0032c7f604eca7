"""A `wanbench work` that measures nothing: its repetitions end at random as ok, invalid or failed.

    python pausing_worker.py NUMBER SEED BEAT_S RUN...

It works on one run after the other. Beside the first it appends a line to attempts-NUMBER.jsonl for every repetition
that it has measured, and to codes-NUMBER.jsonl its exit code of every run. `token` is a number that no other repetition
has: rows that are ok have it as their step time, all others as their reason. `claimed` is when the claim for it was
renamed, in seconds; None if it was already gone.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from wanbench.harness.cli import main
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.repetition import Repetition
from wanbench.harness.rep.sources import sources_before
from wanbench.harness.results import claims
from wanbench.harness.results.columns import empty
from wanbench.harness.run import session, together

OUTCOMES, WEIGHTS = ("ok", "invalid", "failed"), (6, 3, 2)


class Idle:
    """A testbed and its slot."""

    def open_slot(self, emulator: str) -> Idle:
        return self

    def kill(self) -> None:
        pass

    close = kill


class Measuring:
    """What stands for `measure`."""

    def __init__(self, log: Path, number: int, random: Random) -> None:
        self.log, self.random, self.run = log, random, ""
        self.tokens = count(100_000 * number + 1)
        self.claimed: dict[tuple[str, int], float | None] = {}
        take = claims.SharedRun.take

        def taken(run: claims.SharedRun, cell: Cell, rep: int, host: str | None = None) -> claims.Answer:
            answer = take(run, cell, rep, host)
            if answer is claims.Answer.MINE:
                self.claimed[cell.key, rep] = claimed_at(run, f"claims/{cell.key[:16]}-{rep}*")
            return answer

        claims.SharedRun.take = taken

    def __call__(self, repetition: Repetition, *_: Any) -> dict[str, Any]:
        columns = repetition.columns
        token = next(self.tokens)
        time.sleep(self.random.uniform(0.02, 0.2))
        (outcome,) = self.random.choices(OUTCOMES, WEIGHTS)
        claimed = self.claimed.pop((columns["cell_key"], columns["rep"]))
        what = {name: columns[name] for name in ("cell", "rep")}
        line = {"run": self.run, **what, "token": token, "claimed": claimed, "outcome": outcome}
        append(self.log, line)
        if outcome == "failed":
            raise RepFailed(str(token))
        reason = {} if outcome == "ok" else {"reason": str(token)}
        row = {**empty(), **columns, "sources": sources_before(repetition.inputs)}
        return {**row, "status": outcome, "step_time_s": float(token), **reason}


def claimed_at(run: claims.SharedRun, pattern: str) -> float | None:
    """When this worker's last claim was renamed."""
    found = []
    for path in run.path.glob(pattern):
        with suppress(FileNotFoundError):
            if (path / "owner").read_text() == run.journals.name:
                found.append(path.stat().st_ctime)
    return max(found, default=None)


def append(file: Path, line: object) -> None:
    """Append a line of JSON."""
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def work(measuring: Measuring, run: str) -> int:
    """The exit code of `wanbench work RUN`."""
    measuring.run = Path(run).name
    try:
        main(["work", run, "--jobs", "2"], prog_name="wanbench")
    except SystemExit as done:
        return int(done.code or 0)
    return 0


if __name__ == "__main__":
    number, seed, beat_s, *runs = sys.argv[1:]
    beside = Path(runs[0]).parent
    claims.BEAT_S = float(beat_s)
    session._LOOK_S = 0.05
    session.measure = Measuring(beside / f"attempts-{number}.jsonl", int(number), Random(f"{seed} {number}"))
    session.opened = lambda *_, **__: Idle()
    session.probe_network = lambda *_: {"ok": True, "reasons": [], "one_way_error_ms": 0.0}
    session.check_host = together.check_host = together._derive = lambda *_: None
    (beside / f"started-{number}").touch()
    while len([*beside.glob("started-*")]) < 2:  # one alone could be done with all runs
        time.sleep(0.01)
    for run in runs:
        append(beside / f"codes-{number}.jsonl", work(session.measure, run))
