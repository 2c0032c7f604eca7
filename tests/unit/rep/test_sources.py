"""The code that a row names is the code that ran, whatever is edited while it runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from on_relay import expand

from wanbench.harness.plan.cell import CommandCell
from wanbench.harness.rep import sources
from wanbench.harness.spec.experiment import Spec
from wanbench.workloads import imported

SPEC = """
schema = 1
name = "t"

[workload]
command = ["./train.py"]

[network]
rate = "1Gbit"

[sweep]
workers = [2]
rtt = ["10ms"]
"""
# What the program imports, at once and late, by the path of the file.
AT_ONCE = {
    "app/__init__.py": "app",
    "app/helper.py": "app.helper",
    "lib/shared.py": "shared",
    "lib/space/part.py": "space.part",
}
LATE = {"app/late.py": "app.late", "lib/space/deep/late.py": "space.deep.late", "train.py": "train"}
FILES = AT_ONCE | LATE


def source(version: int) -> str:
    """Return a module that knows its version; all have the same length."""
    return f"VERSION = {version}\n"


def digest(version: int) -> str:
    return hashlib.sha256(source(version).encode()).hexdigest()


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """Return a repository with two branches that differ in each file."""
    folder = tmp_path_factory.mktemp("template")
    git(folder, "init", "-q", "-b", "one")
    for branch, version in (("one", 111), ("two", 222)):
        for file in FILES:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(source(version))
        (folder / "train.py").chmod(0o755)
        git(folder, "checkout", "-q", "-B", branch)
        git(folder, "add", "-A")
        git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", branch)
    return folder


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


class Project:
    """A project of a user, whose files have three digits as their version."""

    def __init__(self, template: Path, folder: Path, draw: random.Random) -> None:
        self.folder, self._draw = shutil.copytree(template, folder), draw

    @property
    def path(self) -> list[str]:
        return [str(self.folder), str(self.folder / "lib")]

    def edit(self) -> None:
        """Change a file, or all, in one of the ways in which people and their tools do."""
        path = self.folder / self._draw.choice([*FILES])
        before = path.stat()
        self._draw.choice([self._write, self._replace, self._switch])(path)
        if self._draw.random() < 0.5:  # so neither size nor time tells
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def _write(self, path: Path) -> None:
        path.write_text(source(self._draw.randrange(100, 1000)))

    def _replace(self, path: Path) -> None:
        """Give another file its name, as editors do."""
        other = path.with_name("swap")
        self._write(other)
        other.chmod(path.stat().st_mode)
        other.replace(path)

    def _switch(self, _: Path) -> None:
        git(self.folder, "checkout", "-qf", self._draw.choice(["one", "two"]))

    def on_disk(self) -> dict[str, int]:
        return {file: int((self.folder / file).read_text().split()[-1]) for file in FILES}


@contextlib.contextmanager
def forked(work: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Do some work in a child. Yield a function that waits for its result."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        yield lambda: json.load(answer)
        os.waitpid(pid, 0)


def imported_versions(files: dict[str, str]) -> dict[str, int]:
    """Import modules, and say which versions they are of."""
    return {file: __import__(module, fromlist=["x"]).VERSION for file, module in files.items()}


def program(project: Project, between: Callable[[], None]) -> dict[str, Any]:
    """Run as a worker does; return what ran by its own account, and what was noted."""
    sys.path[:0] = project.path
    imported.record()
    ran = imported_versions(AT_ONCE)
    between()
    ran |= imported_versions(LATE)
    return {"ran": ran, "imports": imported.noted()}


def cached(project: Project) -> None:
    """Let Python cache what it compiles, as an earlier run without wanbench would."""

    def work() -> None:
        sys.dont_write_bytecode = False
        sys.path[:0] = project.path
        imported_versions(FILES)

    with forked(work) as result:
        result()
    assert [*project.folder.rglob("*.pyc")]


def cell_of(folder: Path) -> CommandCell:
    cell = expand(Spec.from_toml(SPEC, str(folder / "x.toml")), str(folder / "x.toml"))[-1]
    assert isinstance(cell, CommandCell)
    return cell


@pytest.mark.parametrize("seed", range(8))
def test_what_is_stored_of_a_repetition_is_what_ran_whatever_was_edited_meanwhile(
    seed, template, tmp_path, monkeypatch
):
    voided = 0
    for case in range(25):
        draw = random.Random(1000 * seed + case)
        project = Project(template, tmp_path / str(case), draw)
        cell = cell_of(project.folder)
        monkeypatch.setattr(sys, "path", [*sys.path, str(project.folder / "lib")])
        if draw.random() < 0.5:
            cached(project)
        if draw.random() < 0.5:
            project.edit()
        moments = draw.sample(["before", "between", "after"], draw.choice([0, 1, 1, 2]))

        def edit(moment: str, project: Project = project, moments: list[str] = moments) -> None:
            if moment in moments:
                project.edit()

        known = sources.known_before(cell)
        edit("before")
        with forked(partial(program, project, partial(edit, "between"))) as result:
            report = result()
        edit("after")
        ran = {str(project.folder / file): digest(version) for file, version in report["ran"].items()}
        assert {path: whole for _, path, whole in report["imports"]} == ran, (seed, case)
        stored, void = sources.used(cell, known, [report])
        script = digest(report["ran"]["train.py"])[:12]
        assert (void == []) == (project.on_disk() == report["ran"] and known["train.py"] == script), (seed, case, void)
        voided += bool(void)
        if not void:
            assert sorted(stored.values()) == sorted([stored[sources.OURS], *(whole[:12] for whole in ran.values())])
            assert sources.changed(cell, stored) is None
            project.edit()
            assert (sources.changed(cell, stored) is None) == (project.on_disk() == report["ran"]), (seed, case)
    assert 0 < voided < 25
