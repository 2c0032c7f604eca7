"""Nonsense on a control channel ends with a one-line error, never with a traceback or a hang."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbench.harness.emulators.emulator import EmulatorError, RelayEmulator
from wanbench.harness.testbeds.base import WorkerDied
from wanbench.harness.testbeds.docker.containers import Door
from wanbench.harness.testbeds.slot import Worker
from wanbench.workloads.process.control import Channel, ControlError

NONSENSE = [
    b"GET / HTTP/1.1\r\n",
    b"\x80\x04\x95pickle",
    b"[1, 2]",
    b'"text"',
    b"null",
    b"",
    b"\xff\xfe",
    b'{"cmd": ',
    b"[" * 100_000,
    b"9" * 10_000,
]
WAIT_S = 60  # for a process to start and to end, on a busy host


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    ours.settimeout(WAIT_S)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize("line", NONSENSE)
def test_the_error_for_invalid_json_is_one_printable_line(ends, line):
    ours, theirs = ends
    ours.sendall(line + b"\n")
    with pytest.raises(ControlError) as caught:
        Channel(theirs).recv()
    message = str(caught.value)
    assert message.startswith("control channel: expected a JSON object, got ")
    assert message.isprintable()
    assert len(message) < 200


@given(st.binary(max_size=300))
def test_any_bytes_give_a_message_end_of_file_or_a_control_error(data):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        channel = Channel(theirs)
        try:
            while (message := channel.recv()) is not None:
                assert isinstance(message, dict)
        except ControlError:
            pass


def test_an_endless_message_is_refused_before_it_fills_the_memory(ends):
    ours, theirs = ends
    sender = threading.Thread(target=_send_until_closed, args=(ours, b"x" * (1 << 16)))
    sender.start()
    channel = Channel(theirs, most_bytes=3 << 20)
    with pytest.raises(ControlError, match=r"^control channel: message too long; expected at most 3 MiB$"):
        channel.recv()
    assert len(channel._buffer) < 4 << 20
    channel.close()
    sender.join()


def test_too_many_descriptors_are_refused_and_none_stays_open(ends):
    ours, theirs = ends
    before = len(os.listdir("/proc/self/fd"))
    null = os.open(os.devnull, os.O_RDONLY)
    for _ in range(3):
        socket.send_fds(ours, [b"{"], [null] * 30)
    os.close(null)
    channel = Channel(theirs)
    with pytest.raises(ControlError, match=r"^control channel: too many descriptors; expected at most 64 at a time$"):
        channel.recv()
    channel.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1  # the channel's own descriptor


def _send_until_closed(sock, data):
    try:
        while True:
            sock.sendall(data)
    except OSError:
        pass


# ---------------------------------------------------------------- emulators and workers


def process(module, *arguments, sock):
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        pass_fds=[sock.fileno()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def emulator(module, sock):
    return process(module, str(sock.fileno()), str(os.getpid()), sock=sock)


EMULATORS = ["wanbench.harness.emulators.relay.process", "wanbench.harness.emulators.netem.process"]


@pytest.mark.parametrize("module", EMULATORS)
@pytest.mark.parametrize("line", [b"nonsense", b"[]"])
def test_an_emulator_prints_one_line_and_ends(ends, module, line):
    ours, theirs = ends
    started = emulator(module, theirs)
    ours.sendall(line + b"\n")
    out, err = started.communicate(timeout=WAIT_S)
    assert (started.returncode, out, len(err.splitlines())) == (1, "", 1)
    assert err.startswith("control channel: expected a JSON object, got ")


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({}, "None: control channel: expected text under 'do', got '{}'"),
        ({"do": 1}, "1: control channel: expected text under 'do', got '{\"do\": 1}'"),
        ({"do": "reboot"}, "reboot: unknown command 'reboot'"),
        ({"do": "attach", "rank": 0, "address": "10.77.0.1"}, "attach: control channel: a message arrived without its"),
        ({"do": "stats"}, "stats: a value is missing or of the wrong type: 'reset'"),
        ({"do": "apply", "network": 7, "seed": 1}, "apply: a value is missing or of the wrong type: "),
    ],
)
def test_an_emulator_refuses_an_invalid_command_and_continues(ends, request_, error):
    ours, theirs = ends
    started = emulator(EMULATORS[0], theirs)
    channel = Channel(ours)
    channel.send(request_)
    assert channel.recv()["error"].startswith(error)
    channel.send({"do": "stats", "reset": False})
    assert "ok" in channel.recv()
    ours.shutdown(socket.SHUT_RDWR)
    assert started.communicate(timeout=WAIT_S) == ("", "")
    assert started.returncode == 0


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b'{"no": 1}',
        b'{"cmd": 7}',
        b'{"cmd": "reboot"}',
        b'{"cmd": "job"}',
        b'{"cmd": "job", "job": {}}',
    ],
)
def test_a_worker_reports_an_invalid_message_and_ends(ends, capfd, line):
    from wanbench.workloads.process.worker import serve

    ours, theirs = ends
    serving = threading.Thread(target=serve, args=(Channel(theirs), "10.77.0.1"))
    serving.start()
    ours.sendall(line + b"\n")
    answer = Channel(ours).recv()
    serving.join(WAIT_S)
    assert not serving.is_alive()
    faulthandler.unregister(signal.SIGUSR1)
    assert answer["kind"] == "ControlError"
    assert answer["error"].startswith("control channel: ")
    assert capfd.readouterr().err == ""


def test_a_worker_reports_a_command_with_invalid_values_in_one_line_and_continues(ends, capfd):
    from wanbench.workloads.process.worker import serve

    ours, theirs = ends
    serving = threading.Thread(target=serve, args=(Channel(theirs), "10.77.0.1"))
    serving.start()
    channel = Channel(ours)
    for request_, error in (
        ({"cmd": "tcp"}, "KeyError: 'settings'"),
        ({"cmd": "tcp", "settings": {"window": 1}}, "tcp: unknown setting 'window'; expected one of"),
        ({"cmd": "probe", "role": "dance"}, "ValueError: probe: unknown role 'dance'"),
    ):
        channel.send(request_)
        assert channel.recv()["error"].startswith(error)
    ours.shutdown(socket.SHUT_RDWR)
    serving.join(WAIT_S)
    faulthandler.unregister(signal.SIGUSR1)
    assert capfd.readouterr().err == ""


class AnyWorker(Worker):
    """The controller's view of a worker that can send anything."""

    def failure(self):
        return WorkerDied(self.rank, " hung up")

    request_stack = is_stopped = kill = lambda self: None


