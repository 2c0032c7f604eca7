"""What the command line shows and draws of results, and cleans up."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest
from command_line import as_it_was, finished, refused, wanbench  # noqa: F401  # the fixture is used by all

from harness.store import RunFolder

# ---------------------------------------------------------------- results


def test_results_of_nothing_says_how_to_start():
    for command in ("results", "figures"):
        assert refused(command) == "wanbench: results: no results here; start with `wanbench run smoke`"


def test_results_of_an_unknown_run_lists_those_there_are(tmp_path):
    finished(tmp_path)
    said = "wanbench: smok: not a run folder, and no run of that name under results (there: smoke)"
    assert refused("results", "smok") == refused("figures", "smok") == said


def test_results_of_a_run_that_has_not_measured_anything_is_empty_and_says_so(tmp_path):
    RunFolder(tmp_path / "results" / "t").prepare(None, {}, {})
    result = wanbench("results", "t", "--format", "json")
    assert (json.loads(result.stdout), result.stderr) == ([], "t: nothing measured yet\n")
    assert wanbench("results", "t").exit_code == 0
    assert refused("results", "t", "--format", "pivot") == (
        "wanbench: results/t: no cell with more than one worker has a result yet; nothing can be compared"
    )


def test_results_for_machines_have_one_object_a_repetition_on_stdout(tmp_path):
    rows = finished(tmp_path, statuses=("ok", "ok", "failed", "invalid", "ok"))
    result = wanbench("results", "smoke", "--format", "json")
    found = json.loads(result.stdout)
    assert {(row["cell"], row["status"], row["reason"]) for row in found} == {
        (row["cell"], row["status"], row["reason"]) for row in rows
    }
    assert result.stderr == "smoke: 3 ok, 1 invalid, 1 failed\n"
    as_csv = list(csv.DictReader(io.StringIO(wanbench("results", "--format", "csv").stdout)))
    assert [row["cell"] for row in as_csv] == [row["cell"] for row in found]


@pytest.mark.parametrize("form", ["table", "pivot", "md"])
def test_results_for_people_name_every_algorithm(tmp_path, form):
    finished(tmp_path)
    text = wanbench("results", "smoke", "--format", form).stdout
    assert "ssgd" in text
    assert "dts-d4-p2" in text
    assert "0.75" in text


def test_parquet_prints_the_path_of_the_file(tmp_path):
    finished(tmp_path)
    path = wanbench("results", "smoke", "--format", "parquet").stdout.strip()
    assert path == "results/smoke/results.parquet"
    assert (tmp_path / path).stat().st_size > 0


# ---------------------------------------------------------------- figures


def test_figures_refuses_an_unknown_format(tmp_path):
    finished(tmp_path)
    assert refused("figures", "--formats", "svg,gif") == "wanbench: --formats gif: expected svg, pdf or png"


@pytest.mark.parametrize("statuses", [("failed",), ("ok",), ("ok", "failed", "invalid")])
def test_figures_of_nothing_comparable_are_refused(tmp_path, statuses):
    finished(tmp_path, statuses=statuses)
    assert refused("figures") == (
        "wanbench: results/smoke: no finished repetition of more than one worker yet; nothing to draw"
    )


def test_figures_prints_the_files_it_made(tmp_path):
    finished(tmp_path)
    result = wanbench("figures", "smoke", "--formats", "svg", "--to", "drawn")
    paths = result.stdout.split()
    assert paths
    assert all(path.startswith("drawn/") and path.endswith(".svg") and (tmp_path / path).is_file() for path in paths)


def test_figures_that_cannot_be_written_are_one_line(tmp_path):
    finished(tmp_path)
    (tmp_path / "file").write_text("mine")
    assert refused("figures", "smoke", "--to", "file/drawn", code=3) == "wanbench: file/drawn: Not a directory"


# ---------------------------------------------------------------- clean, and pipes


def test_clean_without_leftovers_says_so_on_stderr(monkeypatch):
    monkeypatch.setattr("harness.host.stale_folders", list)
    result = wanbench("clean")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing to clean\n")


def test_clean_lists_before_it_removes(tmp_path, monkeypatch):
    stale = tmp_path / "wanbench-abc"
    stale.mkdir()
    monkeypatch.setattr("harness.host.stale_folders", lambda: [stale])
    assert wanbench("clean", "--dry-run").stdout == f"would remove {stale}\n"
    assert stale.exists()
    assert wanbench("clean").stdout == f"removed {stale}\n"
    assert not stale.exists()


def test_a_reader_that_stops_listening_is_no_error():
    with subprocess.Popen(
        [sys.executable, "-m", "harness.cli", "list", "profiles"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()  # type: ignore[union-attr]
        assert process.stderr.read() == b""  # type: ignore[union-attr]
        assert process.wait() == 0
