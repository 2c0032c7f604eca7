"""Measure how often the gate is wrong on this host, and whether it detects a slowdown: real namespaces, real TCP.

    python benchmarks/gate_power.py [--equal 10] [--slower 3] [--slowdown 0.15]

First it checks a revision against itself, which must never be reported as a regression. Then it checks it against a
revision in which `ssgd` sleeps for 15 % of every step. Each check takes one to two minutes. The exit code is 1 if the
gate was wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SPEC = """
schema = 1
name = "gate-power"

[workload]
params = 100_000
tensors = 4
step_time = "50ms"
step_cv = 0.02

[network]
rate = "100Mbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
ssgd = {}
sparse = { period = 4 }

[sweep]
workers = [2]
rtt = ["20ms"]

[run]
testbed = "netns"
"""
SLEEPS = """

import time as _time

_prompt = SSGD.gradient


def _late(self, g):
    averaged = _prompt(self, g)  # before the sleep, which would otherwise overlap with messages in flight
    now = _time.monotonic()
    _time.sleep({share} * (now - getattr(self, "_before", now)))
    self._before = _time.monotonic()
    return averaged


SSGD.gradient = _late
"""


def main() -> int:
    """Run the checks and print a line for each."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--equal", type=int, default=10, help="checks of a revision against one with the same code")
    options.add_argument("--slower", type=int, default=3, help="checks against the slower revision")
    options.add_argument("--slowdown", type=float, default=0.15)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="gate-power-") as name:
        repository = _repository(Path(name) / "repository", asked.slowdown)
        equal = [_check(repository, "base", "equal") for _ in range(asked.equal)]
        slower = [_check(repository, "base", "slow") for _ in range(asked.slower)]
    false_alarms = sum(report["counts"]["regressed"] > 0 for report in equal)
    seen = sum(_verdicts(report).get("ssgd w2 20ms") == "regressed" for report in slower)
    print(f"{false_alarms} of {asked.equal} checks of equal revisions found a regression; "
          f"{seen} of {asked.slower} detected that ssgd was {asked.slowdown:.0%} slower")  # fmt: skip
    return 0 if false_alarms == 0 and seen == asked.slower else 1


def _repository(folder: Path, slowdown: float) -> Path:
    """Clone this checkout and add the revisions `base`, `equal`, which has one more file, and `slow`."""
    _run("git", "clone", "--quiet", "--shared", str(ROOT), str(folder), cwd=ROOT)
    _run("git", "tag", "base", cwd=folder)
    (folder / "gate-power.toml").write_text(SPEC)
    who = ("-c", "user.name=gate", "-c", "user.email=gate@example.org")
    (folder / "equal.txt").touch()
    _run("git", "add", "equal.txt", cwd=folder)
    _run("git", *who, "commit", "--quiet", "--message", "equal", cwd=folder)
    _run("git", "tag", "equal", cwd=folder)
    algorithm = folder / "workloads" / "algorithms" / "ssgd.py"
    algorithm.write_text(algorithm.read_text() + SLEEPS.format(share=slowdown))
    _run("git", *who, "commit", "--quiet", "--all", "--message", "slow", cwd=folder)
    _run("git", "tag", "slow", cwd=folder)
    return folder


def _check(repository: Path, base: str, head: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "wanbench.harness.cli",
        "check",
        "gate-power.toml",
        "--allow-no-code",
        "--base",
        base,
        "--head",
        head,
        "--json",
    ]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    if not done.stdout:
        sys.exit(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    pairs = collections.Counter(cell["timing"]["pairs"] for cell in report["cells"] if cell["timing"])
    cells = "   ".join(f"{cell['cell']} {_change(cell)} {cell['verdict']}" for cell in report["cells"])
    print(f"{base} {head} exit {done.returncode}   {cells}   pairs {dict(pairs)}", flush=True)
    return report


def _change(cell: dict[str, Any]) -> str:
    timing = cell["timing"]
    return f"{100 * timing['change']:+.1f} %" if timing and timing["change"] is not None else f"({cell['text']})"


def _verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {cell["cell"]: cell["verdict"] for cell in report["cells"]}


def _run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True)


if __name__ == "__main__":
    sys.exit(main())
