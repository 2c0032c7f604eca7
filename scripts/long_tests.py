"""Runs the tests marked `long`, and writes the documentation's page about them.

    python scripts/long_tests.py docs/reference/long-tests.md [PYTEST ARGUMENTS...]

As root with a Docker daemon; those of netem run in User-Mode Linux where this kernel has none. The page says what was
run, when, on which commit and how it ended. Exit status: 1 if anything failed.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest"]
HERE = ["sh", "scripts/measured-tests.sh", *PYTEST, "-m", "long and not netem"]
LANES = {
    "units and simulated runs": [*HERE, "tests/unit", "tests/simulated"],
    "namespaces": [*HERE, "tests/kernel", "tests/e2e"],
    "containers": [*HERE, "tests/docker"],
    "netem": ["sh", "scripts/test-kernel.sh"],
}
_SUMMARY = re.compile(r"^=+ (\d.* in [\d.]+s.*?) =+$")
NOTHING_SELECTED = 5
PAGE = """# Tests that take long

Soaks, random grids, kill matrices and whole images: what other tests do once, done many times over. They are marked
`long`, and left out of `make test` and of CI. `make test-long` runs them and writes this page.

{host}

| lane | outcome | minutes |
| --- | --- | --- |
{lanes}

| test | cases |
| --- | --- |
{tests}
"""


@dataclass(frozen=True)
class Outcome:
    """How a lane ended: its exit status, pytest's own summary, and how long it took."""

    status: int
    said: str
    seconds: float


def run(command: list[str]) -> Outcome:
    """Run a lane; its output is shown as it comes."""
    began, said = time.monotonic(), ""
    environment = {**os.environ, "MARKS": "netem and long", "PYTHON": sys.executable}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            summary = _SUMMARY.match(line)
            said = summary[1] if summary else said
    status = 0 if process.returncode == NOTHING_SELECTED else process.returncode
    return Outcome(status, said or f"exit status {process.returncode}", time.monotonic() - began)


def tests() -> dict[str, int]:
    """Every long test, with the number of its cases."""
    listing = [*PYTEST, "tests", "-m", "long", "--collect-only", "-q"]
    said = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return dict(Counter(re.findall(r"^(\S+?::\w+)", said, re.MULTILINE)))


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def about() -> str:
    """What is tested, when and where."""
    changed = " with changes that are not committed" if git("status", "--porcelain", "--untracked-files=no") else ""
    return (
        f"Last run: {datetime.now(UTC):%Y-%m-%d}, commit `{git('rev-parse', '--short=12', 'HEAD')}`{changed}, "
        f"Python {platform.python_version()}, {os.cpu_count()} processors."
    )


def page(host: str, outcomes: dict[str, Outcome]) -> str:
    """The page, of the lanes that have ended."""
    lanes = [
        f"| {name} | {outcomes[name].said} | {outcomes[name].seconds / 60:.0f} |"
        if name in outcomes
        else f"| {name} | not run | |"
        for name in LANES
    ]
    cases = [f"| `{name}` | {count} |" for name, count in tests().items()]
    return PAGE.format(host=host, lanes="\n".join(lanes), tests="\n".join(cases))


def main() -> int:
    target, *arguments = sys.argv[1:]
    host, outcomes = about(), dict[str, Outcome]()
    for name, command in LANES.items():
        outcomes[name] = run([*command, *arguments])
        Path(target).write_text(page(host, outcomes))
    return int(any(outcome.status for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
