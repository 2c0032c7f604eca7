"""The mesh of TCP connections below `direct`: which frame leaves next, and how fast."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from wanbench.workloads.comm import mesh

LOCALHOST = "127.0.0.1"


@contextmanager
def pair(connections: int = 1, **more: Any) -> Iterator[tuple[mesh.Mesh, mesh.Mesh]]:
    """Two ranks that are connected and not started; `more` is for the first."""
    ends: dict[int, dict[tuple[int, int], socket.socket]] = {0: {}, 1: {}}
    for index in range(connections):
        with mesh.listen(LOCALHOST) as listener:
            ends[0][1, index] = socket.create_connection(listener.getsockname())
            ends[1][0, index], _ = listener.accept()
    near, far = mesh.Mesh(0, 2, ends[0], connections, **more), mesh.Mesh(1, 2, ends[1], connections)
    try:
        yield near, far
    finally:
        near.close()
        far.close()


def start(link: mesh.Mesh, arrived: Callable[[int], None] = lambda sequence: None) -> None:
    """Start a mesh that reports the sequence numbers of the frames that arrive."""
    link.start(
        lambda head, peer: memoryview(bytearray(head.nbytes)),
        lambda head, peer, body: arrived(head.sequence),
        lambda reason: None,
    )


def limits(link: mesh.Mesh) -> set[int]:
    """The rates in bytes/s at which the kernel sends at most."""
    sockets = [connection.sock for connection in link._connections.values()]
    option = socket.SOL_SOCKET, mesh._SO_MAX_PACING_RATE, 8
    return {struct.unpack("Q", sock.getsockopt(*option))[0] for sock in sockets}


def segments_out(sock: socket.socket) -> int:
    """How many segments with data a socket has sent: `tcpi_data_segs_out`."""
    return int(struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160), 156)[0])


def comes_true(claim: Callable[[], bool], within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.005)
    return claim()


def test_a_connection_is_paced_for_the_frame_that_leaves_next():
    with pair(paces={1: mesh.Pace(4e8, 5e8)}) as (near, far):
        start(near)
        start(far)
        for kind, limit in ((mesh.SCATTER, 400_000_000), (mesh.MESSAGE, 500_000_000)):
            sent = threading.Event()
            near.send_all([(1, mesh.Frame(kind, 0, memoryview(b"1234"), sent.set, 0))])
            assert sent.wait(10)
            assert limits(near) == {limit}


def test_the_ten_segments_that_the_kernel_does_not_pace_are_sent_before_the_first_frame():
    with pair(paces={1: mesh.Pace(4e8, 5e8)}) as (near, far):
        start(near)
        arrived: list[int] = []
        start(far, arrived.append)
        (sock,) = [connection.sock for connection in near._connections.values()]
        assert segments_out(sock) >= 10
        near.send_all([(1, mesh.Frame(mesh.MESSAGE, 7, memoryview(b"1234"), lambda: None, 0))])
        assert comes_true(lambda: arrived == [7])


@pytest.mark.parametrize("busy", [1, 2])
def test_busy_connections_to_one_peer_share_its_rate(busy):
    with pair(2, paces={1: mesh.Pace(4e8, 5e8)}) as (near, _):
        start(near)
        body = memoryview(bytes(64 << 20))  # more than the sockets hold, so the frames stay
        frames = [mesh.Frame(mesh.SCATTER, 0, body, lambda: None, 0, chunk) for chunk in range(busy)]
        near.send_all([(1, frame) for frame in frames])
        assert comes_true(lambda: 4e8 / busy in limits(near))


def test_an_older_operation_passes_the_frames_of_later_ones():
    arrived: queue.Queue[int] = queue.Queue()
    with pair() as (near, far):
        start(near)
        body = memoryview(bytes(64 << 20))  # more than sockets hold, so the first frame blocks the others
        frames = [mesh.Frame(mesh.SCATTER, order, body, lambda: None, order) for order in (5, 6, 7, 1)]
        near.send_all([(1, frame) for frame in frames[:-1]])
        (connection,) = near._connections.values()
        assert comes_true(lambda: connection.writing and len(connection.waiting) == 2)
        near.send_all([(1, frames[-1])])
        start(far, arrived.put)
        assert [arrived.get(timeout=10) for _ in frames] == [5, 1, 6, 7]
