"""A user's script as a workload: swept, timed, stored and resumed like a built-in one."""

import json
import shutil
import signal
import statistics
import sys
from pathlib import Path

import pandas as pd
import pytest

from wanbench.harness.analysis.summary import LITTLE

PROGRAMS = Path(__file__).parent / "programs"

DDP = f"""
schema = 1
name = "mine"

[workload]
command = [{sys.executable!r}, "ddp.py"]
step_times = "hook"

[sweep]
workers = [2]
rtt = ["5ms", "50ms"]
collective = ["gloo"]

[run]
repeats = 1
"""

CASES = f"""
schema = 1
name = "cases"

[workload]
command = [{sys.executable!r}, "cases.py", "--rounds", "{{rounds}}"]
timeout = "TIMEOUT"

[sweep]
workers = [2]
rtt = ["1ms"]
rounds = [8]
case = CASES

[run]
repeats = 1
"""


def cases(bench, *names, timeout="10s"):
    shutil.copy(PROGRAMS / "cases.py", bench.folder)
    return bench.spec(CASES.replace("CASES", json.dumps(names)).replace("TIMEOUT", timeout))


@pytest.fixture(scope="module")
def ddp(shared_bench):
    shutil.copy(PROGRAMS / "ddp.py", shared_bench.folder)
    shared_bench.measure(shared_bench.spec(DDP))
    return shared_bench


def test_a_data_parallel_script_is_swept_and_pays_for_every_round_trip(ddp):
    rows = {(row["rtt_ms"], row["collective"]): row for row in ddp.rows("mine") if row["workers"] == 2}
    assert set(rows) == {(5, "gloo"), (50, "gloo")}
    near, far = rows[5, "gloo"], rows[50, "gloo"]
    for row in (near, far):
        assert row["step_time_s"] > 2 * row["rtt_ms"] / 1e3  # gloo on two workers: 2(N-1) round trips per all-reduce
        assert (row["steps"], row["step_times"]) == (7, "hook")  # ten, without three warm-up steps
        assert row["wire_bytes"] > 10 * 650 * 4
    assert near["step_time_s"] < far["step_time_s"]
    assert near["scalability"] > far["scalability"]
    unknown = ("compute_s", "stall_s", "overhead_s", "predicted_step_time_s", "final_loss", "accuracy")
    assert {far[name] for name in unknown} == {None}


def test_its_steps_logs_and_figures_are_stored(ddp):
    (rep,) = (ddp.folder / "out/mine/cells").glob("ddp-w2-collectivegloo-rtt50ms-*/rep-0")
    steps = pd.read_parquet(rep / "steps.parquet")
    assert steps.groupby("rank").size().to_dict() == {0: 10, 1: 10}
    assert "rank 1 of 2" in (rep / "rank-1.out.log").read_text()
    drawn = {path.stem for path in (ddp.folder / "out/mine/figures").glob("*.png")}
    assert "step-time" in drawn
    scalability = statistics.median(row["scalability"] for row in ddp.rows("mine") if row["workers"] == 2)
    # one worker needs almost no time, except where the processors are busy
    assert any(name.startswith("scalability") for name in drawn) == (scalability >= LITTLE)


def test_results_of_a_changed_script_are_not_mixed_with_old_results(ddp):
    script = ddp.folder / "ddp.py"
    script.write_text(script.read_text() + "# another one\n")
    result = ddp.run("run", "spec.toml", "--out", "out")
    assert result.code == 2
    assert "3 repetitions were measured by other code" in result.last_line
    assert ddp.run("run", "spec.toml", "--out", "out", "--no-figures", "--keep").code == 0


@pytest.mark.long  # in containers, a script uses the group in place of gloo each time
def test_with_another_collective_the_same_script_waits_for_half_a_round_trip(bench):
    shutil.copy(PROGRAMS / "ddp.py", bench.folder)
    bench.measure(
        bench.spec(DDP.replace('rtt = ["5ms", "50ms"]', 'rtt = ["50ms"]').replace('["gloo"]', '["gloo", "direct"]'))
    )
    rows = {row["collective"]: row["step_time_s"] for row in bench.rows("mine") if row["workers"] == 2}
    assert 0.024 < rows["direct"] < rows["gloo"]  # 2.6 kB go whole to the other worker


def test_a_failure_and_a_hang_fail_only_their_own_cells(bench):
    spec = cases(bench, "failing", "hanging", "stepping", "silent")
    result = bench.run("run", spec, "--out", "out", "--no-figures")
    assert result.code == 4
    rows = {(row["workers"], row["params"]["case"]): row for row in bench.rows("cases")}
    assert rows[2, "failing"]["reason"] == "rank 1 failed with status 1"
    assert "rank-1: no such thing as a free lunch" in result.err
    assert rows[2, "hanging"]["reason"] == (
        "hung: ranks 0, 1 had not ended after 10 s (workload.timeout); the 2 workers exchanged next to nothing: the "
        "program must form its group from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )
    assert {key for key, row in rows.items() if row["status"] == "failed"} == {(2, "failing"), (2, "hanging")}
    stepping, silent = rows[2, "stepping"], rows[2, "silent"]
    assert (stepping["steps"], stepping["step_times"]) == (5, "step")
    assert stepping["step_time_s"] >= 0.05
    assert stepping["collective"] is None
    assert (silent["steps"], silent["step_times"]) == (None, "total")
    assert silent["step_time_s"] >= 8 * 0.05
    assert bench.commands[0].left_nothing()


def test_an_interrupted_command_leaves_nothing_and_the_run_is_resumed(bench):
    spec = cases(bench, "stepping", "hanging", timeout="100s")
    command = bench.start("run", spec, "--out", "out", "--no-figures")
    command.until(lambda: _logs(bench).count("up") == 2)
    command.process.send_signal(signal.SIGINT)
    assert command.wait().code == 130
    assert command.left_nothing()
    finished = bench.finished("cases")
    assert len(finished) >= 2
    again = bench.run("run", spec, "--out", "out", "--no-figures", "--only", "case=stepping")
    assert again.code == 0, again.err
    assert finished.items() <= bench.finished("cases").items()


def test_a_missing_program_is_reported_in_one_line(bench):
    spec = cases(bench, "stepping")
    text = (bench.folder / spec).read_text().replace(sys.executable, "no-such-python")
    result = bench.run("run", bench.spec(text), "--out", "out")
    assert result.code == 2
    assert result.last_line == (
        "wanbench: workload.command: no-such-python: no such program here; give a path, or a command on PATH"
    )


def _logs(bench):
    return bench.written("out/cases/cells/*/rep-0.*part/rank-*.out.log")
