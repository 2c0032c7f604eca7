"""How a program of the user's own tells where its steps end."""

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
    """The times that a program told, run outside of this repository."""
    steps = tmp_path / "steps"
    env = {**os.environ, **environment(steps, hook=hook), **extra}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return read_steps(steps), done.stdout


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_every_optimizer_step_of_an_untouched_program_is_told(tmp_path, optimizer):
    times, _ = run(tmp_path, LOOP.format(optimizer=optimizer, more="pass"))
    assert len(times) == 5
    assert times == sorted(times)


def test_without_the_hook_nothing_is_told(tmp_path):
    assert run(tmp_path, LOOP.format(optimizer="SGD", more="pass"), hook=False)[0] == []


def test_a_program_that_speaks_for_itself_is_not_counted_twice(tmp_path):
    assert len(run(tmp_path, "import wanbench\n" + LOOP.format(optimizer="SGD", more="wanbench.step()"))[0]) == 5


def test_gradient_accumulation_is_one_step_where_the_program_says_so(tmp_path):
    code = "import wanbench\n" + LOOP.format(optimizer="SGD", more="_ % 2 or wanbench.step()")
    assert len(run(tmp_path, code)[0]) == 3


def test_step_is_nothing_outside_of_a_measurement(tmp_path):
    code = "import wanbench; wanbench.step(); wanbench.step()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


def _sleeps_at_the_end(tmp_path, code):
    """How long the program slept after its last line: the hook's own clock, whatever the host does."""
    watch = "import time; sleep = time.sleep; time.sleep = lambda s: (print('slept', s), sleep(s)); "
    return run(tmp_path, watch + code)[1]


def test_gloos_threads_get_time_before_a_counted_program_ends(tmp_path):
    assert _sleeps_at_the_end(tmp_path, "import torch.distributed") == "slept 0.1\n"
    assert _sleeps_at_the_end(tmp_path, "pass") == ""


def test_the_hook_leaves_programs_without_torch_alone(tmp_path):
    times, out = run(tmp_path, "import sys; print('torch' in sys.modules)")
    assert (times, out) == ([], "False\n")


def test_a_sitecustomize_of_the_users_own_still_runs(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('mine')")
    path = os.pathsep.join([environment(tmp_path / "steps", hook=True)["PYTHONPATH"], str(tmp_path / "site")])
    assert run(tmp_path, "pass", PYTHONPATH=path)[1] == "mine\n"


def test_a_record_that_was_cut_short_is_left_out(tmp_path):
    (tmp_path / "steps").write_bytes((7).to_bytes(8, sys.byteorder) + b"\x01\x02")
    assert read_steps(tmp_path / "steps") == [7]
