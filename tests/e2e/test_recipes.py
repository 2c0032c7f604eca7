"""The recipes of the documentation: programs that nobody here wrote, each with its real packages."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_session import WANBENCH, Bench

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/recipes.md").read_text()
RECIPES = dict(re.findall(r"^<!-- recipe: (\S+) -->\n```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
PACKAGES = ROOT / "build/recipes/bin"
PATH = os.pathsep.join([str(PACKAGES), str(Path(sys.executable).parent), os.environ["PATH"]])
pytestmark = pytest.mark.long


def loss(out: str) -> str:
    (found,) = re.findall(r"loss (\d\.\d+)", out)
    return found


def alone(processes: int, script: str) -> str:
    """Return the loss of the same program on this host, without wanbench."""
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", str(processes), script]
    done = subprocess.run(torchrun, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return loss(done.stdout)


def same_loss(processes: int, script: str) -> Callable[[str], bool]:
    return lambda out: loss(out) == alone(processes, f"examples/recipes/{script}")


def steps_took(at_least_ms: float) -> Callable[[str], bool]:
    return lambda out: min(map(float, re.findall(r"([\d.]+) ms per step", out))) > at_least_ms


CLAIMS: dict[str, Callable[[str], bool]] = {
    "ddp": steps_took(50),
    "fsdp": same_loss(2, "fsdp.py"),
    "gpt": same_loss(2, "gpt.py"),
    "accelerate": same_loss(2, "with_accelerate.py"),
    "lightning": same_loss(2, "with_lightning.py"),
    "torchrun-static": same_loss(4, "fsdp.py"),
    "torchrun-c10d": same_loss(2, "fsdp.py"),
    "torchft": lambda out: len(re.findall("replica . of 2", out)) == 2 and len({*re.findall(r"sum (\S+)", out)}) == 1,
    "hivemind": lambda out: re.findall(r"mean (\S+)", out) == ["0.5", "0.5"],
    "ray": lambda out: "ran on w0-0,w1-1; means [249999.5]" in out,
    "dask": lambda out: f"ran on w0-0,w1-1; sum {sum(range(20_000))}" in out,
    "mpi": lambda out: sorted(re.findall(r"on (\S+): mean 1.5", out)) == ["w0-0", "w1-1", "w2-2", "w3-3"],
}


def test_every_recipe_has_a_claim():
    assert CLAIMS.keys() == RECIPES.keys()


@pytest.fixture
def bench(monkeypatch):
    """A working folder that every user may use, with the examples and their packages."""
    monkeypatch.setenv("PATH", PATH)
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/var/tmp"))
    for path in (folder, folder / "tmp"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    here = Bench(folder)
    yield here
    here.close()
    shutil.rmtree(folder)


def shared() -> dict[str, object]:
    """What all programs of this host share, and a run must leave as it was; devices and processes: see `Command`."""
    return {
        **{name: sorted(os.listdir(name)) for name in ("/dev/shm", "/tmp")},
        "mounts": Path("/proc/self/mounts").read_text(),
        "name": os.uname().nodename,
    }


def words(name: str) -> list[str]:
    program, *rest = shlex.split(RECIPES[name])
    assert (program, rest[0]) == ("wanbench", "exec")
    return ["exec", "--timeout", "3min", *rest[1:]]


@pytest.mark.parametrize("user", ["root", "nobody"])
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_does_what_it_would_without_wanbench_and_leaves_nothing(bench, name, user):
    before = shared()
    as_user = [sys.executable, str(ROOT / "tests/support/nobody.py"), *WANBENCH] if user == "nobody" else None
    result = bench.run(*words(name), program=as_user)
    if name == "hivemind" and not (result.code == 0 and CLAIMS[name](result.out)):
        result = bench.run(*words(name), program=as_user)  # one of five rounds fails: peers lose parts of the mean
    assert result.code == 0, result.out + result.err
    assert "exchanged next to nothing" not in result.err
    assert CLAIMS[name](result.out), result.out
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
@pytest.mark.parametrize("name", RECIPES)
def test_an_ended_recipe_leaves_nothing(bench, name, number):
    before = shared()
    command = bench.start(*words(name))
    command.until(lambda: list(bench.folder.glob("results/exec-*")))
    time.sleep(4)  # amid the imports, or the steps
    command.process.send_signal(number)
    command.wait()
    assert command.left_nothing()
    assert {name: now for name, now in shared().items() if now != before[name]} == {}
