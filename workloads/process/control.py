"""The control channel: JSON lines over a Unix socket, with file descriptors if needed.

It never crosses the emulated network. End of file means that the other side is gone. Anything else must be a complete
JSON object of limited size, or it raises ControlError, because the other side can be a user's own image.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MAX_MESSAGE_BYTES = 64 << 20  # the rows of one second take kilobytes, the largest network a megabyte
_CHUNK = 1 << 16
_RETRY_S = 0.02
_MAX_FDS = 64
_MAX_SHOWN_BYTES = 60


class ControlError(ValueError):
    """Something arrived that is not a message, or not the expected one. The error shows it in one line."""


class Channel:
    """One end of a control connection. Only one thread receives; any thread can send.

    Attributes:
        most_bytes: of a message. received_bytes: so far.
    """

    def __init__(self, sock: socket.socket, most_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.sock, self.most_bytes = sock, most_bytes
        self._buffer = bytearray()
        self._searched = 0  # bytes of the buffer without a line end
        self._fds: list[int] = []
        self.received_bytes = 0
        self._sending = threading.Lock()  # so messages do not mix

    def fileno(self) -> int:
        """The socket's descriptor, for selectors."""
        return self.sock.fileno()

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one message; `fds` arrive as duplicates. Raises: OSError if the other side is gone."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            if fds:
                # Descriptors go with the first byte; the rest can need several sends.
                sent = socket.send_fds(self.sock, [data], list(fds))
                data = data[sent:]
            if data:  # sending nothing fails too if the other side has already answered and closed
                self.sock.sendall(data)

    def recv(self) -> dict[str, Any] | None:
        """Return the next message, or None at end of file.

        Raises:
            TimeoutError: after the socket's timeout, also if a part of the message has arrived.
            ControlError: something arrived that is not a message; the channel cannot be used further.
        """
        limit_s = self.sock.gettimeout()
        deadline = time.monotonic() + limit_s if limit_s else None
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > self.most_bytes:
                raise ControlError(f"control channel: message too long; expected at most {self.most_bytes >> 20} MiB")
            if deadline is not None:
                self.sock.settimeout(max(1e-6, deadline - time.monotonic()))
            try:
                data, fds, flags, _ = socket.recv_fds(self.sock, _CHUNK, _MAX_FDS, socket.MSG_CMSG_CLOEXEC)
            except ConnectionError:
                return None
            finally:
                if deadline is not None:
                    self.sock.settimeout(limit_s)
            self._fds.extend(fds)
            if flags & socket.MSG_CTRUNC or len(self._fds) > _MAX_FDS:
                raise ControlError(f"control channel: too many descriptors; expected at most {_MAX_FDS} at a time")
            if not data:
                return None
            self._buffer += data
            self.received_bytes += len(data)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        with suppress(ValueError, RecursionError):
            message = json.loads(line)
            if isinstance(message, dict):
                return message
        raise ControlError(f"control channel: expected a JSON object, got {_shown(line)}")

    def messages(self) -> Iterator[dict[str, Any] | None]:
        """Yield the next message, and those that were read ahead. Raises: as `recv`."""
        yield self.recv()
        while self.pending():
            yield self.recv()

    def pending(self) -> bool:
        """True if a complete message has been read ahead, so `recv` will not block."""
        return b"\n" in self._buffer

    def take_fd(self) -> int:
        """Return the oldest received descriptor that was not taken yet. Raises: ControlError if there is none."""
        if not self._fds:
            raise ControlError("control channel: a message arrived without its descriptor")
        return self._fds.pop(0)

    def close(self) -> None:
        """Close the socket, and the received descriptors that were not taken."""
        while self._fds:
            os.close(self._fds.pop())
        self.sock.close()


def text(message: dict[str, Any], key: str) -> str:
    """Return the text under a key of a message. Raises: ControlError if it is missing or not text."""
    value = message.get(key)
    if not isinstance(value, str):
        raise ControlError(f"control channel: expected text under {key!r}, got {_shown(json.dumps(message).encode())}")
    return value


def failure(error: Exception) -> dict[str, Any]:
    """Return the message that tells of an error."""
    kind = type(error).__name__
    # Our own errors are sentences. A user's KeyError needs its name to be understood.
    own = type(error).__module__ != "builtins"
    return {"error": str(error) if own else f"{kind}: {error}", "kind": kind}


def listen(path: Path) -> socket.socket:
    """Open a Unix socket, for this user only."""
    sock = socket.socket(socket.AF_UNIX)
    with short_name(path) as name:
        sock.bind(name)
    path.chmod(0o600)
    sock.listen(1024)
    return sock


def dial(address: Path | tuple[str, int], patience_s: float = 0.0) -> socket.socket:
    """Connect to a Unix socket or a TCP port, which can be opened later. Raises: OSError."""
    deadline = time.monotonic() + patience_s
    while True:
        sock = socket.socket(socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET)
        try:
            if isinstance(address, Path):
                with short_name(address) as name:
                    sock.connect(name)
            else:
                sock.connect(address)
        except OSError as error:
            sock.close()
            if not isinstance(error, FileNotFoundError | ConnectionRefusedError) or time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return sock


def attend(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Serve each caller of a socket in a thread of its own, until the socket is shut down."""
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(caller,), daemon=True).start()


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Yield a name for a socket within the limit of 107 bytes, however long the path of its folder."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _shown(line: bytes) -> str:
    """Return the beginning of a line, with control characters escaped."""
    return repr(line[:_MAX_SHOWN_BYTES])[1:] + ("..." if len(line) > _MAX_SHOWN_BYTES else "")
