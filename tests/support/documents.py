"""The code in documents, so that tests run exactly what readers see."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
_FILE = re.compile(r"^<!-- file: (\S+) -->\n^```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CONSOLE = re.compile(r"(?:^<!-- ([\w ]+) -->\n)?^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(document: str, language: str) -> list[str]:
    """Return the blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / document).read_text(), re.DOTALL | re.MULTILINE)


def write_files(document: str, folder: Path) -> None:
    """Write every block that begins with `# name.suffix`, or follows `<!-- file: NAME -->`, to that file."""
    for name, block in _FILE.findall((DOCS / document).read_text()):
        (folder / name).write_text(block)
    for block in [*blocks(document, "python"), *blocks(document, "toml")]:
        named = re.match(r"# (\w+\.\w+)\n", block)
        if named:
            (folder / named[1]).write_text(block)


@dataclass(frozen=True)
class Line:
    """A command as a reader types it, and its expected output, in which `...` matches anything.

    `needs` is the comment before its block: "emulated", "host", "by hand", or nothing.
    """

    command: str
    output: str
    needs: str


def commands(document: str) -> list[Line]:
    """Return the commands of all console blocks, in order."""
    found = []
    for needs, block in _CONSOLE.findall((DOCS / document).read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Line(command, output, needs))
    return found


def typed(line: Line, folder: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder` as if a reader had typed it, in the environment of the tests; `path` is its PATH."""
    path = path or os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-c", line.command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )


def matches(output: str, expected: str) -> bool:
    """Return whether output equals that in a document, up to white space."""
    return doctest.OutputChecker().check_output(expected, output, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
