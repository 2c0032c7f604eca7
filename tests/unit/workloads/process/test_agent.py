"""The agent that runs commands on other workers, as ssh would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from wanbench.harness.rep import launcher
from wanbench.workloads.process import agent, control

HOSTS = ("oregon-0", "tokyo-1")


@pytest.fixture
def workers(tmp_path):
    """Two workers that listen, and the variables of a program."""
    (tmp_path / "cwd").mkdir()
    variables = launcher.prepare(tmp_path / "launcher", HOSTS, 2, contained=False)
    listeners = []
    for host in HOSTS:
        listeners.append(control.listen(launcher.sockets(tmp_path / "launcher") / host))
        environment = {**os.environ, "WHERE": host}
        arguments = (listeners[-1], partial(agent.serve, environment, str(tmp_path / "cwd")))
        threading.Thread(target=control.attend, args=arguments, daemon=True).start()
    yield {**os.environ, **variables, "WANBENCH_HOSTS": ",".join(HOSTS)}
    for listener in listeners:
        listener.close()


def call(workers, *arguments, **more):
    command = [workers["WANBENCH_RSH"], *arguments]
    return subprocess.run(command, env=workers, capture_output=True, text=True, timeout=60, check=False, **more)


def test_a_command_runs_there_with_the_callers_input_and_outputs(workers):
    done = call(workers, "tokyo-1", "cat; echo at $WHERE; pwd; echo error >&2; exit 7", input="hello\n")
    assert done.stdout.splitlines()[:2] == ["hello", "at tokyo-1"]
    assert done.stdout.splitlines()[2].endswith("/cwd")
    assert (done.stderr, done.returncode) == ("error\n", 7)


def test_words_are_joined_and_read_by_a_shell_and_options_of_ssh_are_ignored(workers):
    done = call(workers, "-x", "-p", "22", "user@oregon-0", "echo", "$WHERE", "'a  b'")
    assert (done.stdout, done.returncode) == ("oregon-0 a  b\n", 0)


def test_a_command_that_is_killed_has_the_status_of_a_shell(workers):
    assert call(workers, "oregon-0", "kill -KILL $$").returncode == 128 + signal.SIGKILL


CALLER = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
print(subprocess.call(sys.argv[1:]))
"""


def test_a_killed_command_that_somebody_else_has_waited_for_has_not_succeeded(workers):
    """A kill of the timeline waits for all children of its worker, and can be the first to do so."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel waits for every child of this process
    try:
        call = [sys.executable, "-c", CALLER, workers["WANBENCH_RSH"], "oregon-0", "kill -KILL $$"]
        done = subprocess.run(call, env=workers, capture_output=True, text=True, timeout=60, check=False)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert done.stdout == f"{128 + signal.SIGKILL}\n"


def test_an_unknown_worker_and_a_missing_command_are_one_line_each(workers):
    done = call(workers, "paris-2", "true")
    assert done.returncode == 255
    assert done.stderr == "wanbench agent: paris-2: no such worker; expected one of oregon-0, tokyo-1\n"
    done = call(workers, "oregon-0")
    assert (done.returncode, done.stderr) == (255, "wanbench agent: expected HOST COMMAND...\n")


def test_a_command_ends_with_its_caller(workers, tmp_path):
    command = [workers["WANBENCH_RSH"], "oregon-0", "echo $$ > pid; exec sleep 1000"]
    caller = subprocess.Popen(command, env=workers)
    pid = tmp_path / "cwd" / "pid"
    until(lambda: pid.exists() and pid.read_text())
    number = int(pid.read_text())
    caller.kill()
    caller.wait()
    until(lambda: not _lives(number))


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_mpi_programs_find_hosts_and_agent_by_themselves(workers, tmp_path):
    assert workers["OMPI_MCA_plm_rsh_agent"] == workers["PRTE_MCA_plm_ssh_agent"] == workers["HYDRA_LAUNCHER_EXEC"]
    assert Path(workers["WANBENCH_HOSTFILE"]).read_text() == "oregon-0 slots=2\ntokyo-1 slots=2\n"
    assert Path(workers["HYDRA_HOST_FILE"]).read_text() == "oregon-0:2\ntokyo-1:2\n"
    assert sys.executable in Path(workers["WANBENCH_RSH"]).read_text()
