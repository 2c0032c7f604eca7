"""Simulations side by side in processes: the same bytes as in one, and a process that dies fails its repetition."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from cli_session import SOON_S, TOLERANT, by_numbers

ALGORITHMS = "ssgd = {}\ndts = { delay = 4, period = 2 }"
RTTS = '["10ms", "40ms", "100ms"]'
# A `wanbench` that starts processes also for short simulations.
EAGER = [*TOLERANT[:-1], "import wanbench.harness.plan.load as load; load._SIMULATORS_S = 0.0; " + TOLERANT[-1]]
MODEL = """
import os, signal, torch

def make(rank, world_size, seed, batch_size):
    if rank == 0:
        print(f"seed {seed} in process {os.getpid()}")
    if rank == 1 and seed == 2:
        os._exit(255)  # no signal, although shells say 128 and more for those
    if rank == 1 and seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and seed == 4:
        raise ValueError("no such data")
    x = torch.randn(8, 16)
    return torch.nn.Linear(16, 1), [(x, torch.zeros(8, 1))], torch.nn.functional.mse_loss
"""
REASONS = {  # by repetition
    1: "the process of the simulation exited with status 255",
    2: "the process of the simulation was killed by SIGKILL, as the kernel does",
    3: "worker 1: workload.model: 'mine:make' raised ValueError: no such data",
}


def files(run: Path) -> dict[str, bytes]:
    """Return all files of a run but those with times, process ids, the command line, or the order of ends."""
    kept = {path.relative_to(run): path for path in run.rglob("*") if path.is_file()}
    others = ("digests.jsonl", "manifest.json", ".lock")
    return {str(n): path.read_bytes() for n, path in kept.items() if n.name not in others and n.parts[0] != "workers"}


def simulators(command) -> list[int]:
    """Return the processes that simulate: children of the fork server."""
    servers = command.children("wanbench.workloads.process.forkserver")
    return [pid for pid in command.pids() if _parent(pid) in servers]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture(autouse=True)
def all_processors():
    """Use all processors, also if these tests are pinned to one: a simulation has as many processes as processors."""
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count()))
    yield
    os.sched_setaffinity(0, ours)


@pytest.fixture
def spec(bench):
    """Return a spec of one-worker cells and twelve others, which two processes simulate."""
    bench.program = EAGER
    run = 'testbed = "virtual"'
    return bench.spec(by_numbers("often", ALGORITHMS, RTTS, 400, run=run).replace("repeats = 1", "repeats = 2"))


def test_two_processes_write_the_same_bytes_as_one(bench, spec):
    for jobs in ("1", "2"):
        command = bench.start("run", spec, "--jobs", jobs, "--out", f"jobs-{jobs}", "--no-figures")
        most = 0
        while command.process.poll() is None:
            most = max(most, len(simulators(command)))
            time.sleep(0.1)  # looking at every process costs time itself
        assert command.wait().code == 0
        assert most == (0 if jobs == "1" or os.cpu_count() == 1 else 2)
    one, two = (files(bench.folder / f"jobs-{jobs}/often") for jobs in (1, 2))
    assert len(one) > 60
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_a_process_that_dies_fails_its_repetition_and_the_run_goes_on(bench):
    (bench.folder / "mine.py").write_text(MODEL)
    spec = bench.spec(
        """
schema = 1
name = "learned"
workload = { model = "mine:make", step_time = "20ms" }
network = { rtt = "10ms" }
algorithms = { ssgd = {} }
sweep = { workers = [4] }
run = { repeats = 5, testbed = "virtual" }
train = { until = "600 steps", lr = 0.1 }
"""
    )
    result = bench.run("run", spec, "--jobs", "2", "--out", "out", "--no-figures")
    assert result.code == 4, result.err
    rows = {(row["workers"], row["rep"]): row for row in bench.rows("learned")}
    assert {key for key, row in rows.items() if row["status"] != "ok"} == {(4, rep) for rep in REASONS}
    assert len(rows) == 10
    for rep, reason in REASONS.items():
        assert rows[4, rep]["reason"].startswith(reason)
        assert reason in result.err
    in_process = [line.split() for line in result.err.splitlines() if line.startswith("seed ")]
    assert {seed for _, seed, *_ in in_process} >= {"1", "2", "3", "4", "5"}  # what a model prints is shown
    assert len({pid for *_, pid in in_process}) > 1
    (error,) = (bench.folder / "out/learned").glob("cells/*/rep-3.failed-1/error.json")
    assert "ValueError: no such data" in json.loads(error.read_text())["log_tail"][-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_all_processes_and_finished_repetitions_are_kept(bench, spec, number):
    command = bench.start("run", spec, "--set", "run.repeats=100", "--jobs", "2", "--out", "out", "--no-figures")
    command.until(lambda: bench.finished("often") and simulators(command))
    command.process.send_signal(number)
    result = command.wait(SOON_S)
    assert result.code == (-9 if number == signal.SIGKILL else 130)
    assert command.left_nothing() or (number == signal.SIGKILL and not command.processes())
    assert bench.finished("often")


def test_a_short_experiment_starts_no_process(bench):
    command = bench.start("run", "smoke", "--testbed", "virtual", "--jobs", "2", "--out", "out", "--no-figures")
    servers = set()
    while command.process.poll() is None:
        servers |= set(command.children("wanbench.workloads.process.forkserver"))
        time.sleep(0.05)
    assert command.wait().code == 0
    assert servers == set()


@pytest.mark.long  # with the libraries imported, processes start each time
def test_processes_start_without_anything_imported(bench, spec):
    """Commands of tests are forked from a process that has imported the libraries; a user's are not."""
    once = ("--set", "run.repeats=1", "--jobs", "2", "--no-figures")
    result = bench.start("run", spec, *once, "--out", "cold", program=EAGER, close_fds=True).wait()
    assert result.code == 0, result.err