@pytest.mark.parametrize(
    "line", [*NONSENSE, b"{}", b'{"cmd": 1}', b'{"cmd": "job"}', b'{"cmd": "program", "event": 2}']
)
def test_a_worker_that_sends_nonsense_fails_its_cell_with_one_line(ends, line):
    ours, theirs = ends
    theirs.sendall(line + b"\n")
    with pytest.raises(WorkerDied) as caught:
        AnyWorker(3, Channel(ours)).receive(WAIT_S)
    assert str(caught.value).startswith("worker 3: control channel: ")
    assert str(caught.value).isprintable()


def test_an_emulator_that_sends_nonsense_is_reported_in_one_line(monkeypatch, tmp_path):
    (tmp_path / "babbler.py").write_text(
        "import socket, sys\nsocket.socket(fileno=int(sys.argv[1])).sendall(b'nonsense\\n')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(RelayEmulator, "module", "babbler")
    with pytest.raises(EmulatorError) as caught:
        RelayEmulator()
    assert str(caught.value) == "relay: control channel: expected a JSON object, got 'nonsense'"


# ---------------------------------------------------------------- the socket for containers


@pytest.fixture
def door(tmp_path):
    made = Door(tmp_path / "door.sock", {os.getuid()})
    yield made
    made.close()


def visitor(door):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(WAIT_S)
    sock.connect(str(door.path))
    return sock


def test_only_the_owner_can_use_the_socket_for_containers(door):
    assert door.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("line", [*NONSENSE, b"{}", b'{"cmd": "hello"'])
def test_a_visitor_that_sends_nonsense_is_disconnected_and_the_next_one_accepted(door, line):
    with visitor(door) as stranger, visitor(door) as worker:
        stranger.sendall(line + b"\n")
        stranger.shutdown(socket.SHUT_WR)
        worker.sendall(json.dumps({"cmd": "hello", "name": "w"}).encode() + b"\n")
        guest = door.take("w", WAIT_S)
        assert guest is not None
        assert not guest.same_code
        assert stranger.recv(1) == b""
        guest.channel.close()


def test_a_process_of_another_user_is_refused(tmp_path):
    door = Door(tmp_path / "door.sock", {os.getuid() + 1})
    try:
        # The door hangs up before or after the message is sent.
        with visitor(door) as stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(b'{"cmd": "hello", "name": "w"}\n')
            assert stranger.recv(1) == b""
        assert door.take("w", 0.1) is None
        assert door.names == set()
    finally:
        door.close()


def test_a_socket_can_be_in_a_folder_with_a_path_longer_than_a_socket_name(tmp_path):
    deep = Path(tmp_path, *["d" * 50] * 3)
    deep.mkdir(parents=True)
    Door(deep / "door.sock").close()
