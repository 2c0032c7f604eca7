"""The virtual testbed as users run it: without privileges, and with the same bytes each time."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from cli_session import SOON_S, WANBENCH
from contract import CONTRACT

# the user nobody, who only has the right to read this checkout
_RIGHTS = "-all,+dac_read_search"
NOBODY = [
    "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", f"--inh-caps={_RIGHTS}",
    f"--ambient-caps={_RIGHTS}", f"--bounding-set={_RIGHTS}", *WANBENCH,
]  # fmt: skip


def simulate(bench, *arguments, program=None):
    result = bench.run("run", *arguments, "--testbed", "virtual", program=program)
    assert result.code == 0, result.err


def seeded(bench, seed, program=WANBENCH):
    """Return a `wanbench` in a process of its own, with this seed of hashes in place of a random one."""
    return ["env", f"PYTHONHASHSEED={seed}", f"MPLCONFIGDIR={bench.folder}/tmp", *program]


@pytest.fixture(scope="module")
def smoke(shared_bench):
    simulate(shared_bench, "smoke", "--out", "out")
    return shared_bench


def test_smoke_stores_rows_with_every_column(smoke):
    rows = smoke.rows("smoke")
    assert len(rows) == 5
    for row in rows:
        assert set(row) >= CONTRACT
        assert (row["status"], row["testbed"], row["emulator"], row["wire_bytes"]) == ("ok", "virtual", None, None)
        assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.05)


def test_a_repetition_stores_its_steps_and_its_network(smoke):
    reps = sorted((smoke.folder / "out/smoke").glob("cells/*/rep-0"))
    assert len(reps) == 5
    for rep in reps:
        files = {"result.json", "steps.parquet", "network.json"}
        files |= set() if "one-worker" in rep.parts[-2] else {"messages.parquet"}
        assert {path.name for path in rep.iterdir()} == files
        network = json.loads((rep / "network.json").read_text())
        idle = "one-worker" in rep.parts[-2]
        buffer = 64 * 2**20  # bytes; on so slow a network
        expected = {"ramp": True, "slow_start_after_idle": idle, "congestion": "reno", "largest_window": buffer / 2}
        assert network["tcp"] == expected | {"send_queue": 0.98 * buffer}
        steps = pd.read_parquet(rep / "steps.parquet")
        assert (steps["compute_s"] + steps["stall_s"]).to_numpy() == pytest.approx(steps["step_time_s"].to_numpy())


def test_running_again_simulates_nothing(smoke):
    again = smoke.run("run", "smoke", "--testbed", "virtual", "--out", "out", "--no-figures")
    assert (again.code, again.out) == (0, "out/smoke\n")
    assert "5 reps, 0 to do" in again.err


def _files(folder):
    derived = [*folder.glob("figures/*"), folder / "results.parquet"]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in (*derived, *folder.glob("cells/*/*.json"), *folder.glob("cells/*/rep-0/*"))
    }


@pytest.mark.long  # two processes write the same bytes as one each time
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become the user nobody")
def test_another_process_another_user_and_another_hash_seed_give_the_same_bytes(smoke):
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # only root can read pytest's folders
        folder = Path(name)
        folder.chmod(0o777)
        (smoke.folder / "tmp").chmod(0o777)
        simulate(smoke, "smoke", "--out", name, program=seeded(smoke, 77, NOBODY))
        mine, others = _files(smoke.folder / "out/smoke"), _files(folder / "smoke")
    assert mine.keys() == others.keys()
    assert [name for name in mine if mine[name] != others[name]] == []


@pytest.mark.long  # weights equal those of an emulated run to the bit in each build
def test_real_training_repeats_to_the_byte(bench):
    spec = bench.spec(
        """
schema = 1
name = "digits"
workload = { name = "digits-cnn" }
network = { rtt = "100ms", rate = "1Gbit", jitter = "2ms", loss = "0.1%" }
algorithms = { ssgd = {}, dts = { delay = 4, period = 2 } }
sweep = { workers = [2] }
run = { repeats = 1 }
train = { until = "40 steps", lr = 0.1, momentum = 0.9 }
"""
    )
    for out, program in (("a", None), ("b", seeded(bench, 62))):
        simulate(bench, spec, "--out", out, "--no-figures", program=program)
    first, second = (_files(bench.folder / out / "digits") for out in ("a", "b"))
    assert first == second
    bench.out = bench.folder / "a"
    assert {row["algorithm"]: row["accuracy"] > 0.5 for row in bench.rows("digits")} == {
        "one-worker": True,
        "ssgd": True,
        "dts-d4-p2": True,
    }


def test_ctrl_c_ends_a_long_simulation_and_finished_repetitions_are_kept(bench):
    command = bench.start(
        "run", "latency-sweep", "--testbed", "virtual", "--set", "run.repeats=50", "--out", "out", "--no-figures"
    )
    command.until(lambda: bench.finished("latency-sweep"))
    command.process.send_signal(signal.SIGINT)
    result = command.wait(SOON_S)
    assert result.code == 130
    assert "interrupted" in result.last_line
    assert bench.finished("latency-sweep")
