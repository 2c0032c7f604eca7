"""Reading a run takes a time in proportion to its repetitions."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest
from command_line import as_it_was, wanbench  # noqa: F401  # the fixture is used by all
from many_repetitions import finished, plan, spec

from wanbench.harness.analysis.summary import frame, records
from wanbench.harness.results.row_files import RowFiles
from wanbench.harness.results.steps import ProgramStep, Steps, elapsed_per_step_s, step_time_s
from wanbench.harness.results.store import RunFolder


@pytest.fixture
def many():
    Path("many.toml").write_text(spec(20))
    made = plan(20)
    finished(RunFolder(Path("results/many")), made)
    return made


@pytest.mark.parametrize(
    "words", [("report",), ("verify",), ("run", "many.toml", "--no-figures")], ids=lambda words: words[0]
)
def test_a_command_reads_each_row_once(words, many, monkeypatch):
    read, real = [], Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, *a, **k: (read.append(path), real(path, *a, **k))[1])
    assert wanbench(*words).exit_code in (0, 4)
    rows = [path for path in read if path.name == "result.json"]
    assert len(rows) == len(set(rows)) == 2 * len(many.cells)


def test_a_row_that_changes_is_read_again_and_one_that_a_caller_changes_is_not(many):
    path, files = min(Path("results/many/cells").glob("*/rep-0/result.json")), RowFiles()
    files.load(path)["seed"] = 7
    assert files.load(path)["seed"] == 1
    path.write_text(path.read_text().replace('"seed": 1,', '"seed": 12,'))
    assert files.load(path)["seed"] == 12
    path.write_text("{")
    assert files.find(path) is None


def test_no_file_is_asked_whether_it_is_a_link_because_listings_say_so(many, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "lstat", lambda path, *_, **__: asked.append(path))
    RunFolder(Path("results/many")).refuse_links()
    assert asked == []


def test_verify_reads_steps_without_pandas(tmp_path, monkeypatch):
    steps = Steps()
    steps.extend(
        ProgramStep(rank, step, (step + 1) * 10**9 * (rank + 1), rank + 1.0) for rank in (1, 0) for step in range(6)
    )
    steps.write(tmp_path / "steps.parquet")
    monkeypatch.setattr(pd, "read_parquet", None)
    assert step_time_s(tmp_path / "steps.parquet", 2, 4) == 2.0
    assert step_time_s(tmp_path / "steps.parquet", 0, 0) == 2.0
    assert step_time_s(tmp_path / "steps.parquet", 2, 5) is None
    assert elapsed_per_step_s(tmp_path / "steps.parquet", 6) == 2.0


def test_the_names_of_columns_are_listed_once_for_all_lines_of_a_table(many, monkeypatch):
    table, listed, real = frame(RunFolder(Path("results/many")).rows()), [], pd.Index.__iter__
    monkeypatch.setattr(pd.Index, "__iter__", lambda index: (listed.append(len(index)), real(index))[1])
    assert len(records(table)) == 2 * len(many.cells)
    assert listed.count(len(table.columns)) < 5
