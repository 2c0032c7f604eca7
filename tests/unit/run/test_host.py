"""Whose temporary folders may be removed."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from wanbench.harness.process.owner import write_mark
from wanbench.harness.run.host import control_folder, stale_folders, sweep_stale


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = tmp_path / "wanbench-x"
    made.mkdir()
    return made


def owned_by(folder, **changes):
    write_mark(folder)
    mark = folder / "owner.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), **changes}))


def a_pid_that_is_gone() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_folder_of_a_living_run_is_left_alone(folder):
    write_mark(folder)
    assert stale_folders() == []


def test_the_folder_of_a_run_that_is_gone_is_removed(folder):
    owned_by(folder, pid=a_pid_that_is_gone())
    assert sweep_stale() == [folder]
    assert not folder.exists()


def test_a_pid_that_another_process_has_by_now_is_not_the_owner(folder):
    owned_by(folder, started=1)
    assert stale_folders() == [folder]


def test_what_another_boot_or_container_owns_cannot_be_judged_and_is_left_alone(folder):
    owned_by(folder, pid=a_pid_that_is_gone(), seen_from="another boot pid:[1]")
    assert sweep_stale() == []
    assert folder.exists()


@pytest.mark.parametrize("mark", [None, "", "{}", "[]"])
def test_a_folder_without_our_mark_is_left_alone(folder, mark):
    if mark is not None:
        (folder / "owner.json").write_text(mark)
    assert stale_folders() == []


def test_what_others_put_where_our_folders_are_is_not_even_opened(folder):
    os.mkfifo(folder / "owner.json")  # to read it would block for ever
    assert stale_folders() == []
    (folder / "owner.json").unlink()
    (folder / "elsewhere").write_text("{}")
    (folder / "owner.json").symlink_to(folder / "elsewhere")
    assert stale_folders() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_the_folder_of_another_user_is_left_alone(folder):
    owned_by(folder, pid=a_pid_that_is_gone())
    os.chown(folder, 12345, 12345)
    assert sweep_stale() == []
    assert folder.exists()


def test_a_run_works_in_a_folder_that_nobody_else_may_enter(folder):
    before = os.umask(0)
    try:
        with control_folder() as control:
            assert control.stat().st_mode & 0o777 == 0o700
            assert control.stat().st_uid == os.geteuid()
    finally:
        os.umask(before)
    assert not control.exists()
