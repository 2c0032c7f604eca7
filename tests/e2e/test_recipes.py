"""The recipes of the documentation: programs that nobody here wrote, each with its real packages."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
import recipes
from cli_session import WANBENCH, Bench

pytestmark = pytest.mark.long


def test_every_recipe_has_a_claim():
    assert recipes.CLAIMS.keys() == recipes.RECIPES.keys()


@pytest.fixture
def bench(monkeypatch):
    """A working folder that every user may use, with the examples and their packages."""
    monkeypatch.setenv("PATH", recipes.PATH)
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/var/tmp"))
    for path in (folder, folder / "tmp"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    (folder / "examples").symlink_to(recipes.ROOT / "examples")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    here = Bench(folder)
    yield here
    here.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize("script", recipes.ATTACHED)
def test_an_attached_loop_is_plain_ddp_with_ssgd_and_another_with_a_delay(script):
    losses = [
        float(recipes.alone(2, f"examples/recipes/{script}", **environment))
        for environment in ({}, {"WANBENCH_ALGORITHM": "ssgd"}, recipes.ATTACHED[script])
    ]
    assert losses[0] == losses[1]
    assert 0 < abs(losses[2] - losses[0]) < 0.05  # ten steps, whose averages arrive later


def shared() -> dict[str, object]:
    """What all programs of this host share, and a run must leave as it was; devices and processes: see `Command`.

    The folders of the processes from which the tests fork commands are their own.
    """
    return {
        **{
            folder: sorted(name for name in os.listdir(folder) if not name.startswith("wanbench-warm-"))
            for folder in ("/dev/shm", "/tmp")
        },
        "mounts": Path("/proc/self/mounts").read_text(),
        "name": os.uname().nodename,
    }


@pytest.mark.parametrize("user", ["root", "nobody"])
@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_recipe_does_what_it_would_without_wanbench_and_leaves_nothing(bench, name, user):
    before = shared()
    as_user = [sys.executable, str(recipes.ROOT / "tests/support/nobody.py"), *WANBENCH] if user == "nobody" else None
    recipes.run(bench, name, program=as_user)
    assert bench.commands[-1].left_nothing()
    assert {name: now for name, now in shared().items() if now != before[name]} == {}


SWEEP = """
schema = 1
name = "sweep"

[workload]
command = {command}
step_times = "hook"
warmup = "{warmup} steps"

[network]
rate = "100Mbit"

[sweep]
workers = [2]
rtt = ["5ms", "50ms", "200ms"]

[run]
repeats = 1
"""


@pytest.mark.parametrize(
    ("command", "warmup"),
    [(["python", "examples/recipes/gpt.py"], 3), (["examples/recipes/torchft_nodes.sh"], 8)],
    ids=["gpt", "torchft"],
)
def test_our_step_times_are_those_that_the_program_measures(bench, command, warmup):
    bench.measure(bench.spec(SWEEP.format(command=json.dumps(command), warmup=warmup)), "--no-figures", "--jobs", "1")
    rows = sorted((row for row in bench.rows("sweep") if row["workers"] == 2), key=lambda row: row["rtt_ms"])
    assert [row["rtt_ms"] for row in rows] == [5, 50, 200]
    for row in rows:
        logs = bench.written(f"out/sweep/cells/{row['cell']}/rep-0/rank-*.out.log")
        slowest = max(map(float, re.findall(r"([\d.]+) ms per step", logs)))
        print(f"RTT {row['rtt_ms']:g} ms: program {slowest} ms, wanbench {1000 * row['step_time_s']:.1f} ms")
        assert 1000 * row["step_time_s"] == pytest.approx(slowest, rel=0.02, abs=0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("name", recipes.RECIPES)
def test_an_ended_recipe_leaves_nothing(bench, name, number):
    before = shared()
    command = bench.start(*recipes.words(name))
    command.until(lambda: list(bench.folder.glob("results/exec-*")))
    time.sleep(4)  # amid the imports, or the steps
    command.process.send_signal(number)
    command.wait()
    assert command.left_nothing()
    assert {name: now for name, now in shared().items() if now != before[name]} == {}
