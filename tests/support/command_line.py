"""Call the command line in this process, and make run folders for it to show."""

from __future__ import annotations

import json
import signal
import sys

import pytest
from click.testing import CliRunner, Result
from on_relay import planned

from wanbench.harness.cli import main
from wanbench.harness.results.row import describe
from wanbench.harness.results.store import RunFolder
from wanbench.harness.spec.experiment import Spec


@pytest.fixture(autouse=True)
def as_it_was(tmp_path, monkeypatch):
    """Undo what `wanbench` changes: it adds the working folder to the path, and `run` installs signal handlers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def wanbench(*args: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(main, args, input=stdin, prog_name="wanbench")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(*args: str, code: int = 2) -> str:
    """Return the output on stderr of a refused command; stdout must be empty."""
    result = wanbench(*args)
    assert result.exit_code == code
    assert result.stdout == ""
    return result.stderr.strip()


def data(*args: str):
    """Return the output of `--json`; stdout must hold nothing else."""
    result = wanbench(*args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def finished(tmp_path, name: str = "smoke", statuses: tuple[str, ...] = ("ok",) * 5) -> list[dict]:
    """Write a run folder as `run` does, with made-up times, and return its rows."""
    folder, rows = RunFolder(tmp_path / "results" / name), []
    plan = planned(Spec.load(name), name)
    folder.prepare(None, plan.to_json(), {})
    for cell, status in zip(plan.cells, statuses, strict=False):
        row = {**describe(cell, 0), "run": name, "status": status, "reason": None if status == "ok" else "it broke"}
        part = folder.begin(cell, 0)
        if status == "ok":
            step_time_s = 0.03 if cell.workers == 1 else 0.04
            times = {"compute_s": 0.03, "stall_s": step_time_s - 0.03, "overhead_s": 0.0, "step_time_s": step_time_s}
            row |= {**times, "scalability": 0.75, "steps": 20}
            folder.finish(cell, 0, part, row)
        else:
            folder.fail(cell, 0, part, {"row": row, "log_tail": []})
        rows.append(row)
    return rows
