"""How workers connect to each other, each pair with one or more TCP connections."""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import selectors
import socket
import struct
import time
from collections.abc import Generator, Mapping, Sequence
from typing import cast

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.lines import notice_silence
from wanbench.workloads.comm.mesh import Mesh, Pace, farewell

TOKEN_BYTES = 32
_STRANGERS = 128  # connections that have not said hello; far fewer than a process may open
_HELLO = struct.Struct(f"<{TOKEN_BYTES}sII")  # token, rank, number of the connection


def listen(address: str) -> socket.socket:
    """Open a listening socket on `address`, on any port; publish its `getsockname()` to the peers."""
    return socket.create_server((address, 0), backlog=1024)


def connect(
    listener: socket.socket,
    rank: int,
    addresses: Sequence[tuple[str, int]],
    *,
    connections: int,
    timeout_s: float,
    paces: Mapping[int, Pace] | None = None,
    names: Sequence[int] | None = None,
    token: bytes = bytes(TOKEN_BYTES),
    silence_s: float | None = None,
) -> Mesh:
    """Connect to every peer, with `connections` per pair. The higher rank connects, the lower accepts.

    Args:
        listener: the socket of this rank, which `listen` returned. It is closed.
        rank: this rank.
        addresses: by rank, where it listens.
        connections: number of connections per pair, over which the chunks of a collective are spread.
        timeout_s: time limit.
        paces: by peer, how fast this rank sends to it; unlimited if missing.
        names: by rank in this mesh, its rank in the whole group, for messages; default the same.
        token: TOKEN_BYTES that all ranks know. A connection that does not begin with them is closed.
        silence_s: a connection fails if its peer's kernel is silent for so long; None: it is waited for.

    Raises:
        CommError: names the peers that did not accept or connect within `timeout_s`. Those that did are told.
    """
    deadline = time.monotonic() + timeout_s
    world_size = len(addresses)
    links: dict[tuple[int, int], socket.socket] = {}
    try:
        for index in range(connections):
            with contextlib.closing(_dialled(addresses[:rank], deadline)) as dialled:
                for peer, sock in dialled:
                    links[peer, index] = sock
                    sock.sendall(_HELLO.pack(token, rank, index))
        with contextlib.closing(_arrivals(listener, token, deadline)) as arrivals:
            while len(links) < (world_size - 1) * connections:
                sock, peer, index = next(arrivals)
                if not rank < peer < world_size or index >= connections or (peer, index) in links:
                    sock.close()
                else:
                    links[peer, index] = sock
    except OSError as error:
        known = range(world_size) if names is None else names
        peers = {peer for peer in range(world_size) for index in range(connections) if (peer, index) not in links}
        missing = [known[peer] for peer in sorted(peers - {rank})]
        reason = f"rank {known[rank]} has no connection to ranks {missing}: {error}"
        for sock in links.values():
            with contextlib.suppress(OSError):
                sock.sendall(farewell(reason))
            sock.close()
        raise CommError(f"direct: {reason}") from error
    finally:
        listener.close()
    if silence_s is not None:
        for sock in links.values():
            notice_silence(sock, silence_s)
    return Mesh(rank, world_size, links, connections, paces, names)


def _dialled(addresses: Sequence[tuple[str, int]], deadline: float) -> Generator[tuple[int, socket.socket]]:
    """Connect to all addresses at the same time. Yield each one's number, and its connection once it is there.

    Raises: OSError: one refuses, or the deadline has passed.
    """
    waiting = {number: socket.socket() for number in range(len(addresses))}
    with selectors.DefaultSelector() as selector:
        try:
            for number, sock in waiting.items():
                sock.setblocking(False)
                _check(sock.connect_ex(addresses[number]))
                selector.register(sock, selectors.EVENT_WRITE, number)
            while waiting:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise TimeoutError("timed out")
                for key, _ in ready:
                    sock = waiting[key.data]
                    _check(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                    selector.unregister(sock)
                    yield key.data, waiting.pop(key.data)
        finally:
            for sock in waiting.values():
                sock.close()


def _check(number: int) -> None:
    if number not in (0, errno.EINPROGRESS):
        raise OSError(number, os.strerror(number))


def _arrivals(listener: socket.socket, token: bytes, deadline: float) -> Generator[tuple[socket.socket, int, int]]:
    """Yield connections with the rank of the peer and their number.

    Strangers keep nobody waiting: who says something else is closed, and so is the oldest of more than `_STRANGERS`
    that say nothing. At the end all are.

    Raises: TimeoutError: the deadline has passed.
    """
    listener.setblocking(False)
    unknown: dict[socket.socket, bytes] = {}  # what they have said
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        try:
            while ready := selector.select(max(0.0, deadline - time.monotonic())):
                for sock in (cast(socket.socket, key.fileobj) for key, _ in ready):
                    if sock is listener:
                        sock, _ = listener.accept()
                        sock.setblocking(False)
                        selector.register(sock, selectors.EVENT_READ)
                        unknown[sock] = b""
                        if len(unknown) > _STRANGERS:
                            selector.unregister(oldest := next(iter(unknown)))
                            del unknown[oldest]
                            oldest.close()
                            break  # it can be among those that are ready; the others will be again
                        continue
                    unknown[sock] += (said := _read(sock, _HELLO.size - len(unknown[sock])))
                    if said and len(unknown[sock]) < _HELLO.size:
                        continue
                    selector.unregister(sock)
                    given, peer, index = _HELLO.unpack(unknown.pop(sock).ljust(_HELLO.size, b"\0"))
                    if said and hmac.compare_digest(given, token):
                        yield sock, peer, index
                    else:
                        sock.close()
        finally:
            for sock in unknown:
                sock.close()
    raise TimeoutError("timed out")


def _read(sock: socket.socket, nbytes: int) -> bytes:
    """Read what there is; nothing if the stream has ended or is broken."""
    try:
        return sock.recv(nbytes)
    except OSError:
        return b""
