"""How workers connect to each other, each pair with one or more TCP connections."""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import struct
import time
from collections.abc import Generator, Mapping, Sequence
from typing import cast

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.mesh import Mesh, Pace, farewell

TOKEN_BYTES = 32
_HELLO = struct.Struct(f"<{TOKEN_BYTES}sII")  # token, rank, number of the connection


def listen(address: str) -> socket.socket:
    """Open a listening socket on `address`, on any port; publish its `getsockname()` to the peers."""
    return socket.create_server((address, 0), backlog=1024)


def connect(
    listener: socket.socket,
    rank: int,
    addresses: list[tuple[str, int]],
    *,
    connections: int,
    timeout_s: float,
    paces: Mapping[int, Pace] | None = None,
    names: Sequence[int] | None = None,
    token: bytes = bytes(TOKEN_BYTES),
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

    Raises:
        CommError: names the peers that did not accept or connect within `timeout_s`. Those that did are told.
    """
    deadline = time.monotonic() + timeout_s
    world_size = len(addresses)
    links: dict[tuple[int, int], socket.socket] = {}
    try:
        for peer in range(rank):
            for index in range(connections):
                sock = socket.create_connection(addresses[peer], timeout=max(0.001, deadline - time.monotonic()))
                sock.sendall(_HELLO.pack(token, rank, index))
                links[peer, index] = sock
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
    return Mesh(rank, world_size, links, connections, paces, names)


def _arrivals(listener: socket.socket, token: bytes, deadline: float) -> Generator[tuple[socket.socket, int, int]]:
    """Yield connections with the rank of the peer and their number. Strangers are closed, and keep nobody waiting.

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
