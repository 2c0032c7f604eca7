"""Run the tests marked `long`, and write the documentation page about them.

    python scripts/long_tests.py docs/reference/long-tests.md [PYTEST ARGUMENTS...]

It needs root and a Docker daemon. Tests with netem run in User-Mode Linux if this kernel has no netem. The page shows
the tests, the date, the commit and the outcome. The exit status is 1 if anything failed.
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

from wanbench.harness.process.git import git

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest"]
HERE = ["sh", "scripts/measured-tests.sh", *PYTEST, "-m", "long and not netem"]
LANES = {
    "units and simulated runs": [*HERE, "tests/unit", "tests/simulated", "-n", "2"],
    "namespaces": [*HERE, "tests/kernel", "tests/e2e"],
    "containers": [*HERE, "tests/docker"],
    "netem": ["sh", "scripts/test-kernel.sh"],
}
_SUMMARY = re.compile(r"^=+ (\d.* in [\d.]+s.*?) =+$")
NOTHING_SELECTED = 5
PAGE = """# Long tests

Soaks, random grids, kill matrices and whole images. They repeat many times what other tests do once. They are marked
`long` and are not part of `make test` or of CI. `make test-long` runs them and writes this page.

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
    """How a lane ended: its exit status, pytest's summary, and its duration."""

    status: int
    summary: str
    seconds: float


def run(command: list[str]) -> Outcome:
    """Run a lane and print its output immediately."""
    began, summary = time.monotonic(), ""
    environment = {**os.environ, "MARKS": "netem and long", "PYTHON": sys.executable}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            found = _SUMMARY.match(line)
            summary = found[1] if found else summary
    status = 0 if process.returncode == NOTHING_SELECTED else process.returncode
    return Outcome(status, summary or f"exit status {process.returncode}", time.monotonic() - began)


def tests() -> dict[str, int]:
    """Return every long test with its number of cases."""
    listing = [*PYTEST, "tests", "-m", "long", "--collect-only", "-q"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return dict(Counter(re.findall(r"^(\S+?::\w+)", listed, re.MULTILINE)))


def about() -> str:
    """Return the date, the commit and the host."""
    changed = " with uncommitted changes" if git("status", "--porcelain", "--untracked-files=no", cwd=ROOT) else ""
    commit = git("rev-parse", "--short=12", "HEAD", cwd=ROOT)
    return (
        f"Last run: {datetime.now(UTC):%Y-%m-%d}, commit `{commit}`{changed}, "
        f"Python {platform.python_version()}, {os.cpu_count()} processors."
    )


def page(host: str, outcomes: dict[str, Outcome]) -> str:
    """Return the page for the lanes that have ended."""
    lanes = [
        f"| {name} | {outcomes[name].summary} | {outcomes[name].seconds / 60:.0f} |"
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
