"""How workers connect to each other, each pair with one or more TCP connections."""

from __future__ import annotations

import hmac
import socket
import struct
import time
from collections.abc import Mapping, Sequence

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.mesh import Mesh, Pace

TOKEN_BYTES = 32
_HELLO = struct.Struct(f"<{TOKEN_BYTES}sII")  # token, rank, number of the connection
_HELLO_S = 5.0  # a stranger that says nothing must not keep the peers waiting


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
        CommError: names the peers that did not accept or connect within `timeout_s`.
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
        while len(links) < (world_size - 1) * connections:
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            sock, _ = listener.accept()
            sock.settimeout(max(0.001, min(_HELLO_S, deadline - time.monotonic())))
            key = _hello(sock, token)
            if key is None or not rank < key[0] < world_size or key[1] >= connections or key in links:
                sock.close()
            else:
                links[key] = sock
    except OSError as error:
        for sock in links.values():
            sock.close()
        known = range(world_size) if names is None else names
        missing = [known[p] for p in range(world_size) if p != rank and p not in {peer for peer, _ in links}]
        raise CommError(f"direct: rank {known[rank]} has no connection to ranks {missing}: {error}") from error
    finally:
        listener.close()
    return Mesh(rank, world_size, links, connections, paces, names)


def _hello(sock: socket.socket, token: bytes) -> tuple[int, int] | None:
    """Read the rank of a peer and the number of the connection; None from a stranger."""
    data = b""
    while len(data) < _HELLO.size:
        try:
            part = sock.recv(_HELLO.size - len(data))
        except OSError:
            return None
        if not part:
            return None
        data += part
    given, peer, index = _HELLO.unpack(data)
    return (peer, index) if hmac.compare_digest(given, token) else None
