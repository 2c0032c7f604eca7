"""A run of two hosts on the command line: what is summarised, and the line that says so."""

from __future__ import annotations

import csv
import json
import re

import pytest
from command_line import as_it_was, wanbench  # noqa: F401  # the fixture is used by all
from two_hosts import FAST, SLOW, shared, without, write

DIFFER = "gpu8-77aa01 and gpu7-3f9a1c differ by 5.0 % in the step time of one worker; the limit is 3 %"
APART = f"wanbench: shared: {DIFFER}. Hosts are kept apart (--across-hosts pools them)\n"
POOLED = f"wanbench: shared: {DIFFER}. --across-hosts pools them all the same\n"


@pytest.fixture
def few():
    """Return rows of one worker, and of two algorithms at two round-trip times."""
    return lambda apart_pct: [
        row
        for row in shared(apart_pct)
        if row["workers"] == 1 or (row["algorithm"] in {"ssgd", "sparse-p4"} and row["rtt_ms"] in {0.0, 100.0})
    ]


@pytest.fixture
def run(tmp_path, few):
    """Write the run, whose hosts differ by so many percent."""
    return lambda apart_pct: write(tmp_path / "results" / "shared", few(apart_pct))


def test_a_table_has_a_line_for_each_host_that_differs(run):
    run(5.0)
    result = wanbench("results", "shared")
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith("ssgd ")]
    assert [(line[1], line[3], line[4]) for line in lines] == [
        ("0", FAST, "2"), ("0", SLOW, "1"), ("100", FAST, "2"), ("100", SLOW, "1"),
    ]  # fmt: skip
    assert result.stderr == f"{APART}shared: 18 ok\n"


def test_a_table_of_hosts_that_are_alike_does_not_mention_them(run):
    run(1.0)
    result = wanbench("results", "shared")
    assert [line.split()[3] for line in result.stdout.splitlines() if line.startswith("ssgd ")] == ["3", "3"]
    assert "gpu" not in result.stdout
    assert result.stderr == "shared: 18 ok\n"


def test_across_hosts_pools_them_all_the_same_and_says_so(run):
    run(5.0)
    result = wanbench("results", "shared", "--across-hosts")
    assert [line.split()[3] for line in result.stdout.splitlines() if line.startswith("ssgd ")] == ["3", "3"]
    assert result.stderr == f"{POOLED}shared: 18 ok\n"


def test_rows_are_not_summarised_so_nothing_is_said(run):
    run(5.0)
    result = wanbench("results", "shared", "--format", "json")
    rows = json.loads(result.stdout)
    assert result.stderr == "shared: 18 ok\n"
    assert {(row["host"], round(row["calibration_s"], 6)) for row in rows} == {(FAST, 0.3), (SLOW, 0.315)}
    assert {"kernel", "cpu"} <= rows[0].keys()
    assert "hosts" not in rows[0]
    header, *lines = csv.reader(wanbench("results", "shared", "--format", "csv").stdout.splitlines())
    assert {line[header.index("host")] for line in lines} == {FAST, SLOW}


def test_a_host_that_was_not_calibrated_before_the_others_measured_is_told(tmp_path, few):
    write(tmp_path / "results" / "shared", without(few(0.0), SLOW))
    result = wanbench("results", "shared")
    assert f"wanbench: shared: {SLOW} has no one-worker repetition to be compared by. Hosts are" in result.stderr


def test_each_host_has_its_own_figures_and_pooled_ones_say_how_much_hosts_differ(run, tmp_path):
    run(5.0)
    apart = wanbench("figures", "shared", "--formats", "csv", "-o", "apart")
    pooled = wanbench("figures", "shared", "--formats", "svg,csv", "-o", "pooled", "--across-hosts")
    assert (apart.stderr, pooled.stderr) == (APART, POOLED)
    assert {path.name for path in (tmp_path / "apart").iterdir()} == {
        f"{name}-{host}.csv" for name in ("scalability-by-rtt", "step-time") for host in (FAST, SLOW)
    }
    points = csv.DictReader((tmp_path / "apart" / f"scalability-by-rtt-{SLOW}.csv").read_text().splitlines())
    assert {(point["hosts"], point["repetitions"]) for point in points} == {(SLOW, "1")}
    caption = (tmp_path / "pooled" / "step-time.svg").read_text()
    lines = re.findall(r"<!-- (.*) -->", caption)
    assert "on 2 hosts that differ by 5.0" in " ".join(lines)


def test_the_report_says_whether_hosts_are_kept_apart_or_pooled(run, tmp_path):
    run(5.0)
    for arguments, said, columns in (((), APART, 1), (("--across-hosts",), POOLED, 0)):
        result = wanbench("report", "shared", *arguments)
        assert result.stderr == said
        page = (tmp_path / "results" / "shared" / "report.html").read_text()
        assert said.partition("shared: ")[2].strip() in page
        assert page.count(f"<td>{SLOW}</td>") == 5 * columns


def test_cells_of_hosts_that_differ_are_compared_host_by_host_or_pooled(run, few, tmp_path):
    run(5.0)
    write(tmp_path / "results" / "again", few(5.0))
    apart = wanbench("compare", "shared", "again", "--no-figures", "--format", "json")
    pooled = wanbench("compare", "shared", "again", "--no-figures", "--format", "json", "--across-hosts")
    assert [len(json.loads(result.stdout)["pairs"]) for result in (apart, pooled)] == [8, 4]
    assert apart.stderr.startswith(APART)
    assert pooled.stderr.startswith(POOLED)


def test_two_hosts_are_compared_with_each_other(run):
    run(5.0)
    result = wanbench("compare", "shared", "--by", "hosts", "--no-figures", "--format", "json")
    assert {(pair["base"], pair["head"]) for pair in json.loads(result.stdout)["pairs"]} == {(FAST, SLOW)}
    assert result.stderr == ""


def test_a_papers_figures_are_drawn_as_recorded():
    result = wanbench("figures", "--paper", "dts", "--across-hosts")
    assert (result.exit_code, result.stderr) == (
        2, "wanbench: --paper draws from recorded runs; remove RUN, --beside and --across-hosts\n",
    )  # fmt: skip


def test_verify_says_whether_the_hosts_of_a_run_agree(run, tmp_path):
    run(5.0)
    assert (
        f"REFUSED  hosts       {MEANING}\n                     shared: {DIFFER}\n"
        in wanbench("verify", "shared").stdout
    )


def test_verify_accepts_hosts_that_are_alike(run):
    run(1.0)
    assert f"ok       hosts       {MEANING}\n" in wanbench("verify", "shared").stdout


MEANING = "All hosts of the run are alike: the step times of their own one-worker repetitions differ by at most 3 %."
