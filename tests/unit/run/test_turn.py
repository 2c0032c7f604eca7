"""Who emulates has the host alone, among all users and containers; where that cannot be seen, it is unknown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from wanbench.harness.errors import EXIT_INTERRUPTED, Interrupted
from wanbench.harness.run import host
from wanbench.harness.run.host import SWITCH, host_turn, stoppable

pytestmark = pytest.mark.usefixtures("turns_of_nobody_else")

HOLD = """
import subprocess, sys
from wanbench.harness.errors import WanbenchError
from wanbench.harness.run.host import host_turn
try:
    with host_turn(lambda line: print(line, flush=True)) as how:
        print(how, flush=True)
        sys.stdin.readline()
        if len(sys.argv) > 1:
            sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))
except WanbenchError as error:
    sys.exit(error.exit_code)
"""
WAITING = "waiting: another wanbench emulates on this host; each would disturb the other"
UNSHARE = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--fork", "--kill-child"]
APART = {
    "process": [],
    "container": [*UNSHARE, "--pid", "--mount-proc", "--net", "--uts", "--ipc", "--cgroup"],
    "container of other users": [*UNSHARE, "--user", "--pid", "--mount-proc", "--net"],
}
Holder = subprocess.Popen[str]


@pytest.fixture
def holder() -> Iterator[Callable[..., Holder]]:
    """Starts processes that take the turn, each by a command line before its own."""
    started: list[Holder] = []

    def start(*before: str, own: tuple[str, ...] = (), **environment: str) -> Holder:
        env = {key: value for key, value in os.environ.items() if key != SWITCH} | environment
        command = [*before, sys.executable, "-c", HOLD, *own]
        started.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: Holder) -> str:
    """The next line."""
    line = process.stdout.readline().strip()
    if not line and process.args[0] == "unshare":
        pytest.skip("unshare: this kernel or this user cannot make these namespaces")
    return line


@pytest.mark.parametrize("before", APART.values(), ids=APART)
def test_one_waits_until_the_other_has_ended(holder, before):
    first = holder()
    assert said(first) == "alone"
    second = holder(*before)
    assert said(second) == WAITING
    first.communicate("\n")
    assert said(second) == "alone"


def test_the_turn_of_a_killed_process_is_free(holder):
    first = holder()
    assert said(first) == "alone"
    second = holder()
    assert said(second) == WAITING
    first.kill()
    assert said(second) == "alone"


@pytest.mark.long  # so does a command that waits, each time
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_interrupted_while_it_waits_ends_with_130(holder, number):
    first = holder()
    assert said(first) == "alone"
    second = holder()
    assert said(second) == WAITING
    second.send_signal(number)
    assert second.wait(10) == EXIT_INTERRUPTED


def test_an_interruption_at_the_moment_of_the_turn_is_not_lost(monkeypatch):
    answers = iter([False, True])

    def locked(*_: object) -> bool:
        turn = next(answers)
        if turn:
            os.kill(os.getpid(), signal.SIGTERM)
        return turn

    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(host, "locked", locked)
    with pytest.raises(Interrupted), host_turn(print):
        pytest.fail("it had the turn")


def test_who_waits_after_a_request_to_stop_does_not_sleep():
    with stoppable() as stopped:
        assert not stopped.wait(0)
        signal.raise_signal(signal.SIGTERM)
        assert stopped.is_set()
        assert stopped.wait(3600)  # at once


def test_in_another_time_namespace_or_without_one_it_is_unknown(holder):
    assert said(holder(*UNSHARE, "--time", "--boottime", "1000")) == "unknown"
    assert said(holder(**{SWITCH: "off"})) == "unknown"


def test_a_program_that_itself_runs_wanbench_does_not_wait_for_itself(holder):
    outer = holder(own=("-c", HOLD))
    assert said(outer) == "alone"
    outer.stdin.write("\n")
    outer.stdin.flush()
    assert said(outer) == "unknown"
