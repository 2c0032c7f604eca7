"""What a repetition costs beside its measurement does not grow with their number."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from many_repetitions import executed, growth, plan

from wanbench.harness.results.disk import to_disk
from wanbench.harness.results.store import RunFolder


@pytest.mark.long  # prepares 500 repetitions; reading as many is tested each time
def test_a_repetition_is_started_and_finished_in_as_few_calls_among_many_as_among_few(tmp_path, monkeypatch):
    assert growth(lambda folder, made: executed(folder, made, monkeypatch), tmp_path, 100, 400) < 1.15


def test_the_folders_of_cells_are_not_listed_again_for_each_new_cell(tmp_path, monkeypatch):
    folder, made, listed = RunFolder(tmp_path / "many"), plan(40), []
    for name, real in (("listdir", os.listdir), ("scandir", os.scandir)):
        monkeypatch.setattr(os, name, lambda path, real=real: (listed.append(Path(path).name), real(path))[1])
    folder.prepare("", made.to_json(), {"schema": 1})
    for cell in made.cells:
        folder.begin(cell, 0)
    assert listed.count("cells") == 1


def test_the_disk_is_asked_for_all_files_of_a_repetition_at_the_same_time(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}.json" for number in range(4)]
    for path in paths:
        path.write_text("{}")
    together = threading.Barrier(len(paths), timeout=20)
    monkeypatch.setattr("os.fsync", lambda _: together.wait())
    to_disk(paths)
