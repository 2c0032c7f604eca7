"""The code that a row names is the code that ran, whatever is edited while it runs."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import py_compile
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from git_command import git
from on_relay import expand

from wanbench.harness.plan.cell import CommandCell
from wanbench.harness.process import apart
from wanbench.harness.rep import sources
from wanbench.harness.spec.experiment import Spec
from wanbench.workloads import imported
from wanbench.workloads.loop.stepping import injected

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
        git(folder, "commit", "-qm", branch)
    return folder


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


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
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

        known = sources.sources_before(cell.inputs)
        edit("before")
        with forked(partial(program, project, partial(edit, "between"))) as result:
            report = result()
        edit("after")
        ran = {str(project.folder / file): digest(version) for file, version in report["ran"].items()}
        assert {path: whole for _, path, whole in report["imports"]} == ran, (seed, case)
        stored, void = sources.used(cell.inputs, known, [SimpleNamespace(imports=report["imports"])])
        script = digest(report["ran"]["train.py"])[:12]
        assert (void == []) == (project.on_disk() == report["ran"] and known["train.py"] == script), (seed, case, void)
        voided += bool(void)
        if not void:
            assert sorted(stored.values()) == sorted(
                [stored[sources.OWN_CODE], *(whole[:12] for whole in ran.values())]
            )
            assert sources.changed(cell.inputs, stored) is None
            project.edit()
            assert (sources.changed(cell.inputs, stored) is None) == (project.on_disk() == report["ran"]), (seed, case)
    assert 0 < voided < 25


# ---------------------------------------------------------------- what counts


def run(folder: Path, *command: str, path: str = "", notes: Path | None = None) -> list[tuple[str, str, str]]:
    """Run Python as a worker runs a user's program; return its notes."""
    notes = notes or folder / "notes"
    env = {**os.environ, imported.NOTES_FILE: str(notes), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=env | injected(env), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return imported.noted(str(notes))


def test_a_program_notes_its_script_and_all_that_it_imports_in_any_process(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "train.py").write_text(
        "import helper, subprocess, sys; subprocess.check_call([sys.executable, '-m', 'pkg'])"
    )
    (tmp_path / "helper.py").write_text("import json, numpy")
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "__main__.py").write_text("import pkg.late")
    (tmp_path / "pkg" / "late.py").write_text("")
    noted = run(tmp_path, "train.py")
    expected = {"__main__": "train.py", "helper": "helper.py", "pkg": "pkg/__init__.py",
                "pkg.__main__": "pkg/__main__.py", "pkg.late": "pkg/late.py"}  # fmt: skip
    assert {module: path for module, path, _ in noted} == {
        name: str(tmp_path / file) for name, file in expected.items()
    }
    for _, path, whole in noted:
        assert whole == hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_an_editable_install_is_the_users_and_an_installed_package_is_not(tmp_path):
    site, project = tmp_path / "lib" / "site-packages", tmp_path / "project" / "src"
    for folder, module in ((site, "third"), (project, "mine")):
        folder.mkdir(parents=True)
        (folder / f"{module}.py").touch()
    (tmp_path / "train.py").write_text(f"import site; site.addsitedir({str(site)!r}); import mine, third, wanbench")
    (site / "mine.pth").write_text(str(project))
    assert {module for module, _, _ in run(tmp_path, "train.py")} == {"__main__", "mine"}


def test_modules_that_have_no_source_are_noted_too(tmp_path):
    compiled = py_compile.compile(str(written(tmp_path / "lib.py", "x = 1")), cfile=str(tmp_path / "old.pyc"))
    source = importlib.util.find_spec("_queue").origin
    shutil.copy(source, tmp_path / Path(source).name.replace("_queue", "fast"))
    (tmp_path / "train.py").write_text(
        "import old\ntry: import fast\nexcept ImportError as error: assert 'PyInit' in str(error)"
    )
    noted = {module: path for module, path, _ in run(tmp_path, "train.py")}
    assert noted["old"] == compiled
    assert noted["fast"].endswith(".so")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_program_runs_where_its_notes_cannot_be_written(tmp_path):
    (tmp_path / "train.py").touch()
    assert run(tmp_path, "train.py", notes=tmp_path / "missing" / "notes") == []


def test_a_file_that_the_program_writes_is_no_source_and_one_that_runs_is(tmp_path):
    for name, mode in (("out.csv", 0o644), ("run.sh", 0o644), ("tool", 0o755)):
        written(tmp_path / name, "1").chmod(mode)
    text = SPEC.replace('["./train.py"]', '["sh", "run.sh", "out.csv", "tool"]')
    cell = expand(Spec.from_toml(text, str(tmp_path / "x.toml")), str(tmp_path / "x.toml"))[-1]
    known = sources.sources_before(cell.inputs)
    assert set(known) == {sources.OWN_CODE, "run.sh", "out.csv", "tool"}
    written(tmp_path / "out.csv", "2")
    ran, void = sources.used(cell.inputs, known, [])
    assert (set(known) - set(ran), void) == ({"out.csv"}, [])
    (tmp_path / "tool").unlink()
    assert sources.used(cell.inputs, known, [])[1] == ["tool changed while it was measured"]
    written(tmp_path / "run.sh", "2")
    assert sources.used(cell.inputs, known, [])[1] == ["run.sh changed while it was measured"]


def test_ranks_that_ran_different_bytes_make_a_repetition_void(tmp_path):
    (tmp_path / "train.py").touch()
    cell = cell_of(tmp_path)
    reports = [SimpleNamespace(imports=[("lib", str(tmp_path / "lib.py"), 64 * letter)]) for letter in "ab"]
    void = sources.used(cell.inputs, sources.sources_before(cell.inputs), reports)[1]
    assert void == ["lib.py: its processes ran different versions of it"]


def test_our_own_code_that_changes_makes_a_repetition_void(tmp_path, monkeypatch):
    ours = written(tmp_path / "loop.py", "1")
    monkeypatch.setattr(sources, "_ROOT", tmp_path)
    monkeypatch.setattr(sources, "_MEASURING", [ours])
    sources._own_code.cache_clear()
    cell = cell_of(tmp_path)
    known = sources.sources_before(cell.inputs)
    assert sources.used(cell.inputs, known, [])[1] == []
    written(ours, "2")
    sources._own_code.cache_clear()
    assert sources.used(cell.inputs, known, [])[1] == ["wanbench itself changed while it was measured"]


def test_planning_asks_the_code_as_it_is_now(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for number in (100, 200):
        written(tmp_path / "asked_module.py", source(number))
        assert apart.call("'asked_module'", _version, "asked_module") == number


def _version(module: str) -> int:
    number: int = importlib.import_module(module).VERSION
    return number
