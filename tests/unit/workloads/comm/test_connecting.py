"""How ranks connect while strangers, or a rank that fails, say something else than hello."""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch

from wanbench.workloads.comm import mesh
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.direct import DirectComm

LOCALHOST = "127.0.0.1"
HELLO = mesh._HELLO.pack(bytes(mesh.TOKEN_BYTES), 2, 0)
GARBAGE = {
    "nothing": b"",
    "half a hello": HELLO[:20],
    "another protocol": b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n" + bytes(64),
    "another token": mesh._HELLO.pack(b"x" * mesh.TOKEN_BYTES, 2, 0),
    "a rank that does not exist": mesh._HELLO.pack(bytes(mesh.TOKEN_BYTES), 99, 0),
    "a connection that does not exist": mesh._HELLO.pack(bytes(mesh.TOKEN_BYTES), 2, 99),
}


def listeners(count: int) -> tuple[list[socket.socket], list[tuple[str, int]]]:
    made = [mesh.listen(LOCALHOST) for _ in range(count)]
    return made, [listener.getsockname()[:2] for listener in made]


@pytest.mark.parametrize("says", GARBAGE)
def test_strangers_keep_nobody_waiting(says):
    listening, addresses = listeners(2)
    with ExitStack() as strangers:
        for _ in range(5):
            stranger = strangers.enter_context(socket.create_connection(addresses[0]))
            stranger.sendall(GARBAGE[says])
        began = time.monotonic()

        def join(rank: int) -> mesh.Mesh:
            return mesh.connect(listening[rank], rank, addresses, connections=1, timeout_s=20.0)

        with ThreadPoolExecutor(2) as pool:
            meshes = list(pool.map(join, range(2)))
        assert time.monotonic() - began < 15.0  # less than the time limit
    for joined in meshes:
        joined.close()


@pytest.mark.parametrize("says", GARBAGE)
def test_a_rank_that_says_something_else_than_hello_is_named_by_all_ranks(says):
    """Rank 2 greets rank 1 alone: so rank 1 is ready, and learns from rank 0 why nothing goes on."""
    listening, addresses = listeners(3)
    listening[2].close()

    def join(rank: int) -> str:
        with pytest.raises(CommError) as caught:  # noqa: PT012  connecting or the first operation fails
            joined = mesh.connect(listening[rank], rank, addresses, connections=1, timeout_s=0.5)
            comm = DirectComm(joined, timeout_s=10.0)
            try:
                comm.all_reduce(torch.ones(3)).wait()
            finally:
                comm.close()
        return str(caught.value)

    with socket.create_connection(addresses[0]) as bad, socket.create_connection(addresses[1]) as good:
        bad.sendall(GARBAGE[says])
        good.sendall(HELLO)
        with ThreadPoolExecutor(2) as pool:
            messages = list(pool.map(join, range(2)))
    assert all("rank 0 has no connection to ranks [2]: timed out" in message for message in messages), messages


def test_of_silent_strangers_only_a_bounded_number_is_open_and_they_keep_no_peer_out():
    with ExitStack() as strangers, ThreadPoolExecutor(1) as pool:
        (listener,), (address,) = listeners(1)
        for _ in range(300):
            strangers.enter_context(socket.create_connection(address))
        peer, before, opened = strangers.enter_context(socket.socket()), len(os.listdir("/proc/self/fd")), [0]
        joining = pool.submit(mesh.connect, listener, 0, [address, (LOCALHOST, 1)], connections=1, timeout_s=20.0)
        peer.connect(address)  # behind all of them
        while len(opened) < 30:
            opened.append(len(os.listdir("/proc/self/fd")) - before)
            time.sleep(0.01)
        peer.sendall(mesh._HELLO.pack(bytes(mesh.TOKEN_BYTES), 1, 0))
        joining.result().close()
    assert 10 < max(opened) < 140
