"""However a run ends, nothing of it is left on the host, and the same command continues it."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from cli_session import by_numbers, devices

SPEC = by_numbers("steady", "ssgd = {}\ndelayed = { delay = 2 }", window=60)
RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")


def measuring(bench, **popen):
    """A run in the middle of its second cell."""
    bench.spec(SPEC)
    command = bench.start(*RUN, **popen)
    command.until(
        lambda: len(bench.finished("steady")) == 1 and any(map(command.training, *zip(*VICTIMS, strict=True)))
    )
    time.sleep(0.3)
    return command


VICTIMS = (("ssgd", 1), ("delayed-d2", 1))


def test_a_killed_run_leaves_no_process_device_or_namespace_and_is_continued(bench):
    command = measuring(bench)
    finished = bench.finished("steady")
    assert len(command.pids()) == 5  # the command, a relay, the workers' parent and two workers
    assert len(command.namespaces) == 2
    assert devices() == command.devices_before  # the workers' devices are in their namespaces
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    assert command.left_nothing(within_s=2)

    (left,) = command.temp.iterdir()
    listed = bench.run("clean", "--dry-run")
    assert (listed.code, listed.out) == (0, f"would remove {left}\n")
    assert left.exists()

    again = bench.run(*RUN)
    assert again.code == 0, again.err
    assert "3 reps, 2 to do" in again.err
    after = bench.finished("steady")
    assert len(after) == 3
    assert {path: after[path] for path in finished} == finished
    assert list(command.temp.iterdir()) == []
    listed = bench.run("clean", "--dry-run")
    assert (listed.code, listed.out, listed.err) == (0, "", "nothing to clean\n")
    assert not list((bench.folder / "out").rglob("*.part"))


def ignore_sigint():
    """As a shell does with background jobs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("number", "to_group", "popen"),
    [
        pytest.param(signal.SIGINT, True, {}, id="Ctrl-C"),
        pytest.param(signal.SIGINT, False, {"preexec_fn": ignore_sigint}, id="SIGINT in the background"),
        pytest.param(signal.SIGTERM, False, {}, id="SIGTERM"),
    ],
)
def test_an_interrupted_run_ends_at_once_and_leaves_nothing(bench, number, to_group, popen):
    command = measuring(bench, **popen)
    finished = bench.finished("steady")
    (os.killpg if to_group else os.kill)(command.process.pid, number)
    result = command.wait(timeout_s=4)
    assert result.code == 130
    assert result.last_line == "wanbench: interrupted; finished repetitions are kept; the same command continues"
    assert result.out == ""
    assert command.left_nothing(within_s=1)
    assert list(command.temp.iterdir()) == []
    assert bench.finished("steady") == finished
    assert {row["status"] for row in bench.rows("steady")} == {"ok"}  # what was dropped is no failure


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_workers_are_started_is_one_as_well(bench, number):
    bench.spec(SPEC)
    command = bench.start(*RUN, preexec_fn=ignore_sigint)
    command.until(lambda: len(command.pids()) >= 2)  # the workers' parent imports torch
    os.kill(command.process.pid, number)
    result = command.wait(timeout_s=15)
    assert result.code == 130
    assert result.last_line == "wanbench: interrupted; finished repetitions are kept; the same command continues"
    assert command.left_nothing(within_s=1)


def test_without_the_workers_parent_nothing_goes_on(bench):
    command = measuring(bench)
    os.kill(command.workers_parent(), signal.SIGKILL)
    result = command.wait(timeout_s=10)
    assert result.code == 3
    assert result.last_line == "wanbench: the workers' parent process ended"
    assert "Traceback" not in result.err
    assert command.left_nothing(within_s=1)


def test_two_runs_in_one_folder_do_not_mix(bench):
    command = measuring(bench)
    second = bench.run(*RUN)
    assert second.code == 3
    assert second.err == ("wanbench: out/steady: another `wanbench run` is writing here; wait for it, or use --out\n")
    command.process.send_signal(signal.SIGTERM)
    command.wait()


def test_a_file_where_the_results_should_go_is_said_in_one_line(bench):
    bench.spec(SPEC)
    (bench.folder / "out").mkdir()
    (bench.folder / "out" / "steady").write_text("mine")
    result = bench.run(*RUN)
    assert (result.code, result.out) == (3, "")
    assert result.err == (
        "wanbench: out/steady: cannot write results here (File exists); choose another folder with --out\n"
    )
    assert (bench.folder / "out" / "steady").read_text() == "mine"


def test_results_that_cannot_be_written_end_the_run_in_one_line(bench):
    command = measuring(bench)
    for folder in (bench.folder / "out/steady/cells").glob("*-w2-*"):
        folder.rename(bench.folder / folder.name)
        folder.write_text("mine")
    result = command.wait(timeout_s=30)
    assert result.code == 3
    assert result.last_line.startswith("wanbench: ")
    assert result.last_line.endswith("; finished repetitions are kept")
    assert "Traceback" not in result.err
    assert command.left_nothing(within_s=2)


def test_a_folder_named_like_a_package_of_ours_is_not_taken_for_it(bench):
    for name in ("workloads", "harness"):
        (bench.folder / name).mkdir()
        (bench.folder / name / "__init__.py").write_text("raise RuntimeError('not this one')\n")
    bench.spec(by_numbers("shadow", "ssgd = {}"))
    result = bench.run("run", "spec.toml", "--out", "out", "--no-figures")
    assert result.code == 0, result.err


# The interpreter itself may be out of others' reach, so everything is imported before the rights are given up.
AS_NOBODY = """
import os, shutil, subprocess, tempfile
import harness.api, harness.cli.run_command, harness.tables, workloads.task
from harness.cli import main
os.setgroups([]); os.setgid(65534); os.setuid(65534)
main()
"""


def test_without_the_right_to_make_devices_the_remedy_is_one_line(bench):
    if os.geteuid() != 0 or os.stat("/dev/net/tun").st_mode & 0o006:
        pytest.skip("needs root, and a /dev/net/tun that is closed to others: sudo chmod 0600 /dev/net/tun")
    for folder in (bench.folder, *bench.folder.parents[:2]):
        folder.chmod(0o777)
    result = bench.run("run", "smoke", "--out", "out", program=[sys.executable, "-P", "-c", AS_NOBODY])
    assert result.code == 3
    assert result.last_line == (
        "wanbench: /dev/net/tun: permission denied; run as root, or: sudo chmod 0666 /dev/net/tun "
        "(`--testbed virtual` simulates this)"
    )
    assert "Traceback" not in result.err
    assert (bench.folder / "out" / "smoke").owner() == "nobody"
