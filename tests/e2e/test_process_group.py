"""The process group `wan` in place of gloo, for programs that know nothing of it, on an emulated network."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
NETWORK = ["--profile", "uniform", "--rtt", "20ms", "--rate", "200Mbit", "-n", "3"]

SWEEP = f"""
schema = 1
name = "groups"

[workload]
command = [{sys.executable!r}, "ddp.py"]
step_times = "hook"

[network]
rate = "1Gbit"

[sweep]
workers = [4]
rtt = ["60ms"]
collective = ["gloo", "direct", "hierarchical"]

[run]
repeats = 1
"""


def test_fsdp_powersgd_zero_dtensor_and_objects_give_the_same_results_as_on_gloo(bench):
    def lines(collective: str) -> list[str]:
        program = [sys.executable, str(PROGRAMS / "frameworks.py")]
        result = bench.run("exec", *NETWORK, "--collective", collective, "--", *program)
        assert result.code == 0, result.err
        return [line.partition("] ")[2] for line in result.out.splitlines()]

    gloo = lines("gloo")
    assert [line.split()[0] for line in gloo] == ["sharded", "compressed", "redundant", "tensors", "objects"]
    assert lines("direct") == gloo
    assert lines("hierarchical") == gloo


def test_an_unmodified_script_is_swept_over_collectives_and_waits_half_a_round_trip(bench):
    shutil.copy(PROGRAMS / "ddp.py", bench.folder)
    bench.spec(SWEEP)
    bench.measure("spec.toml", "--no-figures", "--jobs", "1")
    took = {row["collective"]: row["step_time_s"] for row in bench.rows("groups") if row["workers"] == 4}
    assert took["gloo"] > 6 * 0.060  # 2 (N-1) round trips
    assert 0.029 < took["direct"] < 0.3 * took["gloo"]  # half a round trip: 2.6 kB go whole to every worker
    assert took["hierarchical"] < 0.7 * took["gloo"]  # a round trip


def test_a_program_can_ask_for_the_group_by_name(bench):
    script = (PROGRAMS / "ddp.py").read_text().replace('init_process_group("gloo")', 'init_process_group("wan")')
    (bench.folder / "wan.py").write_text(script)
    result = bench.run("exec", *NETWORK, "--", sys.executable, "wan.py")
    assert result.code == 0, result.err
    totals = [line.rpartition(" ")[2] for line in result.out.splitlines()]
    assert len(totals) == 3
    assert len(set(totals)) == 1


def test_a_rank_that_ends_without_a_word_is_named_by_the_others(bench):
    (bench.folder / "gone.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('wan')\n"
        "dist.barrier()\n"
        "if dist.get_rank() == 1: os._exit(0)\n"
        "dist.all_reduce(torch.ones(3))\n"
    )
    result = bench.run("exec", *NETWORK, "--", sys.executable, "gone.py")
    assert result.code == 1
    reason = r"CommError: direct: all_reduce failed: (rank 1 closed the connection|the connection to rank 1 broke)"
    assert re.search(reason, result.err), result.err
