"""The commands that show, draw and clean up results."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest
import synthetic_rows
from command_line import as_it_was, finished, refused, wanbench  # noqa: F401  # the fixture is used by all
from written_run import write_run

from wanbench.harness.results.store import RunFolder


def latency_sweep(failed=None, **change):
    rows = synthetic_rows.latency_sweep(**change)
    for row in rows:
        if (row["algorithm"], row["rtt_ms"]) == failed:
            row.update(status="failed", reason="it broke", step_time_s=None, scalability=None)
    return rows


# ---------------------------------------------------------------- results


def test_results_without_any_run_explains_how_to_start():
    for command in ("results", "figures"):
        assert refused(command) == "wanbench: results: no results here; start with `wanbench run smoke`"


def test_results_of_an_unknown_run_lists_the_existing_runs(tmp_path):
    finished(tmp_path)
    message = "wanbench: smok: not a run folder, and no run of that name under results (there: smoke)"
    assert refused("results", "smok") == refused("figures", "smok") == message


def test_results_of_a_run_without_repetitions_is_reported_as_empty(tmp_path):
    RunFolder(tmp_path / "results" / "t").prepare(None, {}, {})
    result = wanbench("results", "t", "--format", "json")
    assert (json.loads(result.stdout), result.stderr) == ([], "t: nothing measured yet\n")
    assert wanbench("results", "t").exit_code == 0
    assert refused("results", "t", "--format", "pivot") == (
        "wanbench: results/t: no cell with more than one worker has a result yet, so there is nothing to compare"
    )


def test_results_as_json_have_one_object_per_repetition_on_stdout(tmp_path):
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
def test_results_as_text_name_every_algorithm(tmp_path, form):
    finished(tmp_path)
    text = wanbench("results", "smoke", "--format", form).stdout
    assert "ssgd" in text
    assert "dts-d4-p2" in text
    assert "0.75" in text


@pytest.mark.parametrize("form", ["table", "pivot"])
def test_results_begin_with_the_best_algorithm(tmp_path, form):
    rows = [row for row in latency_sweep(reps=3) if row["kind"] != "sparse" and row["algorithm"] != "dts-d4-p4"]
    for row in rows:
        if row["workers"] > 1:
            row.update(workload="digits-cnn", accuracy=0.95 + 0.001 * row["seed"], payload_bytes=8_000_000_000)
        if row["algorithm"] == "dts-d20-p4":
            row["accuracy"] += (-0.002, -0.004, -0.003)[row["rep"]]
        if row["algorithm"].startswith("delayed"):
            row["accuracy"] -= 0.03
    write_run(tmp_path / "results" / "t", rows)
    lines = wanbench("results", "t", "--format", form).stdout.splitlines()
    assert lines[0] == "dts-d20-p4 is the fastest within 2 points of ssgd's accuracy on all 6 networks (emulated)."
    assert lines[3].split("  ")[0] == "network"
    assert lines[5].startswith("RTT 0 ms     dts-d20-p4  ")
    # The mean of three differences, plus or minus 4.303 s / sqrt(3).
    assert "  -0.30 points (-0.55 to -0.05)" in lines[5]
    assert max(map(len, lines[:20])) <= 110
    notes = " ".join(lines[11:18])
    assert "Accuracy: on digits, not ImageNet, minus that of ssgd; the mean over equal seeds, with its 95 %" in notes
    assert "Left out where they are more than 2 points less accurate than ssgd: delayed-d20, delayed-d4." in notes


def test_without_an_accuracy_the_first_table_has_no_column_for_it(tmp_path):
    write_run(tmp_path / "results" / "t", latency_sweep(reps=2))
    lines = wanbench("results", "t").stdout.splitlines()
    assert "accuracy" not in " ".join(lines[:5])
    note = " ".join(lines[11:17])
    assert "This run does not train a model, so it does not show what speed costs in accuracy;" in note


def test_parquet_prints_the_path_of_the_file(tmp_path):
    finished(tmp_path)
    path = wanbench("results", "smoke", "--format", "parquet").stdout.strip()
    assert path == "results/smoke/results.parquet"
    assert (tmp_path / path).stat().st_size > 0


def test_a_table_is_sorted_by_any_column_with_failures_last(tmp_path):
    write_run(tmp_path / "results" / "t", latency_sweep(reps=2, failed=("ssgd", 20.0)))
    printed = wanbench("results", "t", "--sort", "-scalability").stdout.splitlines()
    lines = printed[next(at for at, line in enumerate(printed) if line.startswith("algorithm")) : printed.index("", -3)]
    assert lines[0].split()[-3:] == ["scalability", "min..max", "law"]
    assert lines[-1].split()[0] == "ssgd"
    assert lines[-1].endswith("failed: it broke")
    column = lines[0].index("scalability")
    shown = [float(line[column : column + len("scalability")]) for line in lines[2:-1]]
    assert shown == sorted(shown, reverse=True)
    assert refused("results", "t", "--sort", "scalabilty") == (
        "wanbench: results/t: --sort scalabilty: no column 'scalabilty'; did you mean 'scalability'?"
    )
    assert refused("results", "t", "--sort", "rep", "--format", "csv") == (
        "wanbench: results/t: --sort: cannot sort --format csv; use --format table"
    )


@pytest.mark.parametrize("form", ["table", "md", "csv", "json"])
def test_two_runs_are_compared_in_every_format(tmp_path, form):
    for name in ("a", "b"):
        write_run(tmp_path / "results" / name, latency_sweep(reps=2, run=name))
    result = wanbench("compare", "a", "b", "--no-figures", "--format", form, "--sort", "-ratio")
    assert result.exit_code == 0, result.stderr
    if form == "csv":
        assert len(list(csv.DictReader(io.StringIO(result.stdout)))) == 42
    elif form == "json":
        assert len(json.loads(result.stdout)["pairs"]) == 42
    else:
        assert "a s/step" in result.stdout
        assert "42 of 42 cells agree within 10 %" in result.stdout


# ---------------------------------------------------------------- figures


def test_figures_refuses_an_unknown_format(tmp_path):
    finished(tmp_path)
    assert refused("figures", "--formats", "svg,gif") == "wanbench: --formats gif: expected svg, pdf, png or csv"


@pytest.mark.parametrize("statuses", [("failed",), ("ok",), ("ok", "failed", "invalid")])
def test_figures_without_comparable_cells_are_refused(tmp_path, statuses):
    finished(tmp_path, statuses=statuses)
    assert refused("figures") == (
        "wanbench: results/smoke: no cell of more than one worker has a valid result yet; there is nothing to draw"
    )


def test_figures_prints_the_files_it_wrote(tmp_path):
    finished(tmp_path)
    result = wanbench("figures", "smoke", "--formats", "svg", "--to", "drawn")
    paths = result.stdout.split()
    assert paths
    assert all(path.startswith("drawn/") and path.endswith(".svg") and (tmp_path / path).is_file() for path in paths)


def test_figures_that_cannot_be_written_are_reported_in_one_line(tmp_path):
    finished(tmp_path)
    (tmp_path / "file").write_text("mine")
    assert refused("figures", "smoke", "--to", "file/drawn", code=3) == "wanbench: file/drawn: Not a directory"


# ---------------------------------------------------------------- clean and pipes


def test_clean_without_leftovers_reports_it_on_stderr(monkeypatch):
    monkeypatch.setattr("wanbench.harness.run.host.stale_folders", list)
    result = wanbench("clean")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing to clean\n")


def test_clean_lists_before_it_removes(tmp_path, monkeypatch):
    stale = tmp_path / "wanbench-abc"
    stale.mkdir()
    monkeypatch.setattr("wanbench.harness.run.host.stale_folders", lambda: [stale])
    assert wanbench("clean", "--dry-run").stdout == f"would remove {stale}\n"
    assert stale.exists()
    assert wanbench("clean").stdout == f"removed {stale}\n"
    assert not stale.exists()


def test_a_reader_that_closes_the_pipe_is_not_an_error():
    with subprocess.Popen(
        [sys.executable, "-m", "wanbench.harness.cli", "list", "profiles"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()  # type: ignore[union-attr]
        assert process.stderr.read() == b""  # type: ignore[union-attr]
        assert process.wait() == 0
