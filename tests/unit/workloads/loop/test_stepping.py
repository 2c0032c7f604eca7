"""How a user's program reports the ends of its steps."""

import os
import subprocess
import sys

import pytest

from wanbench.workloads.loop.stepping import environment, read_steps

LOOP = """
import torch
w = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.{optimizer}([w], lr=0.1)
for _ in range(5):
    w.grad = torch.ones(3)
    optimizer.step()
    {more}
"""


def run(tmp_path, code, *, hook=True, **extra):
    """Return the times that a program reported, run outside this repository."""
    steps = tmp_path / "steps"
    env = {**os.environ, **environment(steps, hook=hook), **extra}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return read_steps(steps), done.stdout


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_every_optimizer_step_of_an_unchanged_program_is_reported(tmp_path, optimizer):
    times, _ = run(tmp_path, LOOP.format(optimizer=optimizer, more="pass"))
    assert len(times) == 5
    assert times == sorted(times)


def test_without_the_hook_nothing_is_reported(tmp_path):
    assert run(tmp_path, LOOP.format(optimizer="SGD", more="pass"), hook=False)[0] == []


def test_a_program_that_reports_its_own_steps_is_not_counted_twice(tmp_path):
    assert len(run(tmp_path, "import wanbench\n" + LOOP.format(optimizer="SGD", more="wanbench.step()"))[0]) == 5


def test_gradient_accumulation_is_one_step_if_the_program_reports_it(tmp_path):
    code = "import wanbench\n" + LOOP.format(optimizer="SGD", more="_ % 2 or wanbench.step()")
    assert len(run(tmp_path, code)[0]) == 3


def test_step_does_nothing_outside_a_measurement(tmp_path):
    code = "import wanbench; wanbench.step(); wanbench.step()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


def _sleeps_at_the_end(tmp_path, code):
    """Return how long the program slept after its last line, on the hook's own clock."""
    watch = "import time; sleep = time.sleep; time.sleep = lambda s: (print('slept', s), sleep(s)); "
    return run(tmp_path, watch + code)[1]


def test_gloos_threads_get_time_before_a_counted_program_ends(tmp_path):
    assert _sleeps_at_the_end(tmp_path, "import torch.distributed") == "slept 0.1\n"
    assert _sleeps_at_the_end(tmp_path, "pass") == ""


def test_the_hook_does_not_change_programs_without_torch(tmp_path):
    times, out = run(tmp_path, "import sys; print('torch' in sys.modules)")
    assert (times, out) == ([], "False\n")


def test_a_users_sitecustomize_still_runs(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('mine')")
    path = os.pathsep.join([environment(tmp_path / "steps", hook=True)["PYTHONPATH"], str(tmp_path / "site")])
    assert run(tmp_path, "pass", PYTHONPATH=path)[1] == "mine\n"


def test_a_truncated_record_is_left_out(tmp_path):
    (tmp_path / "steps").write_bytes((7).to_bytes(8, sys.byteorder) + b"\x01\x02")
    assert read_steps(tmp_path / "steps") == [7]
