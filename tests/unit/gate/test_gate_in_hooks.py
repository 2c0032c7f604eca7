"""In a hook, git's variables lead no command of ours to the commit under way, and nothing of the user's is changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from git_command import git

from wanbench.harness.process.git import environment

# Opens both sides as `check --base HEAD` does, and asks for the revision as every run does.
OPENS = """
import sys, time
from pathlib import Path
from wanbench.harness.gate.sides import opened
from wanbench.harness.run.manifest import _revision
scratch = Path({scratch!r})
setup = ["git add --all; git status"]
with opened("head", ".", (), scratch) as head, opened("base", {base!r}, setup, scratch) as base:
    kept = sorted(p.name for p in base.folder.iterdir() if p.name != ".git")
    report = [kept, (base.folder / "kept").read_text(), head.same == base.same, _revision(Path(), "--exclude=*")]
    Path({report!r}).write_text(repr(report))
    time.sleep({sleeps})
"""


def state(folder: Path) -> dict[str, object]:
    """Return what is the user's: index, references, their logs, stash, worktrees, configuration and files."""
    own, common = (Path(folder, git(folder, "rev-parse", f"--git-{kind}")) for kind in ("dir", "common-dir"))
    shared = {str(path): path.read_bytes() for name in ("refs", "logs", "worktrees", "config", "packed-refs")
              for path in sorted([common / name, *(common / name).rglob("*")]) if path.is_file()}  # fmt: skip
    files = {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if ".git" not in path.parts
             and path.is_file()}  # fmt: skip
    return {"index": (own / "index").read_bytes(), "HEAD": (own / "HEAD").read_text(), **shared, **files}


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in ("kept", "removed"):
        (folder / name).write_text("before")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "one")
    git(folder, "stash", "list")
    return folder


def hook(repository: Path, tmp_path: Path, base: str = "HEAD", sleeps: float = 0) -> Path:
    """Write a hook that opens both sides, and return the file of its report."""
    report = tmp_path / "report"
    values = {"scratch": str(tmp_path / "scratch"), "report": str(report), "base": base, "sleeps": sleeps}
    (tmp_path / "opens.py").write_text(OPENS.format(**values))
    path = Path(repository, git(repository, "rev-parse", "--git-path", "hooks/pre-commit"))
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -P '{tmp_path / 'opens.py'}' 1>&2\n")
    path.chmod(0o755)
    return report


@pytest.mark.parametrize(
    ("linked", "what"),
    [
        pytest.param(False, ["--", "kept", "removed"], id="paths", marks=pytest.mark.long),
        pytest.param(True, ["--all"], id="all of a linked worktree"),
        pytest.param(False, ["--all"], id="all", marks=pytest.mark.long),
        pytest.param(True, ["--", "kept", "removed"], id="paths of a linked worktree", marks=pytest.mark.long),
    ],
)
def test_a_commit_is_what_it_would_be_without_the_hook(repository, tmp_path, linked, what):
    where = tmp_path / "linked" if linked else repository
    if linked:
        git(repository, "worktree", "add", "--quiet", "-b", "side", str(where))
    report = hook(where, tmp_path)
    (where / "kept").write_text("after")
    (where / "removed").unlink()
    git(where, "commit", "--quiet", "--message", "two", *what)
    kept, text, same, project = eval(report.read_text())
    assert (kept, text, same) == (["kept", "removed"], "before", False)
    assert project.endswith("-dirty")
    assert git(where, "ls-tree", "--name-only", "HEAD") == "kept"
    assert git(where, "status", "--porcelain") == ""
    assert git(where, "log", "--format=%s") == "two\none"


def test_a_rebase_that_executes_the_gate_ends_as_without_it(repository, tmp_path):
    hook(repository, tmp_path, base="HEAD~1")
    (repository / ".git" / "hooks" / "pre-commit").unlink()
    (repository / "kept").write_text("after")
    git(repository, "commit", "--quiet", "--all", "--message", "two")
    git(repository, "rebase", "--quiet", "--exec", f"'{sys.executable}' -P '{tmp_path / 'opens.py'}'", "HEAD~1")
    kept, text, same, project = eval((tmp_path / "report").read_text())
    assert (kept, text, same) == (["kept", "removed"], "before", False)
    assert not project.endswith("-dirty")
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    "end", [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.long) for each in (None, signal.SIGTERM))]
)
def test_nothing_of_the_repository_is_changed_also_if_the_gate_is_stopped(repository, tmp_path, end):
    report = hook(repository, tmp_path, sleeps=0 if end is None else 60)
    (repository / "kept").write_text("stashed")
    git(repository, "stash")
    (repository / "kept").write_text("after")
    git(repository, "add", "kept")
    os.utime(repository / "removed")  # `git status` would note the new time in the index
    before = state(repository)
    given = os.environ | {"GIT_DIR": str(repository / ".git"), "GIT_INDEX_FILE": str(repository / ".git" / "index")}
    opens = [sys.executable, "-P", str(tmp_path / "opens.py")]
    with subprocess.Popen(opens, cwd=repository, env=given, stderr=subprocess.DEVNULL) as process:
        while end is not None and not (report.exists() and report.read_text()) and process.poll() is None:
            time.sleep(0.02)  # it needs the processor
        if end is not None:
            process.send_signal(end)
    assert eval(report.read_text())[:3] == [["kept", "removed"], "before", False]
    assert state(repository) == before


def test_no_variable_of_a_hook_is_passed_on(monkeypatch):
    named = subprocess.run(["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True).stdout.split()
    assert "GIT_INDEX_FILE" in named
    for name in named:
        monkeypatch.setenv(name, "of the hook")
    assert not environment().keys() & set(named)
