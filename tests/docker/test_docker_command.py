"""A user's script as a workload, in containers that see the folder of the spec."""

import shutil
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "e2e" / "programs"

SPEC = """
schema = 1
name = "mine"

[workload]
command = ["python3", "ddp.py"]
step_times = "hook"

[sweep]
workers = [2]
rtt = ["50ms"]

[run]
repeats = 1
testbed = "docker"
"""


@pytest.mark.long  # the same script is swept on namespaces each time
def test_a_data_parallel_script_is_a_workload_in_containers(bench):
    bench.folder.chmod(0o755)
    shutil.copy(PROGRAMS / "ddp.py", bench.folder)
    bench.measure(bench.spec(SPEC), "--no-figures")
    (row,) = [row for row in bench.rows("mine") if row["workers"] == 2]
    assert (row["steps"], row["step_times"], row["testbed"]) == (7, "hook", "docker")
    assert row["step_time_s"] > 0.1
    assert bench.containers() == []
