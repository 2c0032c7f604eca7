"""The control channel: JSON lines over a Unix socket, with file descriptors where needed.

It never crosses the emulated network. End of file means that the other side is gone. Whatever else arrives is a whole
JSON object of bounded size, or a ControlError: the other side may be an image of somebody else's.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAX_MESSAGE_BYTES = 64 << 20  # rows of a second of steps are kilobytes, the largest network a megabyte
_CHUNK = 1 << 16
_MAX_FDS = 64
_SHOWN = 60


class ControlError(ValueError):
    """What arrived is no message, or not the one that was due; one line says what it was."""


class Channel:
    """One end of a control connection. One thread receives; any may send."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self._searched = 0  # bytes of the buffer that hold no end of a line
        self._fds: list[int] = []
        self._sending = threading.Lock()  # a message is sent whole

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one message; `fds` arrive as duplicates. Raises: OSError if the other side is gone."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            if fds:
                # Descriptors ride on the first byte; the rest may need several sends.
                sent = socket.send_fds(self.sock, [data], list(fds))
                data = data[sent:]
            self.sock.sendall(data)

    def recv(self) -> dict[str, Any] | None:
        """The next message, or None at end of file.

        Raises:
            TimeoutError: per the socket's timeout.
            ControlError: something that is not a message arrived; the channel is of no further use.
        """
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > MAX_MESSAGE_BYTES:
                raise ControlError(f"control channel: a message of more than {MAX_MESSAGE_BYTES >> 20} MiB")
            try:
                data, fds, flags, _ = socket.recv_fds(self.sock, _CHUNK, _MAX_FDS, socket.MSG_CMSG_CLOEXEC)
            except ConnectionError:
                return None
            self._fds.extend(fds)
            if flags & socket.MSG_CTRUNC or len(self._fds) > _MAX_FDS:
                raise ControlError(f"control channel: more than {_MAX_FDS} descriptors at a time")
            if not data:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return _message(line)

    def pending(self) -> bool:
        """True if a whole message has been read ahead: `recv` will not block."""
        return b"\n" in self._buffer

    def take_fd(self) -> int:
        """The oldest descriptor received and not yet taken. Raises: ControlError if none came."""
        if not self._fds:
            raise ControlError("control channel: a message came without its descriptor")
        return self._fds.pop(0)

    def close(self) -> None:
        """Close the socket, and the descriptors that nobody took."""
        while self._fds:
            os.close(self._fds.pop())
        self.sock.close()


def text(message: dict[str, Any], key: str) -> str:
    """What a message says under this key. Raises: ControlError if it says nothing there, or no text."""
    value = message.get(key)
    if not isinstance(value, str):
        raise ControlError(f"control channel: expected {key!r} with a text in {_shown(json.dumps(message).encode())}")
    return value


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name of at most 107 bytes, which is all that a socket's may have, wherever its folder is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise ControlError(f"control channel: expected a JSON object, got {_shown(line)}") from None
    if not isinstance(message, dict):
        raise ControlError(f"control channel: expected a JSON object, got {_shown(line)}")
    return message


def _shown(line: bytes) -> str:
    """The beginning of what arrived, without anything that a terminal would obey."""
    return repr(line[:_SHOWN])[1:] + ("..." if len(line) > _SHOWN else "")
