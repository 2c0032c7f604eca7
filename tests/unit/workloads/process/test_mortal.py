"""A job that can be killed: real processes, in which a function trains as the test says."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from joined_ranks import _JOB
from leftovers import alive, gone_within
from warm import Warm

from wanbench.workloads.process.control import Channel

WAIT_S = 60.0
WORKER = """
import faulthandler, os, signal, socket, time
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.membership import Minority
from wanbench.workloads.loop.job import Job
from wanbench.workloads.process import training
from wanbench.workloads.process.control import Channel
faulthandler.register(signal.SIGUSR1, all_threads=False)

def train(channel, job, before):
    say = lambda event, **more: channel.send({"cmd": "job", "event": event, **more})
    if not job.returned:
        say("joined", pid=os.getpid())
        assert channel.recv() == {"cmd": "go"}
        say("warm")
    else:
        say("back", before=before, pid=os.getpid())
    say("rows", rows=[{"step": 7}])
    print("said", flush=True)
    TRAIN

channel = Channel(socket.socket(fileno=3))
training.run_mortal(channel, Job(**channel.recv()["job"]), train, lambda: {"counted": 1})
"""
KILL = {"cmd": "kill", "again": True, "due_ns": 1}
KILL_FOR_GOOD = {"cmd": "kill", "again": False, "due_ns": 1}
RESTART = {"cmd": "restart", "due_ns": 2}
LEAVE = {"cmd": "leave"}


class Worker:
    """A process that runs a job, whose trainer does as it says."""

    def __init__(self, trains: str, errors: Path) -> None:
        self.errors = errors
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_S)
        self.channel = Channel(ours)
        with theirs, errors.open("w") as log:
            program, out = WORKER.replace("TRAIN", trains), log.fileno()
            self.process = Warm(program, out=out, err=out, more=[theirs.fileno()])
        self.send({"cmd": "job", "job": asdict(_JOB)})
        self.trainer = self.hear("joined")["pid"]
        self.send({"cmd": "go"})
        self.hear("warm")

    def send(self, *messages) -> None:
        for message in messages:
            self.channel.send(message)

    def await_printed(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.errors.read_text().count(text) < times:
            assert time.monotonic() < deadline, self.errors.read_text()
            time.sleep(0.01)

    def hear(self, event: str):
        message = self.channel.recv()
        assert message is not None, self.errors.read_text()
        assert message.get("event", "error") == event, message
        return message


@pytest.fixture
def worker(tmp_path):
    made = []

    def make(trains: str) -> Worker:
        made.append(Worker(trains, tmp_path / "errors"))
        return made[-1]

    yield make
    for each in made:
        each.channel.close()
        each.process.wait(WAIT_S)
        assert gone_within(10, [each.trainer])


def test_a_killed_trainer_ends_and_starts_again_as_one_that_has_returned(worker):
    here = worker("time.sleep(1000)")
    here.await_printed("said")
    here.send(KILL)
    assert here.hear("rows")["rows"] == [{"step": 7}], "what it said before it was killed is known"
    killed = here.hear("killed")
    assert (killed["due_ns"], killed["again"]) == (1, True)
    assert killed["at_ns"] <= time.monotonic_ns()
    assert not alive(here.trainer)
    here.send(RESTART)
    assert here.hear("restarted")["due_ns"] == 2
    back = here.hear("back")
    assert back["before"] == {"counted": 1}, "the counters when all were warm"
    assert back["pid"] != here.trainer
    here.await_printed("said", times=2)
    here.send(KILL, RESTART)
    assert [here.hear(event)["event"] for event in ("rows", "killed", "restarted", "back")]
    here.send(LEAVE)
    assert here.process.wait(WAIT_S) == 0
    assert gone_within(10, [back["pid"]])


def test_one_that_is_killed_for_good_says_nothing_more_and_is_not_started_again(worker):
    here = worker("time.sleep(1000)")
    here.send(KILL_FOR_GOOD, RESTART, KILL, LEAVE)
    received = []
    while (message := here.channel.recv()) is not None:
        received.append(message["event"])
    assert received[-1] == "killed"
    assert received.count("killed") == 1


@pytest.mark.parametrize(
    ("trains", "event"),
    [
        ("say('finished')", "finished"),
        ("raise Minority('alone')", "stopped"),
        ("say('finished'); time.sleep(9)", "finished"),
    ],
    ids=["finished", "stopped", "finished, and has not ended"],
)
def test_a_kill_after_the_last_word_does_nothing(worker, trains, event):
    here = worker(trains)
    here.hear("rows")
    last = here.hear(event)
    assert last.get("reason", "alone") == "alone"
    here.send(KILL, RESTART, LEAVE)
    assert here.process.wait(WAIT_S) == 0
    assert here.channel.recv() is None


@pytest.mark.parametrize(
    ("trains", "error"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "its trainer ended by signal 9"),
        ("os._exit(3)", "its trainer ended with exit status 3"),
        ("raise CommError('rank 1 is gone')", "rank 1 is gone"),
        ("{}['key']", "KeyError: 'key'"),
    ],
)
def test_a_trainer_that_fails_by_itself_is_an_error_in_one_line(worker, trains, error):
    here = worker(trains)
    here.hear("rows")
    assert here.hear("error")["error"] == error


def test_half_a_message_is_not_passed_on_and_keeps_nobody_waiting(worker):
    here = worker("channel.sock.sendall(b'{'); print('half', flush=True); time.sleep(1000)")
    here.await_printed("half")
    here.send(KILL_FOR_GOOD)
    here.hear("rows")
    here.hear("killed")


def test_a_trainer_ends_with_its_worker_however_that_ends(worker):
    here = worker("time.sleep(1000)")
    os.kill(here.process.pid, signal.SIGKILL)
    assert gone_within(10, [here.trainer])


def test_a_signal_shows_the_stack_of_the_trainer(worker):
    here = worker("time.sleep(1000)")
    time.sleep(0.3)  # it sleeps
    os.kill(here.process.pid, signal.SIGUSR1)
    limit = time.monotonic() + WAIT_S
    while "in train" not in here.errors.read_text():
        assert time.monotonic() < limit
        time.sleep(0.02)
