"""The files under examples/ci do what they say, as a CI system would run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "ci"


@pytest.fixture
def job(tmp_path):
    """A folder with the examples in it, and `wanbench` on the path."""
    for path in EXAMPLES.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "baselines").mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(*command):
        return subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
        )

    run.folder = tmp_path
    return run


def test_the_shell_script_passes_without_a_baseline_and_fails_where_it_got_worse(job):
    first = job("sh", "gate.sh")
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[-1] == "5 new; 3 requirements met."
    spec = job.folder / "gate.toml"
    job("wanbench", "check", "gate.toml", "--testbed", "virtual", "--baseline", "baselines/gate.json", "--accept")
    spec.write_text(spec.read_text().replace("min    = 0.9", "min    = 1.5"))
    path = job.folder / "baselines" / "gate.json"
    baseline = json.loads(path.read_text())
    for name, entry in baseline["cells"].items():
        if not name.startswith("one-worker"):  # as if the code had been faster then
            entry["step_time_s"] *= 0.9
    path.write_text(json.dumps(baseline))
    worse = job("sh", "gate.sh")
    assert (worse.returncode, worse.stderr.splitlines()[-1]) == (
        1,
        "gate: something got slower, or a requirement is broken",
    )
    assert (
        (job.folder / "gate.md")
        .read_text()
        .startswith("### wanbench check: gate\n\n**4 regressed, 1 unchanged; 1 of 3 requirements not met.**")
    )
    assert 'failures="5"' in (job.folder / "gate.xml").read_text()


def test_the_workflow_calls_commands_and_options_that_exist():
    text = (EXAMPLES / "github-actions.yml").read_text()
    said = subprocess.run(
        [sys.executable, "-m", "wanbench.harness.cli", "check", "--help"], capture_output=True, text=True, check=True
    ).stdout
    used = {word for line in text.splitlines() if "check" in line or "--" in line for word in line.split()
            if word.startswith("--") and word not in {"--index-url"}}  # fmt: skip
    assert used == {"--testbed", "--baseline", "--accept", "--junit", "--github", "--base", "--head", "--inconclusive"}
    assert all(option in said for option in used)
