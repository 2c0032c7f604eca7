"""A worker whose program is killed and restarted: real processes, in this network, with their own PID namespace."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from wanbench.workloads.process.control import Channel

WAIT_S = 30.0
WORKER = """
import socket, sys
from wanbench.workloads.process import isolation, namespace, program
from wanbench.workloads.process.control import Channel
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
def work():
    try:
        program.run(channel, channel.recv(), dict, lambda: None)
    except SystemExit:
        pass
    return 0
namespace.become_namespace_root()
sys.exit(isolation.run_inside(work, lambda pid: print(pid, flush=True)))
"""
# This script leaves a process in another session, which writes its id to a file.
LEAVING = """
echo start $TORCHELASTIC_RESTART_COUNT
setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
echo $$ >> pids
exec sleep 1000
"""
KILL = {"cmd": "kill", "again": True, "due_ns": 1}
KILL_FOR_GOOD = {"cmd": "kill", "again": False, "due_ns": 1}
RESTART = {"cmd": "restart", "due_ns": 2}
TERM = {"cmd": "signal", "number": signal.SIGTERM}


class Worker:
    """A process that obeys commands as a worker does. Each of its processes prints to its own file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_S)
        self.channel = Channel(ours)
        with theirs:
            arguments = [sys.executable, "-c", WORKER, str(theirs.fileno())]
            self.process = subprocess.Popen(arguments, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.pid = int(self.process.stdout.readline())
        self.namespace = os.readlink(f"/proc/{self.pid}/ns/pid")

    def run(self, *scripts: str) -> None:
        env = {"PATH": os.environ["PATH"], "TORCHELASTIC_RESTART_COUNT": "0"}
        processes = [{"argv": ["sh", "-c", script], "env": env} for script in scripts]
        outputs = [os.open(self.folder / f"out-{n}", os.O_WRONLY | os.O_CREAT) for n in range(len(scripts))]
        request = {
            "processes": processes,
            "cwd": str(self.folder),
            "imports": str(self.folder / "imports"),
            "door": None,
        }
        self.channel.send(request, [fd for fd in outputs for _ in ("out", "err")])
        for fd in outputs:
            os.close(fd)
        assert self.receive()["event"] == "started"

    def send(self, *messages) -> None:
        for message in messages:
            self.channel.send(message)

    def receive(self):
        message = self.channel.recv()
        assert message is not None, "the worker ended"
        return message

    def receive_to_the_end(self):
        """Return all events until the worker has finished."""
        received = [self.receive()]
        while received[-1]["event"] != "finished":
            received.append(self.receive())
        assert self.process.wait(WAIT_S) == 0
        return received

    def is_silent(self) -> bool:
        return not select.select([self.channel], [], [], 0.2)[0]

    def printed(self, number: int = 0) -> str:
        return (self.folder / f"out-{number}").read_text()

    def told(self) -> int:
        """Number of processes that have written their ids."""
        path = self.folder / "pids"
        return len(path.read_text().split()) if path.exists() else 0

    def living(self) -> list[Path]:
        """The folders below /proc of its processes, without process 1 and the worker itself."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(folder / "ns/pid") == self.namespace and int(folder.name) != self.pid:
                    found += [folder] if _number_inside(folder) != 1 else []
        return found


def _number_inside(folder: Path) -> int:
    (numbers,) = re.findall(r"^NSpid:(.*)$", (folder / "status").read_text(), re.M)
    return int(numbers.split()[-1])


@pytest.fixture
def worker(tmp_path):
    started = Worker(tmp_path)
    yield started
    with suppress(ProcessLookupError):
        os.kill(started.pid, signal.SIGCONT)
    started.channel.close()
    started.process.wait(WAIT_S)
    assert started.process.stdout is not None
    started.process.stdout.close()


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def events(messages):
    return [message["event"] for message in messages]


def test_a_killed_process_ends_with_all_its_descendants_and_restarts_in_its_place(worker):
    worker.run(LEAVING)
    until(lambda: worker.told() == 2)
    worker.send(KILL)
    before = time.monotonic_ns()
    killed = worker.receive()
    assert (killed["event"], killed["processes"], killed["due_ns"]) == ("killed", [0], 1)
    assert killed["at_ns"] <= time.monotonic_ns()
    assert worker.living() == []
    assert worker.is_silent(), "it must not restart before the command"
    worker.send(RESTART)
    again = worker.receive()
    assert (again["event"], again["due_ns"]) == ("restarted", 2)
    assert again["at_ns"] > before
    until(lambda: worker.told() == 4)
    assert worker.printed() == "start 0\nstart 1\n"
    worker.send(TERM)
    exited, finished = worker.receive_to_the_end()
    assert (exited["event"], exited["code"], finished["event"]) == ("exited", -signal.SIGTERM, "finished")
    assert worker.living() == []


def test_each_restart_gets_its_number(worker):
    worker.run("echo start $TORCHELASTIC_RESTART_COUNT; exec sleep 1000")
    for number in range(3):
        until(lambda number=number: worker.printed().endswith(f"start {number}\n"))
        worker.send(KILL, RESTART)
        assert [worker.receive()["event"], worker.receive()["event"]] == ["killed", "restarted"]
    until(lambda: worker.printed() == "start 0\nstart 1\nstart 2\nstart 3\n")


def test_a_process_killed_for_good_has_ended(worker):
    worker.run(LEAVING)
    until(lambda: worker.told() == 2)
    worker.send(KILL_FOR_GOOD)
    assert events(worker.receive_to_the_end()) == ["killed", "finished"]
    assert worker.living() == []


def test_a_process_that_has_already_ended_is_neither_killed_nor_restarted(worker):
    worker.run("echo once", "echo $TORCHELASTIC_RESTART_COUNT; exec sleep 1000")
    until(lambda: worker.printed(1) == "0\n")
    exited = worker.receive()
    assert (exited["event"], exited["process"], exited["code"]) == ("exited", 0, 0)
    worker.send(KILL, RESTART)
    assert worker.receive()["processes"] == [1]
    assert worker.receive()["event"] == "restarted"
    until(lambda: worker.printed(1) == "0\n1\n")
    worker.send(TERM)
    worker.receive_to_the_end()
    assert worker.printed() == "once\n"


def test_a_failure_just_before_the_kill_is_the_programs_own(worker):
    """The worker is stopped, so it finds both the exit and the command when it continues."""
    os.mkfifo(worker.folder / "go")
    worker.run("echo $$ >> pids; read go < go; exit 7")
    until(worker.told)
    os.kill(worker.pid, signal.SIGSTOP)
    (worker.folder / "go").write_text("go\n")
    worker.send(KILL, RESTART)
    (folder,) = worker.living()
    until(lambda: (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z")
    os.kill(worker.pid, signal.SIGCONT)
    exited, finished = worker.receive_to_the_end()
    assert (exited["event"], exited["code"], finished["event"]) == ("exited", 7, "finished")


def test_a_failure_after_a_restart_is_a_failure(worker):
    worker.run("[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 7; echo up; exec sleep 1000")
    until(lambda: worker.printed() == "up\n")
    worker.send(KILL, RESTART)
    messages = worker.receive_to_the_end()
    assert events(messages) == ["killed", "restarted", "exited", "finished"]
    assert messages[2]["code"] == 7


@pytest.mark.parametrize("after", [(RESTART,), (KILL, RESTART)])
def test_no_process_restarts_while_the_run_is_ending(worker, after):
    worker.run("echo up; exec sleep 1000")
    until(lambda: worker.printed() == "up\n")
    worker.send(KILL, TERM)
    with suppress(BrokenPipeError):  # it may have ended already
        worker.send(*after)
    assert events(worker.receive_to_the_end()) == ["killed", "finished"]
    assert worker.printed() == "up\n"


def test_the_timeline_does_not_kill_a_process_that_is_ending(worker):
    worker.run("trap 'sleep 0.3; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    until(lambda: worker.printed() == "up\n")
    worker.send(TERM, KILL, RESTART)
    exited, _ = worker.receive_to_the_end()
    assert exited["code"] == 0
    assert worker.printed().endswith("saved\n")


def test_a_worker_whose_program_is_dead_ends_with_its_controller(worker):
    worker.run("echo up; exec sleep 1000")
    until(lambda: worker.printed() == "up\n")
    worker.send(KILL)
    worker.receive()
    worker.channel.sock.shutdown(socket.SHUT_RDWR)
    assert worker.process.wait(WAIT_S) == 0


@pytest.mark.parametrize("message", [KILL, RESTART, TERM])
def test_a_worker_whose_program_has_ended_does_not_answer(message):
    from wanbench.workloads.process.worker import _handle

    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert _handle(Channel(theirs), message, "10.77.0.1", None) is None
