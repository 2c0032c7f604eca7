"""Cells on netem through the command line: they agree with the relay, and they need no root."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import nobody
import pytest
from cli_session import WANBENCH, Bench
from nobody import NOBODY

pytestmark = [pytest.mark.netem, pytest.mark.timed]

# One slow processor can carry this easily: bytes / rate is the same.
AGREEMENT = {
    "smoke": ["--set", "workload.payload_scale=0.005", "--set", "workload.step_time=100ms"],
    "world4": [
        *["--set", "workload.payload_scale=0.0005", "--set", "sweep.workers=[4]", "--set", "run.repeats=1"],
        *["--only", "algorithm=ssgd", "--only", "algorithm=dts-d4-p4"],
    ],
}  # fmt: skip
TRIES = 4  # for a busy host
GLOO = """
schema = 1
name = "gloo"

[workload]
params = 4_000
tensors = 4
step_time = "300ms"

[network]
rate = "20Mbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[comm]
collective = "gloo"

[algorithms]
ssgd = {}

[sweep]
workers = [4]
rtt = ["40ms"]

[run]
repeats = 1
emulator = "netem"
"""


def step_times(rows):
    """Return the median of all repetitions by algorithm and RTT, then by emulator."""
    cells = {}
    for row in rows:
        by = cells.setdefault((row["algorithm"], row["rtt_ms"]), {})
        by.setdefault(row["emulator"], []).append(row["step_time_s"])
    return {cell: {name: statistics.median(times) for name, times in by.items()} for cell, by in cells.items()}


@pytest.mark.parametrize("experiment", ["smoke", pytest.param("world4", marks=pytest.mark.long)])
def test_netem_and_relay_agree_on_step_times(bench, capsys, experiment):
    command = ["run", experiment, *AGREEMENT[experiment], "--set", 'sweep.emulator=["relay", "netem"]']
    for _ in range(TRIES):
        result = bench.run(*command, "--jobs", "1", "--out", "out", "--no-figures")
        if result.code == 0:
            break
    assert result.code == 0, result.err
    cells = step_times([row for row in bench.rows(experiment) if row["workers"] > 1])
    with capsys.disabled():
        print(f"\n{experiment:12} {'rtt ms':>7} {'relay s':>8} {'netem s':>8} {'differ by':>9}")
        for (algorithm, rtt_ms), by in sorted(cells.items()):
            times = f"{by['relay']:>8.4f} {by['netem']:>8.4f} {by['netem'] / by['relay'] - 1:>+9.1%}"
            print(f"{algorithm:12} {rtt_ms:>7g} {times}")
    assert len(cells) > 1
    for by in cells.values():
        assert by["netem"] == pytest.approx(by["relay"], rel=0.05)


@pytest.fixture
def bench_of_nobody():
    """Return a working folder that every user can enter: those of pytest are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    here = Bench(folder)
    yield here
    here.close()
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody; as another user, all of this runs without")
def test_four_ranks_train_with_gloo_on_netem_without_root(bench_of_nobody):
    bench = bench_of_nobody
    spec = bench.spec(GLOO)
    for name in ("out", "tmp"):
        (bench.folder / name).mkdir()
        os.chown(bench.folder / name, NOBODY, NOBODY)
    as_nobody = [sys.executable, nobody.__file__, *WANBENCH]
    command = bench.start("run", spec, "--out", "out", "--no-figures", program=as_nobody)
    result = command.wait()
    assert result.code == 0, result.err
    (row,) = [row for row in bench.rows("gloo") if row["workers"] == 4]
    assert (row["emulator"], row["collective"], row["status"]) == ("netem", "gloo", "ok")
    assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.15)
    assert (bench.folder / "out/gloo").stat().st_uid == NOBODY
    assert command.left_nothing(within_s=5)
