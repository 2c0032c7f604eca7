"""Run the tests marked `long`, and write the documentation page about them.

    python scripts/long_tests.py docs/reference/long-tests.md [PYTEST ARGUMENTS...]

It needs root and a Docker daemon. Tests with netem run in User-Mode Linux if this kernel has no netem. The page shows
the tests, and the outcome, the date and the commit of each lane. LANES="containers,netem" runs these lanes; the others
keep their lines. The exit status is 1 if anything failed.
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

Soaks, random grids, kill matrices, whole images, and tests that take too long for each build. They are
marked `long` and are not part of `make test` or of CI. `make test-long` runs them and writes this page.

{host}

| lane | outcome | minutes | date | commit |
| --- | --- | --- | --- | --- |
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
    began, summaries = time.monotonic(), list[str]()
    environment = {**os.environ, "MARKS": "netem and long", "PYTHON": sys.executable}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if found := _SUMMARY.match(line):  # a second one if failed tests were run again
                summaries.append(found[1])
    status = 0 if process.returncode == NOTHING_SELECTED else process.returncode
    return Outcome(status, "; again: ".join(summaries) or f"exit status {process.returncode}", time.monotonic() - began)


def tests() -> dict[str, int]:
    """Return every long test with its number of cases."""
    listing = [*PYTEST, "tests", "-m", "long", "--collect-only", "-q"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return dict(Counter(re.findall(r"^(\S+?::\w+)", listed, re.MULTILINE)))


def about(page: Path) -> str:
    """Return the date and the commit, as cells of a table. The page itself may have changed."""
    others = ("--", ".", f":!{page}")
    changed = " with changes" if git("status", "--porcelain", "--untracked-files=no", *others, cwd=ROOT) else ""
    return f"{datetime.now(UTC):%Y-%m-%d} | `{git('rev-parse', '--short=12', 'HEAD', cwd=ROOT)}`{changed}"


def lines(page: Path) -> dict[str, str]:
    """Return the line of each lane on the page."""
    by_name = {line.split("|")[1].strip(): line for line in page.read_text().splitlines() if line.startswith("|")}
    return {name: by_name.get(name, f"| {name} | not run | | | |") for name in LANES}


def page(lanes: dict[str, str]) -> str:
    """Return the page with these lines."""
    host = f"Python {platform.python_version()}, {os.cpu_count()} processors."
    cases = [f"| `{name}` | {count} |" for name, count in tests().items()]
    return PAGE.format(host=host, lanes="\n".join(lanes.values()), tests="\n".join(cases))


def main() -> int:
    target, arguments = Path(sys.argv[1]), sys.argv[2:]
    wanted = [name for name in os.environ.get("LANES", "").split(",") if name] or [*LANES]
    if unknown := [name for name in wanted if name not in LANES]:
        sys.exit(f"LANES: no lane {unknown[0]!r}; expected some of {', '.join(LANES)}")
    lanes, commit, failed = lines(target), about(target), False
    for name in wanted:
        outcome = run([*LANES[name], *arguments])
        failed = failed or bool(outcome.status)
        lanes[name] = f"| {name} | {outcome.summary} | {outcome.seconds / 60:.0f} | {commit} |"
        target.write_text(page(lanes))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
