"""Claims about a program under `wanbench exec` that hold in namespaces and in containers."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli_session import patiently

from wanbench.netprofiles import load

PROGRAMS = Path(__file__).parents[1] / "e2e" / "programs"
WORLD4 = ["exec", "--profile", "world4", "-n", "4", "--rate-scale"]
SITES = ["oregon", "ohio", "london", "tokyo"]
KILLED = """
[[timeline]]
at = "5s"
for = "500ms"
where = 1
kill = true
"""
PAYLOAD = 1400 / 1428  # share of a datagram

# Each rank serves the previous rank, and sends more to the next rank than the path carries.
IPERF3 = """
next=$(echo "$WANBENCH_ADDRESSES" | cut -d, -f$(((RANK + 1) % 4 + 1)))
iperf3 -s -1 -B "$WANBENCH_ADDRESS" >/dev/null &
for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    if iperf3 -c "$next" -u -l 1400 -b "$OFFERED" -t 4 -f k; then
        wait
        exit
    fi
    sleep 0.5
done
exit 1
"""


def take(bench, name):
    """Copy a program to the user's folder, and return its name."""
    shutil.copy(PROGRAMS / name, bench.folder / name)
    bench.folder.chmod(0o755)
    return name


def run_folder(result, bench):
    """Return the folder of the repetition, finished or failed."""
    (folder,) = (bench.folder / result.last_line.rpartition("; ")[2]).glob("cells/*/rep-0*")
    return folder


def row_of(result, bench):
    """Return the row that the command line prints."""
    run = result.last_line.rpartition("; ")[2]
    (row,) = json.loads(bench.run("results", run, "--format", "json").out)
    return row


def valid(bench, *arguments):
    """Return the result of `exec`, which is repeated while the host is too busy, as a user would."""
    result = patiently(lambda: bench.run(*arguments), lambda result: "\nwanbench: invalid: " in result.err)
    assert result.code == 0, result.err
    return result


def a_data_parallel_script_runs_unchanged(bench, testbed, python):
    """Check that replicas agree, that each has its log, and that a step takes longer than the longest path."""
    result = valid(bench, *WORLD4, "0.01", *testbed, "--", *python, take(bench, "ddp.py"))
    lines = re.findall(r"^\[(\d) (\w+)\] rank (\d) of 4 local 0 step ([\d.]+) sum (\S+)$", result.out, re.M)
    assert sorted((int(prefix), site, int(rank)) for prefix, site, rank, _, _ in lines) == [
        (rank, site, rank) for rank, site in enumerate(SITES)
    ]
    assert len({total for *_, total in lines}) == 1
    assert all(float(step) > 0.105 for *_, step, _ in lines)  # London to Tokyo
    folder = run_folder(result, bench)
    for rank in range(4):
        assert re.findall(r"rank (\d) of 4", (folder / f"rank-{rank}.log").read_text()) == [str(rank)]
    row = row_of(result, bench)
    assert (row["status"], row["reason"]) == ("ok", None)
    assert row["wire_bytes"] > 10 * 650 * 4 * 4
    assert row["one_way_error_ms"] < 3
    return row


def torchs_model_averaging_runs_unchanged(bench, testbed, python):
    result = bench.run(*WORLD4, "0.01", *testbed, "--", *python, take(bench, "averaging.py"))
    assert result.code == 0, result.err
    assert sorted(re.findall(r"^\[\d \w+\] rank (\d) of 4 done$", result.out, re.M)) == ["0", "1", "2", "3"]


def programs_see_the_round_trips_and_the_rate_of_the_profile(bench, testbed, python):
    """Check connections to Oregon, and then four flows of iperf3 in a ring: each has a path, an up and a down."""
    if shutil.which("iperf3") is None:
        lacking = pytest.fail if "CI" in os.environ else pytest.skip
        lacking("iperf3: not installed; sh scripts/setup-tests.sh programs")
    scale = 0.001
    (configured,) = {scale * path.rate.bps for path in load("world4").paths.values()}
    offered = f"OFFERED={1.5 * configured:.0f}"
    both = f"set -e; {shlex.join([*python, take(bench, 'ask.py')])}; {IPERF3}"
    result = bench.run(*WORLD4, str(scale), *testbed, "--env", offered, "--", "sh", "-c", both)
    assert result.code == 0, result.err
    seen = dict(re.findall(r"^\[\d \w+\] (\w+) ([\d.]+)$", result.out, re.M))
    for site in SITES[1:]:
        rtt_ms = load("world4").rtt("oregon", site).ms
        assert float(seen[site]) == pytest.approx(rtt_ms, abs=max(2.0, 0.02 * rtt_ms))
    received = re.findall(r"^\[\d (\w+)\] .* (\d+) Kbits/sec .* receiver$", result.out, re.M)
    assert {site for site, _ in received} == set(SITES)
    for site, kbps in received:
        print(f"{site}: {int(kbps) / 1e3:.2f} of {configured / 1e6:.2f} Mbit/s")
        assert 0.85 < 1e3 * int(kbps) / (configured * PAYLOAD) < 1.03


def the_first_failure_sets_the_exit_code(bench, testbed):
    bench.folder.chmod(0o755)
    script = "if [ $RANK = 2 ]; then echo no >&2; exit 255; fi; sleep 100"
    result = bench.run(*WORLD4, "0.01", *testbed, "--", "sh", "-c", script)
    assert result.code == 255
    assert "[2 london] no" in result.err
    assert "wanbench: failed: rank 2 failed with status 255\n" in result.err
    row = row_of(result, bench)
    assert (row["status"], row["reason"]) == ("failed", "rank 2 failed with status 255")


def a_killed_worker_restarts_on_the_same_network_and_the_others_continue(bench, testbed, python):
    (bench.folder / "killed.toml").write_text(KILLED)
    two = ["exec", "--profile", "uniform", "--rtt", "20ms", "-n", "2", "--timeline", "killed.toml"]
    result = valid(bench, *two, *testbed, "--", *python, take(bench, "again.py"))
    folder = run_folder(result, bench)
    assert (folder / "rank-1.log").read_text() == "start 0 of 1\nstart 1 of 1\n"
    assert (folder / "rank-0.log").read_text() == ("start 0 of 0\nheard from start 0\nit hung up\nheard from start 1\n")
    row = row_of(result, bench)
    assert (row["status"], row["reason"]) == ("ok", None)
    assert row["timeline"] == "worker 1: killed at 5 s for 0.5 s"
    assert [(event["what"], event["asked_s"]) for event in row["events"]] == [
        ("worker 1: killed", 5.0), ("worker 1: started again", 5.5),
    ]  # fmt: skip
    assert all(event["actual_s"] >= event["asked_s"] for event in row["events"])
