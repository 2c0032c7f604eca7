"""Installed, in a project with packages of the same names as ours: real runs on an emulated network."""

import pytest
from cli_session import TOLERANT

SHORT = ("--set", "run.window=5 steps", "--only", "algorithm=ssgd", "--only", "rtt=10ms")


@pytest.mark.long  # what is installed beside packages of the same names is tested each time
def test_a_users_loop_imports_the_users_workloads(editable, project):
    """Check the harder case: an editable installation puts the checkout, with its own workloads, on the path."""
    two = ["exec", "--profile", "uniform", "--rtt", "10ms", "-n", "2", "--", editable.program("python"), "train.py"]
    done = editable.run(project, "wanbench", *two)
    assert done.returncode == 0, done.stdout + done.stderr
    place = editable.run(project, "python", "-c", "import wanbench; print(wanbench.__file__)").stdout.strip()
    assert f"agreed on {place}" in done.stdout


@pytest.mark.long  # what is installed beside such packages is run each time, simulated
def test_smoke_is_measured_and_its_report_drawn(installed, project):
    done = installed.run(project, "python", *TOLERANT[1:], "run", "smoke", *SHORT, "--out", "out")
    assert (done.returncode, done.stdout) == (0, "out/smoke\n"), done.stderr
    assert list((project / "out" / "smoke" / "figures").glob("*.svg"))
    page = installed.run(project, "wanbench", "report", "out/smoke")
    assert page.returncode == 0, page.stderr
