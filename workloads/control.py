"""The control channel: JSON lines over a Unix socket, with file descriptors where needed.

It never crosses the emulated network. End of file means that the other side is gone.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

_MAX_FDS = 64


class Channel:
    """One end of a control connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self._fds: list[int] = []

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one message; `fds` arrive as duplicates. Raises: OSError if the other side is gone."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if fds:
            # Descriptors ride on the first byte; the rest may need several sends.
            sent = socket.send_fds(self.sock, [data], list(fds))
            data = data[sent:]
        self.sock.sendall(data)

    def recv(self) -> dict[str, Any] | None:
        """The next message, or None at end of file. Raises: TimeoutError per the socket's timeout."""
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = rest
                message: dict[str, Any] = json.loads(line)
                return message
            try:
                data, fds, _, _ = socket.recv_fds(self.sock, 1 << 16, _MAX_FDS)
            except ConnectionError:
                return None
            self._fds.extend(fds)
            if not data:
                return None
            self._buffer += data

    def pending(self) -> bool:
        """True if a whole message has been read ahead: `recv` will not block."""
        return b"\n" in self._buffer

    def take_fd(self) -> int:
        """The oldest descriptor received and not yet taken."""
        return self._fds.pop(0)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()
