"""Whatever a worker says, its repetition ends with a result or with one clear line, and soon."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fuzzing import CASES, DEEP, damaged, fuzz, is_clear, or_refused
from hypothesis import strategies as st
from on_relay import expand

from wanbench.harness.errors import RepFailed
from wanbench.harness.results.row import MeasuredTraining, trained
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.base import Group, Training, WorkerDied
from wanbench.harness.testbeds.messages import SCHEMAS, OfJob, OfProgram, checked
from wanbench.harness.testbeds.slot import Worker, WorkerSlot
from wanbench.workloads.process.control import Channel, ControlError

COUNTERS = {"device": {"tx_bytes": 9}, "tcp": {"RetransSegs": 0}, "udp_overflows": 0, "cpu_wait_ns": 5}
BEFORE_AND_AFTER = {"counters_before": COUNTERS, "counters_after": COUNTERS}
SUMS = dict.fromkeys(("compute_ns", "stall_ns", "payload_bytes", "messages_sent", "blocks_expected", "blocks_lost"), 7)
SPEC = {
    "schema": 1, "name": "x", "workload": {"params": 1000, "tensors": 2, "step_time": "20ms"},
    "network": {"rtt": "1ms"}, "algorithms": {"ssgd": {}}, "sweep": {"workers": [2]}, "run": {"testbed": "netns"},
}  # fmt: skip
CELL = next(cell for cell in expand(Spec.from_dict(SPEC), "x.toml") if cell.is_baseline)
REPETITION = CELL.repetition(0)
JOB = replace(REPETITION.jobs[0], told_steps=(CELL.steps,))


def row(step, rank=0):
    seconds = dict.fromkeys(("step_time_s", "compute_s", "stall_s", "overhead_s"), 0.02)
    return {"rank": rank, "step": step, "end_ns": step, **seconds, "payload_bytes": 4, "messages_sent": 1, "loss": None}


def said(event, **more):
    return {"cmd": "job", "event": event, **more}


SENT = {"kind": "send", "nbytes": 4, "issued_ns": 1, "ended_ns": None, "collected_ns": 3, "stall_ns": 0}
EPOCH = {
    "epoch": 1, "members": [0, 2], "steps": [3, None], "step": 3, "begun_ns": 4, "ended_ns": 5, "payload_bytes": 6,
}  # fmt: skip
OUTCOME = {
    "window_begin_ns": 10, "window_end_ns": 9 * 10**8, "window": SUMS, "total": SUMS, "final_loss": None,
    "replica_spread": 0.0, "messages": [SENT],
    "evaluations": [{"step": 2, "end_ns": 3, "accuracy": 0.5, "accuracy_before_drain": 0.4}],
    "ended_ns": [1], "slowed_ns": [[1, None]], "tcp_windows": [10, 10],
    "epochs": [EPOCH],
}  # fmt: skip
ROWS = [row(step) for step in range(JOB.steps)]
STEP = said("step", step=JOB.steps, now_ns=9)
IMPORTS = [["mylib.sync", "/home/me/mylib/sync.py", 64 * "a"]]
FINISHED = said("finished", outcome=OUTCOME, imports=IMPORTS, lost=[["paused", 1, 2]], **BEFORE_AND_AFTER)
GOOD = [
    said("joined"), said("warming"), said("warm", now_ns=1), said("rows", rows=ROWS[:3]), STEP,
    said("rows", rows=ROWS[3:]), said("evaluating"), FINISHED, said("left", changed=None),
]  # fmt: skip


class Said(Worker):
    """A worker that has said everything and hung up."""

    def failure(self):
        return WorkerDied(self.rank, " hung up")

    request_stack = is_stopped = kill = lambda self: None


class Silent:
    """An emulator that answers nothing, and the part of a testbed that starts the worker."""

    name, attachment = "relay", "tun"

    def __init__(self, data: bytes) -> None:
        self.data, self.ours, self.theirs = data, *socket.socketpair()

    def fileno(self):
        return self.ours.fileno()

    def start_worker(self, rank, attachment, group):
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            theirs.sendall(self.data)
        self.peer = theirs  # what it is sent is not read
        theirs.shutdown(socket.SHUT_WR)
        return Said(rank, Channel(ours)), os.open(os.devnull, os.O_RDONLY)

    attach = apply = update = image = lambda self, *values, **more: None
    serves = lambda self, running, wanted: True  # noqa: E731
    stats = lambda self, *, reset=False: SimpleNamespace(changed=None)  # noqa: E731
    has_ended = is_stopped = lambda self: False

    def close(self):
        for each in (self.ours, self.theirs, self.peer):
            each.close()


def repetition(lines: list[bytes], folder: Path, patience_s: float = 5.0):
    """Run a repetition with a worker that says these lines. Return its columns, or the failure."""
    emulator = Silent(b"".join(line + b"\n" for line in lines))
    slot = WorkerSlot(emulator, lambda: emulator)
    training = Training(replace(REPETITION, jobs=(JOB,), patience_s=patience_s), Group(1), folder, lambda: None)
    try:
        done = slot.train(training)
        return trained(
            REPETITION,
            MeasuredTraining(done.finished, done.tcp, done.steps.first_rank),
            reported_steps=len(done.steps),
        )
    except RepFailed as error:
        failed = error
    finally:
        slot.discard()
    assert is_clear(str(failed), "worker 0"), str(failed)
    return failed


def encoded(messages):
    return [json.dumps(message).encode() for message in messages]


def test_a_worker_that_says_what_it_should_has_a_result(tmp_path):
    assert repetition(encoded(GOOD), tmp_path)["steps"] == CELL.window


OF_OLD = [
    [{"cmd": "dance"}], [{}], [said("rows", rows=[1, 2])], [said("joined"), said("warm")], [said("finished")],
    [*GOOD[:3], *[said("rows", rows=[])] * 3], [*GOOD[:3], *[said("rows", rows=[row(0)])] * 3],
    [*GOOD[:2], *[said("warming")] * 100], [*GOOD[:3], *[said("evaluating")] * 100], [*GOOD[:3], STEP, STEP],
    [*GOOD[:3], FINISHED], [*GOOD[:3], said("rows", rows=[row(0, rank=1)])], [said("rows", rows=DEEP)],
    [*GOOD[:3], said("rows", rows=[*ROWS, row(JOB.steps)])], [{"error": ["\x1b[2J"], "kind": 7}],
    [{"cmd": "probe", "role": "listen", "port": 1}], [{"cmd": "program", "event": "finished"}],
]  # fmt: skip


@CASES
def test_a_repetition_ends_whatever_its_worker_says(cases, tmp_path):
    def check(messages):
        lines = encoded(messages) if isinstance(messages, list) else messages.split(b"\n")
        repetition(lines, tmp_path)

    @st.composite
    def cut(draw):
        data = b"\n".join(encoded(GOOD))
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 50))
        return data[:at] + draw(st.binary(max_size=20)) + data[at + length :]

    fuzz(cases, damaged(GOOD) | damaged(GOOD) | cut(), check, OF_OLD)


@pytest.mark.parametrize("messages", OF_OLD)
def test_what_no_worker_says_is_refused(messages, tmp_path):
    assert isinstance(repetition(encoded(messages), tmp_path), RepFailed)


TIMES = {"due_ns": 5, "at_ns": 6}
KILLED = said("killed", again=True, **TIMES)
RESTARTED = said("restarted", **TIMES)
STOPPED = said("stopped", reason="it is alone")
LOST = [
    *GOOD[:4],
    KILLED,
    RESTARTED,
    said("rows", rows=ROWS[5:7]),
    said("rows", rows=ROWS[9:]),
    STEP,
    STOPPED,
    GOOD[-1],
]


def hear(messages, **more):
    talk = OfJob(replace(JOB, deadline_s=1.0), **more)
    for message in messages:
        talk.hear(checked(message))


def test_a_worker_can_be_lost_and_return_at_a_later_step_as_often_as_the_timeline_says():
    hear(LOST, restarts=1)
    hear([*LOST[:-2], FINISHED, GOOD[-1]], restarts=1)
    hear([*GOOD[:4], said("killed", again=False, **TIMES), GOOD[-1]])
    hear([*GOOD[:4], KILLED, RESTARTED, said("rows", rows=ROWS[:1]), KILLED, RESTARTED, FINISHED], restarts=2)


@pytest.mark.parametrize(
    "messages",
    [
        [*LOST[:5], said("rows", rows=ROWS[5:7])],
        [*LOST[:4], RESTARTED],
        [*LOST[:6], *LOST[4:6]],
        [*LOST[:7], said("rows", rows=ROWS[6:7])],
        [*LOST[:10], said("rows", rows=ROWS[-1:])],
        [KILLED],
    ],
    ids=["rows of the dead", "no death before", "too often", "a step twice", "more steps", "before it is warm"],
)
def test_what_no_worker_that_is_lost_says_is_refused(messages):
    with pytest.raises(WorkerDied, match=r"^worker 0: control channel: "):
        hear(messages, restarts=1)


ANSWERS = {
    "ready": {"cmd": "ready", "address": "10.99.0.1"},
    "tcp": {"cmd": "tcp", "tcp": {"tcp_congestion_control": "reno"}},
    "counters": {"cmd": "counters", **COUNTERS},
    "probe listen": {"cmd": "probe", "role": "listen", "port": 4000},
    "probe send": {"cmd": "probe", "role": "send", "shift_ns": 0},
    "probe receive": {"cmd": "probe", "role": "receive", "segments": [[0, 1, 2, 3, 4, 0]]},
    "probe close": {"cmd": "probe", "role": "close"},
}
PROGRAM = [
    {"cmd": "program", "event": "started"},
    {"cmd": "program", "event": "killed", "again": True, "processes": [0, 1], "seconds": 1.0, **TIMES},
    {"cmd": "program", "event": "restarted", **TIMES},
    {"cmd": "program", "event": "exited", "process": 0, "code": -9, "seconds": 2.0},
    {"cmd": "program", "event": "exited", "process": 1, "code": 0, "seconds": 2.0},
    {
        "cmd": "program",
        "event": "finished",
        "imports": IMPORTS,
        "lost": [["stopped", 1, 2]],
        "processor": {"waited_s": 0.0, "used_s": 1.5},
        "changed": ["wan0", "qdisc tbf, at the start noqueue"],
        **BEFORE_AND_AFTER,
    },
]


def test_every_message_of_the_protocol_is_damaged_here():
    messages = [*ANSWERS.values(), *PROGRAM, *GOOD, *LOST]
    assert {key for key in SCHEMAS if any(_is(key, message) for message in messages)} == set(SCHEMAS)


def _is(kind, message):
    with contextlib.suppress(ControlError):
        return bool(checked(message, kind))
    return False


@CASES
def test_an_answer_is_what_was_asked_for_or_refused_in_one_line(cases):
    def check(case):
        expected, message = case
        with or_refused(ControlError, where="control channel"):
            assert checked(message, expected).keys() == ANSWERS[expected].keys()

    answers = st.sampled_from(sorted(ANSWERS)).flatmap(lambda kind: st.tuples(st.just(kind), damaged(ANSWERS[kind])))
    fuzz(cases, answers, check, [(one, ANSWERS[other]) for one in ANSWERS for other in ANSWERS])


@CASES
def test_a_program_ends_whatever_its_worker_says(cases):
    def check(messages):
        talk = OfProgram(0, processes=2, restarts=1)
        for message in messages:
            with or_refused(ControlError, WorkerDied, where="control channel"):
                talk.hear(checked(message if isinstance(message, dict) else {}))

    fuzz(cases, damaged(PROGRAM), check, [PROGRAM, [PROGRAM[0]] * 2, [PROGRAM[-1], PROGRAM[3]], [PROGRAM[3]] * 9])


@CASES
def test_a_training_that_is_killed_ends_whatever_its_worker_says(cases):
    def check(messages):
        talk = OfJob(replace(JOB, deadline_s=1.0), restarts=1)
        for message in messages:
            with or_refused(ControlError, WorkerDied, where="control channel"):
                talk.hear(checked(message if isinstance(message, dict) else {}))

    fuzz(cases, damaged(LOST), check, [LOST, [*LOST, *LOST]])


@pytest.fixture
def worker():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Said(0, Channel(ours)), theirs


def test_a_message_of_60_mib_is_refused_before_it_fills_the_memory(worker):
    listener, peer = worker
    sender = threading.Thread(target=_send, args=(peer, b" " * (60 << 20) + b"\n"))
    sender.start()
    with pytest.raises(WorkerDied, match=r"^worker 0: control channel: message too long; expected at most 8 MiB$"):
        listener.receive(60)
    listener.channel.close()
    sender.join()


def _send(sock, data):
    with contextlib.suppress(OSError):
        sock.sendall(data)


def test_a_worker_that_sends_too_much_in_all_is_refused(worker, monkeypatch):
    listener, peer = worker
    monkeypatch.setattr("wanbench.harness.testbeds.slot._BURST_BYTES", 10)
    monkeypatch.setattr("wanbench.harness.testbeds.slot._BYTES_PER_S", 0)
    peer.sendall((json.dumps(GOOD[0]) + "\n").encode())
    with pytest.raises(WorkerDied, match=r"control channel: too many bytes"):
        listener.receive(60)


def test_a_part_of_a_message_is_no_message(worker):
    listener, peer = worker
    stopped = threading.Event()

    def drip():
        while not stopped.wait(0.01):
            _send(peer, b" ")

    sender = threading.Thread(target=drip)
    sender.start()
    try:
        with pytest.raises(TimeoutError):
            listener.receive(0.2)
    finally:
        stopped.set()
        sender.join()
