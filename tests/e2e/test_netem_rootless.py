"""Training with gloo on netem, from start to end without root."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nobody
import pytest
from cli_session import WANBENCH, Bench
from nobody import NOBODY

# Workers train on netem, and namespaces are made without root, each time.
pytestmark = [pytest.mark.netem, pytest.mark.timed, pytest.mark.long]

SPEC = """
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
window = "10 steps"
emulator = "netem"
"""


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
    spec = bench.spec(SPEC)
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
    assert command.left_nothing()
