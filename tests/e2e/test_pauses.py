"""A worker, its program, the relay or the controller that is stopped makes the repetition invalid; else it is valid."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import exec_claims
import pytest
from cli_session import CARRIED, by_numbers, patiently

pytestmark = pytest.mark.timed

SPEC = by_numbers("steady", "ssgd = {}", window=60, network=CARRIED)
RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")
PROGRAM = Path(__file__).parent / "programs" / "steady.py"
PAUSE_S = 0.3


def pauses(folder: Path) -> dict[str, float]:
    """Return the longest pause in seconds of everything that paused during a repetition."""
    found: dict[str, float] = {}
    for each in json.loads((folder / "network.json").read_text())["host"]["pauses"]:
        found[each["who"]] = max(found.get(each["who"], 0.0), each["seconds"])
    return found


def stop_for_a_while(*pids: int) -> float:
    """Stop processes, and return for how many seconds: on a busy host, longer than asked for."""
    began = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    return time.monotonic() - began


def stopped(bench, who: str) -> tuple[float, Path | None]:
    """Return for how many seconds it was stopped, and the folder of the invalid repetition, or None if it is valid."""
    shutil.rmtree(bench.out, ignore_errors=True)
    command = bench.start(*RUN)
    worker = command.until(lambda: command.training("ssgd", 1))
    time.sleep(0.7)  # warm by now
    stopped_s = 0.0
    with contextlib.suppress(ProcessLookupError, IndexError):  # it has ended
        pid = {"worker 1": worker, "the controller": command.process.pid}.get(who) or command.relays()[0]
        stopped_s = stop_for_a_while(pid)
    while not (failed := [*bench.out.glob("steady/cells/ssgd-*/rep-0.failed-1/error.json")]):
        if command.process.poll() is not None:
            return stopped_s, None
        time.sleep(0.05)
    command.process.terminate()  # it would measure once more
    command.wait()
    return stopped_s, failed[0].parent


@pytest.mark.parametrize("who", ["worker 1", "the relay", "the controller"])
def test_whoever_is_stopped_in_the_window_is_named_and_the_repetition_is_not_published(bench, who):
    bench.spec(SPEC)
    _, folder = patiently(lambda: stopped(bench, who), lambda found: found[0] > 2 * PAUSE_S or found[1] is None)
    assert folder is not None, bench.commands[-1].log.read_text()
    row = json.loads((folder / "error.json").read_text())["row"]
    assert row["status"] == "invalid"
    assert " did not run for 0." in row["reason"]
    assert row["paused_pct"] > 2
    assert 0.8 * PAUSE_S < pauses(folder)[who] < 5 * PAUSE_S


def test_an_undisturbed_repetition_is_valid_and_says_so(bench):
    bench.spec(SPEC)
    bench.measure("spec.toml", "--no-figures", "--jobs", "1")
    assert [row["status"] for row in bench.rows("steady")] == ["ok", "ok"]
    assert all(row["paused_pct"] <= 2.0 for row in bench.rows("steady"))


def executed(bench, *, stop: bool):
    command = bench.start(
        "exec", "--profile", "uniform", "--rtt", "1ms", "-n", "1", "--out", "out", "--", sys.executable, str(PROGRAM)
    )
    program = command.until(lambda: [pid for pid in command.processes() if _runs(pid)])
    if stop:
        time.sleep(0.5)
        stop_for_a_while(*program)
    return command.wait()


def _runs(pid: int) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return arguments[1:2] == [str(PROGRAM).encode()]


def test_a_program_that_is_stopped_alone_is_seen_by_the_worker_beside_it(bench):
    result = executed(bench, stop=True)
    assert result.code == 0, result.err
    row = exec_claims.row_of(result, bench)
    assert row["status"] == "invalid"
    assert "was stopped for 0." in row["reason"] or "more pauses" in row["reason"]
    assert row["paused_pct"] > 2
    assert "`verify` refuses these times" in result.err


def test_a_program_that_is_not_stopped_is_valid(bench):
    row = patiently(
        lambda: exec_claims.row_of(executed(bench, stop=False), bench), lambda row: row["status"] == "invalid"
    )
    assert (row["status"], row["steps"]) == ("ok", 37)
