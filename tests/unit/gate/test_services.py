"""What Bencher, github-action-benchmark and asv read, by the schema or the required keys of each."""

from __future__ import annotations

import json
import subprocess

import pytest
import synthetic_rows

from wanbench.harness.errors import SpecError
from wanbench.harness.gate import services

ROWS = [
    {**row, "axes": {"algorithm": row["algorithm"], "workers": row["workers"], "rtt": f"{row['rtt_ms'] or 0:g}ms"}}
    for row in synthetic_rows.latency_sweep(reps=3)
    if row["kind"] in {"local", "ssgd"}
]
# Those of asv 0.6 without a default, for a result and for a benchmark that it did not run itself.
OF_ASV = {"params", "requirements", "commit_hash", "date", "python", "env_name", "result_columns", "results"}
OF_ITS_BENCHMARKS = {"name", "code", "param_names", "params", "type", "unit", "version"}


@pytest.fixture
def commit(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(("git", *who, *words), cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    monkeypatch.chdir(tmp_path)
    return git("rev-parse", "HEAD").strip()


def test_bencher_gets_the_median_and_both_ends_of_each_measure():
    metrics = json.loads(services.as_bencher(ROWS))
    assert "ssgd w4 100ms" in metrics
    for measures in metrics.values():
        for metric in measures.values():
            assert set(metric) == {"value", "lower_value", "upper_value"}
            assert metric["lower_value"] <= metric["value"] <= metric["upper_value"]
    times = sorted(1e3 * row["step_time_s"] for row in ROWS if row["kind"] == "ssgd" and row["rtt_ms"] == 100.0)
    assert list(metrics["ssgd w4 100ms"]["step-time"].values()) == pytest.approx([times[1], times[0], times[2]])


def test_a_cell_without_a_valid_repetition_has_no_value():
    lost = [{**row, "status": "failed"} if row["rtt_ms"] == 100.0 else row for row in ROWS]
    names = {entry["name"] for entry in json.loads(services.as_github(lost))}
    assert "ssgd w4 20ms" in names
    assert "ssgd w4 100ms" not in names


def test_github_action_benchmark_gets_step_times_of_which_smaller_is_better():
    entries = json.loads(services.as_github(ROWS))
    assert all(set(entry) == {"name", "unit", "value", "range"} and entry["unit"] == "ms" for entry in entries)
    (entry,) = [entry for entry in entries if entry["name"] == "ssgd w4 500ms"]
    low, high = map(float, entry["range"].split(" to "))
    assert low <= entry["value"] <= high


def test_asv_gets_a_results_folder_with_the_full_hash_of_the_commit(tmp_path, commit):
    rows = [{**row, "host": "box"} for row in ROWS]
    file = services.write_asv(rows, {"project": commit[:8], "python": "3.11"}, tmp_path / "asv")
    stored = json.loads(file.read_text())
    benchmarks = json.loads((tmp_path / "asv" / "benchmarks.json").read_text())
    assert file == tmp_path / "asv" / "box" / f"{commit[:8]}-wanbench.json"
    assert json.loads(file.with_name("machine.json").read_text())["machine"] == stored["params"]["machine"] == "box"
    assert stored.keys() >= OF_ASV
    assert (stored["version"], stored["commit_hash"]) == (2, commit)
    assert benchmarks.pop("version") == 2
    assert benchmarks.keys() == stored["results"].keys()
    assert all(benchmark.keys() >= OF_ITS_BENCHMARKS for benchmark in benchmarks.values())


def test_asv_gets_no_result_of_files_that_were_not_committed(tmp_path, commit):
    with pytest.raises(
        SpecError, match=rf"^asv: files a result under its commit, but {commit}-dirty has changes; commit"
    ):
        services.write_asv(ROWS, {"project": f"{commit}-dirty"}, tmp_path / "asv")


def test_results_of_hosts_that_differ_are_refused():
    slow = [{**row, "host": "b", "cell": row["cell"], "step_time_s": 2 * row["step_time_s"]} for row in ROWS]
    with pytest.raises(SpecError, match=r"; a service compares results of one machine$"):
        services.as_bencher([{**row, "host": "a"} for row in ROWS] + slow)


def test_asv_is_refused_without_a_commit(tmp_path, commit):
    with pytest.raises(SpecError, match=r"^asv: files a result under its commit, and that of this run \(none\)"):
        services.write_asv(ROWS, {}, tmp_path / "asv")
