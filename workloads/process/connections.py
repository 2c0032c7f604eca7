"""The TCP connections of this process, also those that a library has opened: their congestion control and windows."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CWND_OFFSET = 80  # of tcpi_snd_cwnd in struct tcp_info, linux/tcp.h


def congestion_in_use() -> set[str]:
    """The congestion controls of this process's TCP connections."""
    found = set()
    for sock in _connections():
        name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        found.add(name.partition(b"\0")[0].decode())
    return found


def congestion_windows() -> int:
    """The sum of the congestion windows of this process's TCP connections, in segments."""
    return sum(
        struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), _CWND_OFFSET)[0]
        for sock in _connections()
    )


def _connections() -> Iterator[socket.socket]:
    for file in Path("/proc/self/fd").iterdir():
        if not file.is_socket():
            continue
        with socket.socket(fileno=os.dup(int(file.name))) as sock, suppress(OSError):  # some are no connections
            sock.getpeername()
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            yield sock
