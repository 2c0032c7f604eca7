"""Short messages between workers: lines of JSON over a TCP connection of their own."""

from __future__ import annotations

import json
import math
import socket
from contextlib import suppress
from typing import Any

_CHUNK = 1 << 16
_MOST_BYTES = 1 << 20  # of a line; the addresses of a thousand workers take a twentieth


def notice_silence(sock: socket.socket, seconds: float) -> None:
    """Let a connection fail if its peer's kernel has been silent for `seconds`, and at most about a second more.

    A peer that has nothing to say still answers the kernel. One that is cut off does not.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, math.floor(seconds / 2)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(1000 * seconds)))


class LineError(ConnectionError):
    """The peer said what is no message, or has hung up."""


class Line:
    """One connection, which never blocks.

    Args:
        sock: connected, or about to be.
        silence_s: see `notice_silence`.
    """

    def __init__(self, sock: socket.socket, silence_s: float) -> None:
        self.sock = sock
        self._read = bytearray()
        sock.setblocking(False)
        notice_silence(sock, silence_s)

    def say(self, message: dict[str, Any]) -> None:
        """Send a message, which the kernel's buffer holds. Raises: OSError."""
        self.sock.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def heard(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived. Raises: OSError, also once the peer has hung up."""
        data = self.sock.recv(_CHUNK)
        self._read += data
        *lines, self._read = self._read.split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise LineError("expected a line of JSON") from None
        if not all(isinstance(message, dict) for message in messages) or len(self._read) > _MOST_BYTES:
            raise LineError("expected a JSON object of at most 1 MiB")
        if not data:
            raise LineError("hung up")
        return messages

    def hang_up(self) -> None:
        """End both directions, behind what was said. The reader of the socket closes it."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
