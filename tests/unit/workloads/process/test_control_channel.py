"""The control channel: whole messages and their descriptors, however the bytes arrive; end of file is None."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from wanbench.workloads.process.control import Channel, ControlError


@pytest.fixture
def ends():
    a, b = socket.socketpair()
    left, right = Channel(a), Channel(b)
    yield left, right
    left.close()
    right.close()


def test_a_message_arrives_as_it_was_sent(ends):
    left, right = ends
    message = {"cmd": "job", "text": "line\nbreak, ü, \u2028", "nested": {"list": [1, 2.5, None, True]}}
    left.send(message)
    assert right.recv() == message


def test_both_ends_can_send(ends):
    left, right = ends
    left.send({"n": 1})
    right.send({"n": 2})
    assert (left.recv(), right.recv()) == ({"n": 2}, {"n": 1})


def test_messages_keep_their_order_and_pending_reports_one_that_was_read_ahead(ends):
    left, right = ends
    for number in range(3):
        left.send({"n": number})
    assert not right.pending()
    assert right.recv() == {"n": 0}
    assert right.pending()
    assert [right.recv(), right.recv()] == [{"n": 1}, {"n": 2}]
    assert not right.pending()


def test_a_message_that_arrives_byte_by_byte_is_complete(ends):
    left, right = ends
    left.sock.sendall(b'{"a"')

    def more() -> None:
        for part in (b": 1}", b'\n{"b": 2'):
            time.sleep(0.02)
            left.sock.sendall(part)

    threading.Thread(target=more).start()
    assert right.recv() == {"a": 1}
    assert not right.pending(), "half a message is not pending"
    left.sock.sendall(b"}\n")
    assert right.recv() == {"b": 2}


def test_a_message_larger_than_the_socket_buffer_is_complete(ends):
    left, right = ends
    message = {"rows": ["x" * 1000] * 3000}
    sender = threading.Thread(target=left.send, args=(message,))
    sender.start()
    assert right.recv() == message
    sender.join()


def test_descriptors_arrive_as_duplicates_that_work(ends):
    left, right = ends
    read, write = os.pipe()
    left.send({"cmd": "ready"}, fds=[write])
    os.close(write)
    assert right.recv() == {"cmd": "ready"}
    got = right.take_fd()
    os.write(got, b"hello")
    os.close(got)
    assert os.read(read, 10) == b"hello"
    os.close(read)


def test_descriptors_of_a_large_message_are_sent_once_and_kept_in_order(ends):
    left, right = ends
    pipes = [os.pipe() for _ in range(3)]
    message = {"padding": "x" * 1_000_000}
    sender = threading.Thread(target=left.send, args=(message, [write for _, write in pipes]))
    sender.start()
    assert right.recv() == message
    sender.join()
    for number, (read, write) in enumerate(pipes):
        got = right.take_fd()
        os.write(got, bytes([number]))
        assert os.read(read, 2) == bytes([number])
        for fd in (got, read, write):
            os.close(fd)
    with pytest.raises(ControlError, match="without its descriptor"):
        right.take_fd()


def test_every_recv_after_end_of_file_returns_none(ends):
    left, right = ends
    left.send({"last": True})
    left.close()
    assert right.recv() == {"last": True}
    assert right.recv() is None
    assert right.recv() is None


def test_half_a_message_before_the_end_is_not_a_message(ends):
    left, right = ends
    left.sock.sendall(b'{"half": ')
    left.close()
    assert right.recv() is None


def test_a_reset_connection_is_end_of_file(ends):
    left, right = ends
    right.send({"unread": True})  # closing with unread data resets a Unix socket
    left.close()
    assert right.recv() is None


def test_sending_to_a_closed_end_is_an_os_error(ends):
    left, right = ends
    right.close()
    with pytest.raises(OSError, match="Broken pipe"):
        left.send({"n": 1})


def test_silence_is_a_timeout(ends):
    _, right = ends
    right.sock.settimeout(0.01)
    with pytest.raises(TimeoutError):
        right.recv()


def test_messages_of_two_threads_do_not_mix(ends):
    left, right = ends
    right.sock.settimeout(30)
    words = ["a" * 1_000_000, "b" * 1_000_000]  # more than a socket takes at once
    threads = [threading.Thread(target=left.send, args=({"said": word},)) for word in words for _ in range(4)]
    for thread in threads:
        thread.start()
    assert sorted(right.recv()["said"] for _ in threads) == sorted(words * 4)
