"""A run is opened by its name, by its folder, or as the latest one."""

from __future__ import annotations

import os

import pytest

from wanbench.harness.errors import SpecError
from wanbench.harness.results.store import RunFolder, open_run


def made(root, *names: str) -> None:
    """Runs, the last one the latest."""
    for age, name in enumerate(reversed(names)):
        RunFolder(root / name).prepare(None, {}, {})
        os.utime(root / name / "manifest.json", (1e9 - age, 1e9 - age))


def test_a_run_is_opened_by_name_by_folder_and_as_the_latest(tmp_path):
    made(tmp_path, "old", "new")
    assert open_run("old", tmp_path).path == tmp_path / "old"
    assert open_run(str(tmp_path / "old"), tmp_path / "elsewhere").path == tmp_path / "old"
    assert open_run(None, tmp_path).path.name == "new"
    os.utime(tmp_path / "old" / "manifest.json", (2e9, 2e9))
    assert open_run(None, tmp_path).path.name == "old", "the latest in time, not by name"


def test_an_unknown_run_is_refused_with_those_there_are(tmp_path):
    made(tmp_path, "smoke", "world4")
    with pytest.raises(SpecError) as caught:
        open_run("smok", tmp_path)
    assert str(caught.value) == (
        f"smok: not a run folder, and no run of that name under {tmp_path} (there: smoke, world4)"
    )


def test_no_results_at_all_is_said_with_the_way_to_get_some(tmp_path):
    for root in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SpecError) as caught:
            open_run(None, root)
        assert str(caught.value) == f"{root}: no results here; start with `wanbench run smoke`"
    with pytest.raises(SpecError, match=r"\(there: none\)$"):
        open_run("smoke", tmp_path)
