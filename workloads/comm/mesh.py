"""TCP connections between all pairs of workers, served by one I/O thread that never polls."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from wanbench.workloads.comm.base import CommError

SCATTER, GATHER, MESSAGE, ABORT, SHARE = 0, 1, 2, 3, 4
_HEADER = struct.Struct("<BxxxIQ")  # kind, sequence number, bytes of the body
_READ_BUDGET = 1 << 20  # bytes to read from one connection before the next one

BufferFor = Callable[[int, int, int, int], memoryview]
Arrived = Callable[[int, int, int, memoryview], None]


@dataclass(frozen=True)
class Frame:
    """One message to a peer. `body` must stay untouched until `flushed` is called."""

    kind: int
    sequence: int
    body: memoryview
    flushed: Callable[[], None]


@dataclass
class _Connection:
    peer: int
    sock: socket.socket
    outgoing: deque[tuple[memoryview, Callable[[], None] | None]] = field(default_factory=deque)
    header: bytearray = field(default_factory=lambda: bytearray(_HEADER.size))
    filled: int = 0
    body: memoryview | None = None
    kind: int = 0
    sequence: int = 0
    writing: bool = False


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
) -> Mesh:
    """Connect to every peer, with `connections` per pair. The higher rank connects, the lower accepts.

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
                sock.sendall(struct.pack("<II", rank, index))
                links[peer, index] = sock
        while len(links) < (world_size - 1) * connections:
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            sock, _ = listener.accept()
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            peer, index = struct.unpack("<II", _read_exactly(sock, 8))
            links[peer, index] = sock
    except OSError as error:
        for sock in links.values():
            sock.close()
        missing = sorted({p for p in range(world_size) if p != rank} - {p for p, _ in links})
        raise CommError(f"direct: rank {rank} has no connection to ranks {missing}: {error}") from error
    finally:
        listener.close()
    return Mesh(rank, world_size, links, connections)


def _read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError("the peer closed the connection while connecting")
        data += part
    return data


class Mesh:
    """The connections of one worker. `start` takes three callbacks and starts the I/O thread."""

    def __init__(
        self, rank: int, world_size: int, links: dict[tuple[int, int], socket.socket], connections: int
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self._per_peer = connections
        self._connections = {key: _Connection(key[0], sock) for key, sock in links.items()}
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._inbox: deque[tuple[_Connection, Frame]] = deque()
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self, buffer_for: BufferFor, arrived: Arrived, lost: Callable[[str], None]) -> None:
        """Start the I/O thread. It runs all three callbacks."""
        self._buffer_for, self._arrived, self._lost = buffer_for, arrived, lost
        for connection in self._connections.values():
            connection.sock.setblocking(False)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection.sock, selectors.EVENT_READ, connection)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="mesh", daemon=True)
        self._thread.start()

    def send_all(self, frames: Iterable[tuple[int, Frame]]) -> None:
        """Queue frames for peers; callable from any thread, returns at once."""
        for peer, frame in frames:
            self._inbox.append((self._connections[peer, frame.sequence % self._per_peer], frame))
        if threading.current_thread() is self._thread:
            self._take_inbox()
        else:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Stop the thread and close every connection; calling it again does nothing."""
        if self._closing:
            return
        self._closing = True
        if self._thread is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join()
        for connection in self._connections.values():
            connection.sock.close()
        self._selector.close()
        os.close(self._wake)

    # ---------------------------------------------------------------- the I/O thread

    def _serve(self) -> None:
        try:
            while not self._closing:
                for key, events in self._selector.select():
                    if key.data is None:
                        with contextlib.suppress(BlockingIOError):
                            os.eventfd_read(self._wake)
                        continue
                    if events & selectors.EVENT_READ:
                        self._read(key.data)
                    if events & selectors.EVENT_WRITE:
                        self._write(key.data)
                self._take_inbox()
        except Exception as error:  # no worker may wait for a thread that has ended
            if not self._closing:
                self._hang_up(str(error) if isinstance(error, CommError) else repr(error))

    def _hang_up(self, reason: str) -> None:
        """Send the remaining frames, then end every stream: peers must not wait for a rank that gave up."""
        with contextlib.suppress(OSError, CommError):  # some peers may be gone
            self._lost(reason)
        with contextlib.suppress(OSError, CommError):
            self._take_inbox()
        for connection in self._connections.values():
            with contextlib.suppress(OSError, CommError):
                self._write(connection)
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_WR)

    def _take_inbox(self) -> None:
        touched = set()
        while self._inbox:
            connection, frame = self._inbox.popleft()
            header = memoryview(_HEADER.pack(frame.kind, frame.sequence, len(frame.body)))
            connection.outgoing.append((header, None))
            connection.outgoing.append((frame.body, frame.flushed))
            touched.add((connection.peer, frame.sequence % self._per_peer))
        for key in sorted(touched):
            self._write(self._connections[key])

    def _write(self, connection: _Connection) -> None:
        outgoing = connection.outgoing
        try:
            while outgoing:
                data, flushed = outgoing[0]
                sent = connection.sock.send(data) if len(data) else 0
                if sent < len(data):
                    outgoing[0] = (data[sent:], flushed)
                    continue
                outgoing.popleft()
                if flushed is not None:
                    flushed()
        except BlockingIOError:
            pass
        except OSError as error:
            raise CommError(f"the connection to rank {connection.peer} broke: {error}") from error
        if bool(outgoing) != connection.writing:
            connection.writing = bool(outgoing)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if outgoing else 0)
            self._selector.modify(connection.sock, events, connection)

    def _read(self, connection: _Connection) -> None:
        budget = _READ_BUDGET
        while budget > 0:
            target = memoryview(connection.header) if connection.body is None else connection.body
            try:
                count = connection.sock.recv_into(target[connection.filled :])
            except BlockingIOError:
                return
            except OSError as error:
                raise CommError(f"the connection to rank {connection.peer} broke: {error}") from error
            if count == 0:
                raise CommError(f"rank {connection.peer} closed the connection")
            budget -= count
            connection.filled += count
            if connection.filled == len(target):
                self._advance(connection)

    def _advance(self, connection: _Connection) -> None:
        """Continue after a complete header or body."""
        connection.filled = 0
        if connection.body is None:
            connection.kind, connection.sequence, nbytes = _HEADER.unpack(connection.header)
            connection.body = self._buffer_for(connection.kind, connection.sequence, connection.peer, nbytes)
            if nbytes:  # reading zero bytes would look like the end of the stream
                return
        body, connection.body = connection.body, None
        self._arrived(connection.kind, connection.sequence, connection.peer, body)
