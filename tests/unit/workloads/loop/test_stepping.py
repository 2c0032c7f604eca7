"""How a user's program reports the ends of its steps."""

import os
import struct
import subprocess
import sys

import pytest
from warm import Warm

from wanbench.workloads.loop.stepping import environment, read_idle_s, read_operations, read_steps

LOOP = """
w = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.{optimizer}([w], lr=0.1)
for _ in range(5):
    w.grad = torch.ones(3)
    optimizer.step()
    {more}
"""

LOOPS = {
    "unchanged": LOOP.format(optimizer="SGD", more="pass"),
    "reporting": "import wanbench\n" + LOOP.format(optimizer="SGD", more="_ % 2 or wanbench.step()"),
    "nested": "other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.1)\n"
    + LOOP.format(optimizer="AdamW", more="other.step()"),
}
# Torch takes seconds to start, so one program runs all loops, each in a process that counts for itself.
ALL_LOOPS = f"""
import os, torch, torch._dynamo
for name, loop in {LOOPS}.items():
    if os.fork() == 0:
        os.environ["WANBENCH_STEPS_FILE"] = name
        exec(loop)
        os._exit(0)
    assert os.wait()[1] == 0
os._exit(0)
"""


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Return the times that each loop reported."""
    folder = tmp_path_factory.mktemp("loops")
    run(folder, ALL_LOOPS)
    return {name: read_steps(folder / name) for name in LOOPS}


def run(tmp_path, code, *, hook=True, **extra):
    """Return the times that a program reported, run outside this repository."""
    steps = tmp_path / "steps"
    env = {**os.environ, **environment(steps, hook=hook), **extra}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return read_steps(steps), done.stdout


def test_every_optimizer_step_of_an_unchanged_program_is_reported(reported):
    times = reported["unchanged"]
    assert len(times) == 5
    assert times == sorted(times)


def test_without_the_hook_a_program_only_learns_where_to_report(tmp_path):
    assert list(environment(tmp_path / "steps", hook=False).values()) == [str(tmp_path / "steps")]


def test_a_program_that_reports_its_own_steps_is_not_counted_twice_even_if_it_accumulates_gradients(reported):
    assert len(reported["reporting"]) == 3


def test_of_two_optimizers_the_one_that_steps_first_counts(reported):
    assert len(reported["nested"]) == 5


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
    write(tmp_path / "steps", (7, 5, 100))
    with (tmp_path / "steps").open("ab") as file:
        file.write(b"\x01\x02")
    assert read_steps(tmp_path / "steps") == [7]


def write(path, *records):
    """Write the end, the processor time and the process of steps, and perhaps the operations begun."""
    path.write_bytes(b"".join(struct.pack("=qqqq", *record, *[-1] * (4 - len(record))) for record in records))


def test_the_time_without_the_processor_is_that_of_a_step_after_the_warm_up(tmp_path):
    write(tmp_path / "steps", (0, 0, 1), (10**9, 10**8, 1), (3 * 10**9, 3 * 10**8, 1), (5 * 10**9, 5 * 10**8, 1))
    assert read_idle_s(tmp_path / "steps", warmup=2) == pytest.approx(1.8)
    assert read_idle_s(tmp_path / "steps", warmup=4) is None


def test_a_program_that_waits_is_told_from_one_that_computes(tmp_path):
    loop = "import time, wanbench\nfor _ in range(4):\n    {}\n    wanbench.step()"
    run(tmp_path, loop.format("time.sleep(0.05)"), hook=False)
    assert read_idle_s(tmp_path / "steps", warmup=1) > 0.045


def test_of_processes_that_report_in_turns_one_counts(tmp_path):
    write(tmp_path / "steps", (0, 0, 1), (1, 0, 2), (10, 1, 1), (11, 1, 2), (20, 2, 1))
    assert read_steps(tmp_path / "steps") == [0, 10, 20]
    assert read_idle_s(tmp_path / "steps", warmup=1) == pytest.approx(9e-9)


def test_a_program_that_was_started_again_goes_on_counting(tmp_path):
    write(tmp_path / "steps", (0, 0, 1), (10, 1, 1), (50, 0, 2), (60, 1, 2))
    assert read_steps(tmp_path / "steps") == [0, 10, 50, 60]
    assert read_idle_s(tmp_path / "steps", warmup=1) is None


def test_the_operations_are_those_begun_at_the_end_of_the_last_step(tmp_path):
    write(tmp_path / "steps", (1, 1, 7, 5), (2, 2, 7, 8))
    assert read_operations(tmp_path / "steps") == 8
    write(tmp_path / "again", (1, 1, 7, 5), (2, 2, 8, 5))
    assert read_operations(tmp_path / "again") is None
    write(tmp_path / "none", (1, 1, 7), (2, 2, 7))
    assert read_operations(tmp_path / "none") is None


def test_operations_of_torchs_groups_are_counted(tmp_path):
    program = """
import torch, torch.distributed as dist, wanbench
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for _ in range(3):
    dist.all_reduce(torch.ones(2)); dist.all_reduce(torch.ones(2))
    wanbench.step()
dist.destroy_process_group()
"""
    steps = tmp_path / "steps"
    with (tmp_path / "errors").open("w") as errors:
        extended = {**os.environ, **environment(steps, hook=False)}
        started = Warm(program, out=errors.fileno(), err=errors.fileno(), environment=extended)
    assert started.wait(60) == 0, (tmp_path / "errors").read_text()
    assert read_operations(steps) == 6
