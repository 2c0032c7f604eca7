"""Versions of a baseline are read from git, oldest first; what cannot be read is said."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.gate import git as revisions
from wanbench.harness.gate.outcomes import of_baseline

ROOT = Path(__file__).resolve().parents[3]
CELL = "ssgd w2 10ms"


def git(folder, *arguments) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def baseline(scalability, **change) -> str:
    entry = {"cell": "abc", "testbed": "virtual", "emulator": None, "steps": 20, "scalability": scalability}
    head = {"experiment": "t", "schema": 2, "wanbench": "0.1.0", "spec": "s", **change}
    return json.dumps({**head, "cells": {CELL: entry}})


def committed(folder, text, subject):
    (folder / "b.json").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", subject)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    for number, scalability in enumerate((0.5, 0.6, 0.7)):
        committed(tmp_path, baseline(scalability), f"version {number}")
        (tmp_path / "other").write_text(str(number))
        git(tmp_path, "add", "--all")
        git(tmp_path, "commit", "--quiet", "--message", "another file")
    return tmp_path


def read(path, range_=None):
    said = []
    return of_baseline(path, range_, said.append), said


def test_every_version_is_an_outcome_with_its_commit(repository):
    found, said = read(repository / "b.json")
    assert [each.subject for each in found] == ["version 0", "version 1", "version 2"]
    assert [each.cells[CELL].metrics["scalability"] for each in found] == [[0.5], [0.6], [0.7]]
    assert found[-1].commit == git(repository, "log", "-1", "--format=%H", "--", "b.json")
    assert found[-1].date == git(repository, "log", "-1", "--format=%cI", "--", "b.json")
    assert (found[0].cells[CELL].cell, found[0].wanbench, said) == ("abc", "0.1.0", [])


def test_a_range_keeps_some_versions(repository):
    middle = git(repository, "log", "--format=%H", "--", "b.json").splitlines()[1]
    assert [each.subject for each in read(repository / "b.json", f"{middle}..main")[0]] == ["version 2"]
    assert [each.subject for each in read(repository / "b.json", middle)[0]] == ["version 0", "version 1"]


def test_a_version_that_is_no_baseline_is_left_out_and_said(repository):
    committed(repository, "<<<<<<< HEAD", "a merge")
    committed(repository, baseline("fast"), "by hand")
    committed(repository, json.dumps({"experiment": "t"}), "cut")
    found, said = read(repository / "b.json")
    assert len(found) == 3
    assert [text.partition(": not a baseline, so left out: ")[2] for text in said] == [
        "Expecting value: line 1 column 1 (char 0)",
        "could not convert string to float: 'fast'",
        "'cells' is missing",
    ]


def test_a_deleted_version_and_another_experiment_are_no_outcomes(repository):
    git(repository, "rm", "--quiet", "b.json")
    git(repository, "commit", "--quiet", "--message", "gone")
    committed(repository, baseline(0.8, experiment="u"), "renamed")
    found, said = read(repository / "b.json")
    assert [each.subject for each in found] == ["renamed"]
    assert said == [f"{repository / 'b.json'}: 3 versions of other experiments than u are left out"]


def test_a_shallow_clone_says_that_versions_are_missing(repository, tmp_path):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", "2", f"file://{repository}", str(clone))
    found, said = read(clone / "b.json")
    assert [each.subject for each in found] == ["version 2"]
    assert said == [
        f"{clone / 'b.json'}: earlier versions may be missing from this shallow clone; `git fetch --unshallow` "
        "fetches them"
    ]


@pytest.mark.parametrize("revision", ["nowhere", "main..nowhere", "--all", "--output=stolen"])
def test_an_unknown_revision_is_refused(repository, revision):
    with pytest.raises(SpecError) as caught:
        read(repository / "b.json", revision)
    assert str(caught.value) == f"{revision}: no such revision here; expected one, or a range such as v1.0..HEAD"
    assert not (repository / "stolen").exists()


def test_a_file_without_versions_is_refused(repository, tmp_path_factory):
    (repository / "new.json").write_text(baseline(0.5))
    with pytest.raises(SpecError) as caught:
        read(repository / "new.json")
    assert str(caught.value) == (
        f"{repository / 'new.json'}: no version of it is committed in HEAD; commit it, or name other revisions"
    )
    outside = tmp_path_factory.mktemp("outside")
    for path in (outside / "b.json", outside / "no-folder" / "b.json"):
        with pytest.raises(SpecError) as caught:
            read(path)
        assert str(caught.value) == (
            f"{path}: not in a git repository, so it has no versions; name a file that is committed"
        )
    with pytest.raises(SpecError, match="no version of it is a baseline"):
        read(repository / "other")


def test_without_git_nothing_is_read(repository, monkeypatch):
    monkeypatch.setattr(revisions.shutil, "which", lambda _: None)
    with pytest.raises(HostError) as caught:
        read(repository / "b.json")
    assert str(caught.value) == f"{repository / 'b.json'}: reading its versions needs git; install it"


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not a clone")
def test_the_gate_of_this_repository_has_a_version():
    found, _ = read(ROOT / "results" / "reference" / "gate" / "world4.json")
    assert found[-1].cells["ssgd w4"].metrics["scalability"]
