"""A side of `check --base` runs the files of its own checkout, wherever its modules are installed, and proves it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from git_command import git

from wanbench.harness.gate.sides import HOOK, NotComparable, OwnFiles

LINE = "import mypkg.helper; print(mypkg.helper.version)"
# What setuptools installs for a project that is no plain folder of packages.
FINDER = """
import sys
from importlib.util import spec_from_file_location

class Editable:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "mypkg":
            return spec_from_file_location(name, "{src}/mypkg/__init__.py", submodule_search_locations=["{src}/mypkg"])

def install():
    sys.meta_path.{add}
"""


def package(folder: Path, version: str) -> None:
    (folder / "mypkg").mkdir(parents=True)
    (folder / "mypkg" / "__init__.py").touch()
    (folder / "mypkg" / "helper.py").write_text(f"version = {version!r}")


@pytest.fixture
def sides(tmp_path):
    """Return the repository, whose working tree has another version than the checkout of the base, and both sides."""
    repository, base = tmp_path / "repository", tmp_path / "base"
    package(repository / "src", "head")
    package(base / "src", "base")
    (repository / ".gitignore").write_text("build/\n.venv/\n__pycache__/\n")
    git(repository, "init", "--quiet")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "one")
    return repository, {
        "base": OwnFiles(str(base), (str(repository),)),
        "head": OwnFiles(str(repository), (str(base),)),
    }


def run(own: OwnFiles, record: Path, *command: str, code: str = LINE, path: str = "", **environment: str) -> str:
    python_path = os.pathsep.join(filter(None, [str(HOOK), path]))
    given = os.environ | own.environment(record) | {"PYTHONPATH": python_path} | environment
    command = command or (sys.executable, "-P", "-c", code)
    done = subprocess.run(command, env=given, cwd=own.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def environment(folder: Path, *lines: str) -> str:
    """Make a virtual environment whose site-packages have these lines in a .pth file; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "__editable__.mypkg.pth").write_text("".join(f"{line}\n" for line in lines))
    return str(folder / "bin" / "python")


@pytest.mark.parametrize("role", ["base", "head"])
@pytest.mark.parametrize("install", ["PYTHONPATH", "pth", "finder", "first finder", "copy"])
def test_a_side_imports_its_own_files_however_the_package_is_installed(sides, tmp_path, role, install):
    repository, both = sides
    src, record = repository / "src", tmp_path / "record"
    if install == "PYTHONPATH":
        version = run(both[role], record, path=str(src))
    else:
        line = {"pth": str(src), "copy": ""}.get(install, "import editable; editable.install()")
        python = environment(repository / ".venv", line)
        (site,) = (repository / ".venv").glob("lib/python*/site-packages")
        add = "insert(0, Editable)" if install == "first finder" else "append(Editable)"
        (site / "editable.py").write_text(FINDER.format(src=src, add=add))
        if install == "copy":
            package(site, "installed")
        version = run(both[role], record, python, "-P", "-c", LINE)
    assert version == role
    own = Path(both[role].root) / "src" / "mypkg"
    assert [json.loads(line) for line in record.read_text().splitlines()] == [
        str(own / "__init__.py"), str(own / "helper.py"),
    ]  # fmt: skip
    assert both[role].prove(role, record, []) == {
        f"src/mypkg/{name}": sha256((own / name).read_bytes()).hexdigest()[:12] for name in ("__init__.py", "helper.py")
    }


def test_modules_that_are_run_and_processes_that_are_started_import_the_same_files(sides, tmp_path):
    repository, both = sides
    for folder in (repository, tmp_path / "base"):
        (folder / "src" / "mypkg" / "__main__.py").write_text(
            "import subprocess, sys\nfrom mypkg.helper import version\nprint(version, flush=True)\n"
            f"sys.argv[1:] or subprocess.run([sys.executable, '-c', {LINE!r}], check=True)\n"
        )
    version = run(both["base"], tmp_path / "r", sys.executable, "-m", "mypkg", path=str(repository / "src"))
    assert version.split() == ["base", "base"]


def test_a_namespace_package_is_led_to_its_own_files(sides, tmp_path):
    repository, both = sides
    for folder, version in ((repository, "head"), (tmp_path / "base", "base")):
        (folder / "src" / "space").mkdir()
        (folder / "src" / "space" / "part.py").write_text(f"version = {version!r}")
    code = "import space.part; print(space.part.version)"
    assert run(both["base"], tmp_path / "r", code=code, path=str(repository / "src")) == "base"


def test_a_sitecustomize_of_the_users_still_runs(sides, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('mine')")
    assert run(sides[1]["base"], tmp_path / "r", code="pass", path=str(tmp_path / "site")) == "mine"


def test_a_file_that_the_checkout_lacks_is_named_with_its_place_and_what_to_do(sides, tmp_path):
    repository, both = sides
    (repository / "src" / "added.py").touch()
    run(both["base"], tmp_path / "r", code="import added", path=str(repository / "src"))
    with pytest.raises(NotComparable) as caught:
        both["base"].prove("base", tmp_path / "r", [])
    assert str(caught.value) == (
        f"the base did not run its own files: {repository}/src/added.py in place of {tmp_path}/base/src/added.py; "
        "commit what is new, name scripts relative to the spec, and build in gate.setup what must be built"
    )


def test_what_git_ignores_is_no_file_of_a_checkout(sides, tmp_path):
    repository, both = sides
    (repository / "build").mkdir()
    (repository / "build" / "built.py").touch()
    run(both["base"], tmp_path / "r", code="import built", path=str(repository / "build"))
    both["base"].prove("base", tmp_path / "r", [])


def test_a_script_of_another_checkout_is_refused(sides, tmp_path):
    repository, both = sides
    (repository / "train.py").touch()
    (tmp_path / "r").touch()
    both["head"].prove("head", tmp_path / "r", [repository / "train.py"])
    with pytest.raises(NotComparable, match=f"^the base did not run its own files: {repository}/train.py in place of "):
        both["base"].prove("base", tmp_path / "r", [repository / "train.py"])


def test_without_a_record_nothing_is_proved(sides, tmp_path):
    with pytest.raises(NotComparable, match=r"^the files that the base ran are not known: "):
        sides[1]["base"].prove("base", tmp_path / "none", [])
