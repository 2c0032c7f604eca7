"""The files under examples/ci and .github work, as a CI system would run them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import warm
import yaml

from wanbench.harness.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "ci"
ACTION = ROOT / ".github" / "actions" / "gate" / "action.yml"
WORKFLOWS = [*sorted((ROOT / ".github" / "workflows").glob("*.yml")), EXAMPLES / "github-actions.yml"]


CHECK = ("wanbench", "check", "gate.toml", "--testbed", "virtual", "--baseline", "baselines/gate.json")


def job_in(folder):
    """Return a function that runs a command in a folder with the examples, with `wanbench` on the path."""
    for path in EXAMPLES.iterdir():
        shutil.copy(path, folder)
    (folder / "baselines").mkdir()

    def run(*command, **variables):
        environment = {**os.environ, "PATH": warm.path(), **variables}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)

    run.folder = folder
    return run


@pytest.fixture
def job(tmp_path):
    return job_in(tmp_path)


@pytest.fixture(scope="module")
def accepted(tmp_path_factory):
    """Return a function that puts the baseline of the unchanged examples into a job's folder."""
    first = job_in(tmp_path_factory.mktemp("accepted"))
    done = first(*CHECK, "--accept")
    assert done.returncode == 0, done.stderr
    return lambda job: shutil.copy(first.folder / CHECK[-1], job.folder / CHECK[-1])


@pytest.mark.long  # the action does the same each time
def test_the_shell_script_needs_a_baseline_and_fails_after_a_regression(job, accepted):
    first = job("sh", "gate.sh")
    assert (first.returncode, first.stderr.splitlines()[-1]) == (2, "gate: not checked; see the error above")
    accepted(job)
    same = job("sh", "gate.sh")
    assert (same.returncode, same.stdout.splitlines()[-2:]) == (
        0,
        ["5 comparisons and 3 requirements judged; your code: model.py", "5 unchanged; 3 requirements met."],
    )
    spec = job.folder / "gate.toml"
    spec.write_text(spec.read_text().replace("min    = 0.9", "min    = 1.5"))
    path = job.folder / "baselines" / "gate.json"
    baseline = json.loads(path.read_text())
    for name, entry in baseline["cells"].items():
        if not name.startswith("one-worker"):  # as if the code had been faster
            entry["step_time_s"] *= 0.9
    path.write_text(json.dumps(baseline))
    worse = job("sh", "gate.sh")
    assert (worse.returncode, worse.stderr.splitlines()[-1]) == (
        1,
        "gate: a cell regressed, or a requirement is broken",
    )
    assert (
        (job.folder / "gate.md")
        .read_text()
        .startswith("### wanbench check: gate\n\n**4 regressed, 1 unchanged; 1 of 3 requirements not met.**")
    )
    assert 'failures="5"' in (job.folder / "gate.xml").read_text()


def test_a_library_that_raises_fails_the_gate(job, accepted):
    accepted(job)
    (job.folder / "model.py").write_text('raise RuntimeError("it is gone")')
    broken = job("sh", "gate.sh")
    assert (broken.returncode, broken.stdout) == (2, "")
    assert "it is gone" in broken.stderr


def test_a_model_that_sends_twice_as_much_fails_the_gate(job, accepted):
    accepted(job)
    model = job.folder / "model.py"
    model.write_text(model.read_text().replace("256", "512"))
    worse = job("sh", "gate.sh")
    assert worse.returncode == 1
    assert "payload_bytes" in worse.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_step_of_a_workflow_has_a_command_line_that_parses(path):
    text = path.read_text()
    assert "This workflow has not run on GitHub yet" in text
    called = [words for job in yaml.safe_load(text)["jobs"].values() for words in calls(job["steps"])]
    assert called
    for words in called:
        parsed(words)


def calls(steps):
    """Return the command lines of wanbench that these steps of a workflow would start."""
    found = []
    for step in steps:
        if step.get("uses") == "./.github/actions/gate":
            found += recorded(gate_script(), gate_variables(filled(step["with"])))
        else:
            found += recorded(filled(step.get("run", "")), {})
    return found


def filled(value):
    """Replace the expressions of a workflow by a word."""
    if isinstance(value, dict):
        return {name: filled(entry) for name, entry in value.items()}
    return re.sub(r"\$\{\{.*?\}\}", "word", value)


def gate_script():
    (step,) = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    return step["run"]


def gate_variables(given):
    """Return the environment that the action gives its script. Unknown and missing inputs fail."""
    action = yaml.safe_load(ACTION.read_text())
    assert given.keys() <= action["inputs"].keys()
    values = {name: given.get(name, entry.get("default")) for name, entry in action["inputs"].items()}
    assert None not in values.values()
    return {
        variable: values[re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", expression)[1]]
        for variable, expression in action["runs"]["steps"][0]["env"].items()
    }


# Every program but wanbench does nothing.
STUBS = """
wanbench() { printf '%q ' "$@"; echo; } >&3
command_not_found_handle() { :; }
PATH=/nowhere
"""


def recorded(script, variables):
    """Return the arguments of each call of wanbench in a script of bash, which must be without errors."""
    read, write = os.pipe()
    started = ["bash", "-c", f"exec 3>&{write}\n{STUBS}\nset -eo pipefail\n{script}"]
    done = subprocess.run(started, env=variables, pass_fds=[write], capture_output=True, text=True)
    os.close(write)
    with os.fdopen(read) as lines:
        found = [shlex.split(line) for line in lines]
    assert "syntax error" not in done.stderr, done.stderr
    assert done.returncode == 0 or not found, done.stderr
    return found


def parsed(words):
    """Parse the arguments of wanbench as its command line does. Raises: click.UsageError."""
    with contextlib.suppress(click.exceptions.Exit):  # --version
        context = main.make_context("wanbench", list(words))
        name, command, rest = main.resolve_command(context, list(words))
        command.make_context(name, rest, parent=context)


def test_a_line_that_does_not_parse_is_noticed():
    assert recorded('wanbench check "a b" --nonsense', {}) == [["check", "a b", "--nonsense"]]
    with pytest.raises(click.UsageError, match="nonsense"):
        parsed(["check", "a b", "--nonsense"])


def test_the_action_checks_a_baseline_and_writes_junit_and_the_summary(job, accepted):
    (job.folder / "step.md").touch()
    given = gate_variables({"spec": "gate.toml", "testbed": "virtual", "baseline": "baselines/gate.json",
                            "options": "--only workers=4 --only rtt=20ms"})  # fmt: skip
    accepted(job)
    done = job("bash", "-ec", gate_script(), **given, GITHUB_STEP_SUMMARY=str(job.folder / "step.md"))
    assert done.returncode == 0, done.stderr
    assert "<testsuite" in (job.folder / "gate.xml").read_text()
    assert (job.folder / "step.md").read_text().startswith("### wanbench check: gate")
