"""Base and head: checkouts of revisions that leave nothing in the repository, images, folders."""

from __future__ import annotations

import sys

import pytest
from git_command import git

from wanbench.harness.errors import HostError, Interrupted, SpecError
from wanbench.harness.gate import sides
from wanbench.harness.gate.sides import Measurement, NotComparable, OwnFiles, RunRequest, opened, recorded, turns


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Make a repository with two commits of one file; the working folder is a subfolder, on a detached head."""
    top = tmp_path / "repository"
    (top / "below").mkdir(parents=True)
    git(top, "init", "--quiet", "--initial-branch", "main")
    for text in ("one", "two"):
        (top / "below" / "file").write_text(text)
        git(top, "add", "--all")
        git(top, "commit", "--quiet", "--message", text)
    git(top, "checkout", "--quiet", "--detach", "HEAD")
    monkeypatch.chdir(top / "below")
    return top


def everything(folder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_revision_is_checked_out_beside_the_repository_and_removed(repository, tmp_path):
    before = everything(repository)
    with opened("base", "HEAD~1", (), tmp_path / "scratch") as side:
        assert side.folder == tmp_path / "scratch" / "base" / "below"
        assert (side.folder / "file").read_text() == "one"
        assert git(side.folder, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD~1")
        assert git(side.folder, "status", "--porcelain") == ""
        assert side.title == f"HEAD~1 ({git(repository, 'rev-parse', 'HEAD~1')[:9]})"
        assert (side.python, side.path) == (sys.executable, ())
    assert not (tmp_path / "scratch" / "base").exists()
    assert everything(repository) == before


def test_a_shallow_clone_provides_its_revisions_and_explains_what_to_fetch(repository, tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", "1", "--branch", "main", f"file://{repository}", str(clone))
    monkeypatch.chdir(clone)
    with opened("base", "origin/main", (), tmp_path) as side:
        assert (side.folder / "below" / "file").read_text() == "two"
    with pytest.raises(HostError) as caught, opened("base", "origin/other", (), tmp_path):
        pass
    assert str(caught.value) == (
        "--base origin/other: no such revision in this shallow clone; set fetch-depth: 0 in the workflow, or run "
        "`git fetch --depth=1 origin other`"
    )


@pytest.mark.parametrize("same", ["HEAD", "main", "tagged", "empty"])
def test_revisions_with_the_files_of_a_clean_working_folder_are_the_same(repository, tmp_path, same):
    git(repository, "tag", "tagged")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "empty")
    git(repository, "tag", "empty")
    (repository / "below" / "out").mkdir()
    (repository / "below" / "out" / "rows").touch()
    with (
        opened("base", same, (), tmp_path) as base,
        opened("head", ".", (), tmp_path, repository / "below" / "out") as head,
        opened("head", "HEAD~2", (), tmp_path) as earlier,
        opened("head", ".", (), tmp_path) as with_a_new_file,
    ):
        assert base.same == head.same
        assert base.same not in {earlier.same, with_a_new_file.same}
        (repository / "below" / "file").write_text("three")
        with opened("head", ".", (), tmp_path, repository / "below" / "out") as changed:
            assert base.same != changed.same


def test_other_checkouts_of_the_repository_are_known(repository, tmp_path):
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "--quiet", "--detach", str(linked))
    with opened("base", "HEAD", (), tmp_path) as base, opened("head", ".", (), tmp_path) as head:
        assert base.own == OwnFiles(str(tmp_path / "base"), tuple(map(str, (repository, linked, tmp_path / "head"))))
        assert head.own == OwnFiles(str(repository), tuple(map(str, (linked, tmp_path / "base", tmp_path / "head"))))


def test_set_up_runs_in_the_checkout_and_can_create_its_environment(repository, tmp_path, capfd):
    setup = ["mkdir -p .venv/bin", "cp below/file .venv/bin/python; echo done"]
    with opened("head", "HEAD", setup, tmp_path) as side:
        assert side.python == str(tmp_path / "head" / ".venv" / "bin" / "python")
    assert capfd.readouterr() == ("", f"head: {setup[0]}\nhead: {setup[1]}\ndone\n")


def test_a_failed_set_up_is_reported_with_its_command_and_status(repository, tmp_path):
    with pytest.raises(HostError) as caught, opened("base", "HEAD", ["true", "exit 7"], tmp_path):
        pass
    assert str(caught.value) == "--base HEAD: gate.setup: `exit 7` ended with status 7"
    assert not (tmp_path / "base").exists()


def test_wanbench_itself_is_run_by_its_own_code(repository, tmp_path):
    for package in ("wanbench/harness/cli",):
        (repository / package).mkdir(parents=True)
        (repository / package / "__init__.py").touch()
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "wanbench")
    with opened("base", "HEAD", (), tmp_path) as side:
        assert side.path == (str(tmp_path / "base"),)


def test_an_unknown_revision_is_refused(repository, tmp_path):
    with pytest.raises(SpecError) as caught, opened("base", "mian", (), tmp_path):
        pass
    assert str(caught.value) == (
        "--base mian: no such run folder or revision; expected a run folder, a git revision, image:NAME, or ."
    )


def test_a_revision_outside_a_repository_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(SpecError) as caught, opened("base", "main", (), tmp_path):
        pass
    assert str(caught.value).startswith(
        "--base main: neither a run folder nor a revision: git rev-parse: fatal: not a git"
    )


def test_a_revision_without_git_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as caught, opened("base", "main", (), tmp_path):
        pass
    assert str(caught.value) == "--base main: not a run folder, and finding a revision needs git; install it"


def test_an_image_can_be_a_side(tmp_path):
    with opened("head", "image:mine:2", (), tmp_path) as side:
        assert side.title == "image:mine:2"
        assert side.assignments == ("run.testbed=docker", "containers.image=mine:2")


def test_the_working_folder_is_not_taken_for_a_run_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    assert recorded("head", ".", tmp_path) is None
    assert recorded("head", str(tmp_path), tmp_path).recorded.path == tmp_path
    with opened("head", ".", (), tmp_path) as side:
        assert side.title == sides.WORKING


def test_sides_are_measured_first_alternately(tmp_path):
    order = RunRequest(tmp_path / "s.toml", "s", (), ())
    base, head = (Measurement(sides.Side(role, role), order, tmp_path / role) for role in ("base", "head"))
    assert "".join(side.side.role[0] for _, side in turns(0, 4, base, head)) == "bhhbbhhb"
    assert [index for index, _ in turns(5, 7, base, head)] == [5, 5, 6, 6]


def test_the_commands_of_a_side_run_in_its_checkout_with_the_spec_of_the_head(tmp_path):
    """Run a stand-in program: only its arguments matter. A command runs in the folder of its spec."""
    (tmp_path / "repository" / "sub").mkdir(parents=True)
    spec, base, out = tmp_path / "repository" / "sub" / "s.toml", tmp_path / "base", tmp_path / "out"
    spec.write_text("of the head")
    base.mkdir()
    out.mkdir()
    (out / "imports.jsonl").touch()
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/arguments\n')
    program.chmod(0o755)
    own = OwnFiles(str(base), (str(tmp_path / "repository"),))
    side = sides.Side("base", "main", folder=base, python=str(program), own=own)
    Measurement(side, RunRequest(spec, "s", (), (), (("python", "train.py"),)), out).measure(1, ())
    assert f" run {base}/sub/s.toml --no-figures " in (tmp_path / "arguments").read_text()
    assert (base / "sub" / "s.toml").read_text() == "of the head"
    Measurement(side, RunRequest(spec, "s", (), ()), out).measure(1, ())
    assert f" run {spec} --no-figures " in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize(
    ("role", "status", "error", "message"),
    [
        ("base", 2, NotComparable, "the base cannot run this spec: no such key"),
        ("head", 2, SpecError, "head (main (abc)): no such key"),
        ("base", 3, HostError, "base (main (abc)): no such key"),
        ("base", 9, HostError, "base (main (abc)): `wanbench run` ended with status 9: no such key"),
        ("base", 130, Interrupted, "interrupted; nothing was judged"),
    ],
)
def test_a_side_that_cannot_be_measured_is_reported_with_the_reason(tmp_path, role, status, error, message):
    """Run a stand-in program: only its exit status and its last line matter."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho something else >&2; echo 'wanbench: no such key' >&2; exit {status}\n")
    program.chmod(0o755)
    side = sides.Side(role, "main (abc)", folder=tmp_path, python=str(program))
    measurement = Measurement(side, RunRequest(tmp_path / "s.toml", "s", (), ()), tmp_path)
    with pytest.raises(error) as caught:
        measurement.measure(1, ())
    assert str(caught.value) == message
