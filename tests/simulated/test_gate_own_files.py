"""`check --base` where people run it: in a hook, a linked worktree, under an editable install, on a push build."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_session import Bench
from git_command import git

SPEC = """
schema = 1
name = "gate"

[workload]
params = 100_000
tensors = 4
step_time = "20ms"

[algorithms]
mine = { kind = "mypkg.sync:Mine" }

[sweep]
workers = [2]
rtt = ["10ms"]

[run]
testbed = "virtual"
repeats = 1
"""
SYNC = """
from mypkg.helpers import more
from wanbench.workloads.algorithms.ssgd import SSGD


class Mine(SSGD):
    def gradient(self, g):
        averaged = super().gradient(g)
        for _ in range(more):
            self.replica.comm.all_reduce(g.new_zeros(1)).wait()
        return averaged
"""
HOOK = """#!/bin/sh
exec '{python}' -P -m wanbench.harness.cli check spec.toml --base HEAD --out '{out}' >'{out}.txt' 2>&1
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Make a repository in the src layout, and a Python with what pip and hatchling install with `-e`."""
    folder = tmp_path_factory.mktemp("project") / "repository"
    (folder / "src" / "mypkg").mkdir(parents=True)
    (folder / "src" / "mypkg" / "__init__.py").touch()
    (folder / "src" / "mypkg" / "sync.py").write_text(SYNC)
    (folder / "src" / "mypkg" / "helpers.py").write_text("more = 0\n")
    (folder / "spec.toml").write_text(SPEC)
    (folder / "notes.txt").write_text("one\n")
    (folder / ".gitignore").write_text("__pycache__/\n.venv/\ntmp/\nstderr-*\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "one")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")], check=True)
    (site,) = (folder / ".venv").glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    lines = [f"import site; site.addsitedir({path!r})" for path in ours]
    (site / "_mypkg.pth").write_text("\n".join([str(folder / "src"), *lines, ""]))
    return folder


@pytest.fixture
def worktree(project, tmp_path):
    """Make a linked worktree, in which imports lead to the repository, with the gate as its hook."""
    folder = tmp_path / "linked"
    git(project, "worktree", "add", "--quiet", "--detach", str(folder))
    hook = Path(folder, git(folder, "rev-parse", "--git-path", "hooks/pre-commit"))
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK.format(python=project / ".venv" / "bin" / "python", out=tmp_path / "results"))
    hook.chmod(0o755)
    yield folder
    hook.unlink()
    git(project, "worktree", "remove", "--force", str(folder))


@pytest.mark.long  # the same gate in hooks and without worktrees runs each time
def test_a_commit_that_slows_down_is_refused_in_a_linked_worktree_under_an_editable_install(worktree, tmp_path):
    (worktree / "src" / "mypkg" / "helpers.py").write_text("more = 3\n")
    index = Path(worktree, git(worktree, "rev-parse", "--git-path", "index"))
    head, before = git(worktree, "rev-parse", "HEAD"), index.read_bytes()
    git(worktree, "commit", "--all", "--message", "slower", check=False)
    said = (tmp_path / "results.txt").read_text()
    assert "messages_sent 46 -> 184 (+300 %)" in said, said
    assert "gate: the working folder, staged or not against HEAD (" in said
    assert "the code under test is the same" not in said
    files = "src/mypkg/__init__.py, src/mypkg/helpers.py, src/mypkg/sync.py"
    assert f"2 comparisons and 0 requirements judged; your code: {files}\n" in said
    assert json.loads((tmp_path / "results" / "check-gate" / "check.json").read_text())["exit_code"] == 1
    assert (git(worktree, "rev-parse", "HEAD"), index.read_bytes()) == (head, before)


def test_a_clean_tree_against_its_own_revision_is_refused(project):
    bench = Bench(project)
    program = [str(project / ".venv" / "bin" / "python"), "-P", "-m", "wanbench.harness.cli"]
    refused = bench.run("check", "spec.toml", "--base", "main", program=program)
    bench.close()
    assert (refused.code, refused.out) == (2, "")
    assert refused.last_line.startswith("wanbench: --base and --head have the same files (main (")


def test_a_push_build_without_its_base_is_told_to_fetch_it(project, tmp_path):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{project}", str(clone))
    git(clone, "checkout", "--quiet", "--detach")
    bench = Bench(clone)
    program = [str(project / ".venv" / "bin" / "python"), "-P", "-m", "wanbench.harness.cli"]
    refused = bench.run("check", "spec.toml", "--base", "HEAD~1", program=program)
    bench.close()
    assert (refused.code, refused.out) == (3, "")
    assert "set fetch-depth: 0 in the workflow" in refused.last_line
