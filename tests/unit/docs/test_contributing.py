"""CONTRIBUTING.md names files, names in them and make targets that exist."""

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
