"""A process has certainly ended only for who would see it if it lived: on its host, in its boot and its namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wanbench.harness.process import owner

MARK = "import json; from wanbench.harness.process import owner; print(json.dumps(owner.mark()), flush=True); input()"
JUDGE = "import json, sys; from wanbench.harness.process import owner; print(owner.is_gone(json.loads(sys.argv[1])))"
APART = {
    "time namespace": ["--time", "--boottime", "100000"],
    "PID namespace": ["--pid", "--fork", "--mount-proc"],
    "PID namespace without its /proc": ["--pid", "--fork"],
    "host name": ["--uts", "sh", "-c", 'hostname another; exec "$@"', "sh"],
}
OWN_USERS = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    """A living process and its mark."""
    process = subprocess.Popen([sys.executable, "-c", MARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
        process.kill()


def judged_from(place: list[str], mark: dict[str, object]) -> str:
    command = ["unshare", *OWN_USERS, *place, sys.executable, "-c", JUDGE, json.dumps(mark)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.stderr.startswith("unshare"):
        pytest.skip(done.stderr.strip())
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_process_lives_until_it_has_ended(other):
    process, mark = other
    assert not owner.is_gone(mark)
    process.kill()
    deadline_s = time.monotonic() + 10
    while not owner.is_gone(mark):  # nobody has waited for it yet
        assert time.monotonic() < deadline_s
    process.wait()
    assert owner.is_gone(mark)


@pytest.mark.parametrize("place", APART.values(), ids=APART)
def test_a_living_process_is_not_gone_wherever_one_looks_from(other, place):
    _, mark = other
    assert judged_from(place, mark) == "False"


@pytest.mark.parametrize("changes", [{"pid": 4_194_305}, {"pid": 1 << 80}])
def test_a_pid_that_nobody_has_is_gone_also_in_another_time_namespace(changes):
    mark = owner.mark() | changes
    assert owner.is_gone(mark)
    assert judged_from(APART["time namespace"], mark) == "True"


def test_a_pid_that_another_process_has_by_now_is_gone(other):
    _, mark = other
    assert owner.is_gone(mark | {"started": 1})
    assert judged_from(APART["time namespace"], mark | {"started": 1}) == "False"  # the clocks differ, so who knows


def test_a_process_that_proc_hides_is_not_gone(other, monkeypatch):
    _, mark = other
    seen = Path.read_text

    def hidden(path, *arguments, **named):  # as with hidepid=2, for the processes of other users
        if path == Path(f"/proc/{mark['pid']}/stat"):
            raise FileNotFoundError
        return seen(path, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", hidden)
    assert not owner.is_gone(mark)


def test_a_process_of_another_user_is_not_gone(other, monkeypatch):
    _, mark = other

    def refused(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert not owner.is_gone(mark)


def test_a_stopped_process_is_not_gone(other):
    process, mark = other
    process.send_signal(signal.SIGSTOP)
    assert not owner.is_gone(mark)
