"""CONTRIBUTING.md names files, names in them and make targets that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_file_exists_and_holds_the_names_beside_it():
    named = re.findall(r"`([\w./-]+/[\w./-]*)`(?: \(((?:`\w+`[^`)]*)+)\))?", TEXT)
    found = [(path, re.findall(r"`(\w+)`", names)) for path, names in named if "NAME" not in path]
    assert len(found) > 20
    for path, names in found:
        assert (ROOT / path).exists(), path
        assert [name for name in names if not re.search(rf"\b{name}\b", (ROOT / path).read_text())] == [], path


def test_every_target_exists():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"`make ([\w-]+)|^\$ make ([\w-]+)", TEXT, re.M)) <= {
        pair for name in targets for pair in ((name, ""), ("", name))
    }


def test_the_docstring_of_a_package_describes_its_files():
    for package in ("harness", "workloads", "netprofiles", "wanbench"):
        for init in (ROOT / package).rglob("__init__.py"):
            described = ast.get_docstring(ast.parse(init.read_text())) or ""
            files = {path.stem for path in init.parent.glob("*.py")} - {"__init__", "__main__"}
            if init.parent.name != "cli":  # a file for each command
                assert {name for name in files if not re.search(rf"\b{name}\b", described)} == set(), init


def test_no_file_is_longer_than_it_says():
    (most,) = map(int, re.findall(r"Files stay below (\d+) lines", TEXT))
    for folder in ("harness", "workloads", "netprofiles", "wanbench", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            assert len(path.read_text().splitlines()) < most, path
