"""The process group `wan` in place of gloo, for programs that know nothing of it, on an emulated network."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NETWORK = ["--profile", "uniform", "--rtt", "20ms", "--rate", "200Mbit", "-n", "3"]


@pytest.mark.long  # a script uses the group in place of gloo in containers each time
@pytest.mark.parametrize("collective", ["direct", "hierarchical", "ring"])
def test_fsdp_powersgd_zero_dtensor_and_objects_give_the_same_results_as_on_gloo(bench, collective):
    def lines(collective: str) -> list[str]:
        program = [sys.executable, str(PROGRAMS / "frameworks.py")]
        result = bench.run("exec", *NETWORK, "--collective", collective, "--", *program)
        assert result.code == 0, result.err
        return [line.partition("] ")[2] for line in result.out.splitlines()]

    gloo = lines("gloo")
    assert [line.split()[0] for line in gloo] == ["sharded", "compressed", "redundant", "tensors", "objects"]
    assert lines(collective) == gloo


def test_a_rank_of_a_group_asked_for_by_name_that_ends_without_a_word_is_named_by_the_others(bench):
    (bench.folder / "gone.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('wan')\n"
        "dist.barrier()\n"
        "if dist.get_rank() == 1: os._exit(0)\n"
        "dist.all_reduce(torch.ones(3))\n"
    )
    result = bench.run("exec", *NETWORK[:-1], "2", "--", sys.executable, "gone.py")
    assert result.code == 1
    reason = r"CommError: direct: all_reduce failed: (rank 1 closed the connection|the connection to rank 1 broke)"
    assert re.search(reason, result.err), result.err


@pytest.mark.long  # names of sites are read as they are written each time, in tests/unit/wanbench
def test_a_site_with_a_comma_in_its_name_is_one_site(bench):
    (bench.folder / "net.csv").write_text('src,dst,rtt_ms,rate_mbps\n"London, UK",Tokyo,20,200\n')
    (bench.folder / "sum.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "from wanbench.workloads.group.settings import settings\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1)\n"
        "dist.all_reduce(total)\n"
        "print(int(total), os.environ['WANBENCH_SITE'], sorted(set(settings().sites)))\n"
    )
    program = ["--collective", "hierarchical", "--", sys.executable, "sum.py"]
    result = bench.run("exec", "--profile", "net.csv", "-n", "3", *program)
    assert result.code == 0, result.err
    sites = "['London, UK', 'Tokyo']"
    told = [f"3 {site} {sites}" for site in ("London, UK", "London, UK", "Tokyo")]
    assert sorted(line.partition("] ")[2] for line in result.out.splitlines()) == told
