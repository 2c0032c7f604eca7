"""TCP connections between all pairs of workers: how they are made, and one I/O thread that serves them."""

import contextlib
import errno
import fcntl
import hmac
import math
import os
import selectors
import socket
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, cast

from wanbench.workloads.comm.base import CommError

SCATTER, GATHER, MESSAGE, ABORT, SHARE, WHOLE, LEAVE, HOP = range(8)
_HEADER = struct.Struct("<B?BIIQ")  # see Head
_SO_MAX_PACING_RATE, _TCP_NOTSENT_LOWAT = 47, 25  # Linux; Python has no names for them
# What the kernel holds of a connection beyond its window, so that frames of older operations can still pass others. It
# must last until this thread runs again.
UNSENT_S, UNSENT_BYTES = 0.02, 64 << 10
"""The kernel holds so much of a connection's pace, and at least so many bytes, that it has not sent."""
_ANY_UNSENT = (1 << 31) - 1
_RTT_AT, _RTT_US = 68, struct.Struct("I")  # in struct tcp_info
_GOODBYE_POLL_S = 0.005
_GOODBYE_S = 2.0  # for the reason of a failure to reach the peers
_UNPACED, _UNPACED_SEGMENTS = (1 << 64) - 1, 10
_READ_BUDGET = 1 << 20  # bytes to read from one connection before the next one


class Head(NamedTuple):
    """The header of a frame.

    Attributes:
        kind: SCATTER to HOP.
        last: whether it is the last chunk of its piece.
        about: bytes at the end of the body that say what the operation is.
        chunk: number of the chunk, or tag of a message.
        sequence: number of the operation or message.
        nbytes: size of the body.
    """

    kind: int
    last: bool
    about: int
    chunk: int
    sequence: int
    nbytes: int


_IGNORED = Head(HOP + 1, True, 0, 0, 0, 0)


@dataclass(frozen=True)
class Pace:
    """How fast a worker sends to one peer, in payload bytes/s; None is unlimited.

    Without a limit, TCP fills the buffer of the narrowest queue, and loses packets when N-1 peers send at once.

    Attributes:
        together: rate of a collective, in which every worker sends to all others.
        alone: rate of a message.
    """

    together: float | None = None
    alone: float | None = None


@dataclass(frozen=True)
class Frame:
    """One message to a peer, or one chunk. `body` must stay untouched until `flushed` is called.

    Frames leave in their `order`: an older operation passes the later ones. `about`, at most 255 bytes, follows the
    body; the peer compares it with what it does itself.
    """

    kind: int
    sequence: int
    body: memoryview
    flushed: Callable[[], None]
    order: int
    chunk: int = 0
    last: bool = True
    about: bytes = b""


@dataclass(eq=False)
class _Connection:
    peer: int
    sock: socket.socket
    waiting: list[tuple[int, int, Frame]]  # a heap, which the connections to a peer share
    own: deque[Frame] = field(default_factory=deque)  # ABORT, before those that wait, or LEAVE, behind them
    sending: deque[memoryview] = field(default_factory=deque)  # the rest of one frame
    flushed: Callable[[], None] = lambda: None
    header: bytearray = field(default_factory=lambda: bytearray(_HEADER.size))
    filled: int = 0
    body: memoryview | None = None
    head: Head = _IGNORED
    pace: float | None = None
    writing: bool = False
    broken: str = ""  # why nothing can be sent any more
    said_goodbye: bool = False  # the peer has said goodbye
    ended: bool = False


def _limit(sock: socket.socket, rate: float | None, unsent: int = UNSENT_BYTES) -> None:
    """Pace a connection, and limit what the kernel holds of it."""
    limit, held = (_UNPACED, unsent) if rate is None else (max(1, int(rate)), max(unsent, int(UNSENT_S * rate)))
    sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("Q", limit))
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, held)


def _use_up_unpaced(sock: socket.socket) -> None:
    """Send the segments that the kernel does not pace, with frames that the peer ignores.

    The first messages of N-1 connections would overflow a short buffer, and their windows would stay small. Source:
    `tcp_update_skb_after_send` of Linux.
    """
    with contextlib.suppress(OSError):  # reading will say why
        for _ in range(_UNPACED_SEGMENTS):
            sock.send(_HEADER.pack(*_IGNORED))


def _unacknowledged(connection: _Connection) -> bool:
    """Whether the peer's kernel does not have everything that was sent."""
    size = bytearray(4)
    fcntl.ioctl(connection.sock, termios.TIOCOUTQ, size)
    return not connection.ended and any(size)


class Mesh:
    """The connections of one worker. `start` takes three callbacks and starts the I/O thread.

    Args:
        rank: of this worker. world_size: number of workers.
        links: by peer and number of the connection. connections: their number per peer.
        paces: by peer, how fast this worker sends to it; unlimited if missing.
        names: by rank in this mesh, its rank in the whole group, for messages; default the same.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        links: dict[tuple[int, int], socket.socket],
        connections: int,
        paces: Mapping[int, Pace] | None = None,
        names: Sequence[int] | None = None,
    ) -> None:
        self.rank, self.world_size = rank, world_size
        self.names = range(world_size) if names is None else names
        self._paces = paces or {}
        waiting: dict[int, list[tuple[int, int, Frame]]] = {peer: [] for peer, _ in links}
        self._connections = {key: _Connection(key[0], sock, waiting[key[0]]) for key, sock in links.items()}
        self._links = {peer: [self._connections[peer, index] for index in range(connections)] for peer in waiting}
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._serial = count()  # frames of one order keep theirs
        self._inbox: deque[tuple[Sequence[_Connection], Frame]] = deque()
        self._closing = False
        self._closing_lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="mesh", daemon=True)

    def start(
        self,
        buffer_for: Callable[[Head, int], memoryview],
        arrived: Callable[[Head, int, memoryview], None],
        lost: Callable[[str], None],
    ) -> None:
        """Start the I/O thread. It runs all three callbacks."""
        self._buffer_for, self._arrived, self._lost = buffer_for, arrived, lost
        for connection in self._connections.values():
            connection.sock.setblocking(False)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if connection.peer in self._paces:
                _use_up_unpaced(connection.sock)
            self._selector.register(connection.sock, selectors.EVENT_READ, connection)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._thread.start()

    def send_all(self, frames: Iterable[tuple[int, Frame]]) -> None:
        """Queue frames for peers; callable from any thread, returns at once.

        A frame leaves on the first connection to its peer that has room.
        """
        for peer, frame in frames:
            links = self._links[peer]
            # The reason of a failure goes on all, as the peer believes the first that ends.
            self._inbox.extend([([link], frame) for link in links] if frame.kind == ABORT else [(links, frame)])
        if threading.current_thread() is self._thread:
            self._take_inbox()
        else:
            self._wake_up()

    def _wake_up(self) -> None:
        with self._closing_lock:  # a closed descriptor can already belong to another file
            if not self._closing:
                os.eventfd_write(self._wake, 1)

    def say_goodbye(self, timeout_s: float) -> None:
        """Send LEAVE behind all frames, and return when the peers have everything, or after `timeout_s`."""
        if self._closing:
            return
        deadline = time.monotonic() + timeout_s
        flushed = threading.Semaphore(0)
        for connection in self._connections.values():
            self._inbox.append(([connection], Frame(LEAVE, 0, memoryview(b""), flushed.release, 0)))
        self._wake_up()
        missing = len(self._connections)
        while missing and self._thread.is_alive() and time.monotonic() < deadline:
            missing -= flushed.acquire(timeout=_GOODBYE_POLL_S)
        while self._thread.is_alive() and time.monotonic() < deadline:
            if not any(map(_unacknowledged, self._connections.values())):
                return
            time.sleep(_GOODBYE_POLL_S)

    def close(self) -> None:
        """Stop the thread and close every connection; calling it again does nothing."""
        with self._closing_lock:
            if self._closing:
                return
            self._closing = True
            os.eventfd_write(self._wake, 1)
        if self._thread.is_alive():
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
        """Send the reason, then end every stream: peers must not wait for a rank that gave up."""
        with contextlib.suppress(OSError, CommError):  # some peers may be gone
            self._lost(reason)
        self._sort_inbox()
        for connection in self._connections.values():
            connection.waiting.clear()
            connection.own = deque(frame for frame in connection.own if frame.kind == ABORT)
        self._flush(time.monotonic() + _GOODBYE_S)
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_WR)

    def _flush(self, deadline: float) -> None:
        """Send the rest of the current frames and the reason, as fast as possible: no peer shall blame another."""
        with selectors.DefaultSelector() as writable:
            for connection in self._connections.values():
                with contextlib.suppress(OSError):
                    _limit(connection.sock, None, unsent=_ANY_UNSENT)
                writable.register(connection.sock, selectors.EVENT_WRITE, connection)
            while writable.get_map() and (remaining := deadline - time.monotonic()) > 0:
                for key, _ in writable.select(remaining):
                    with contextlib.suppress(OSError, CommError):
                        self._write(key.data)
                        if key.data.sending and not key.data.broken:
                            continue
                    writable.unregister(key.fileobj)

    def _take_inbox(self) -> None:
        for connection in self._sort_inbox():
            self._write(connection)

    def _sort_inbox(self) -> Iterable[_Connection]:
        """Let the frames of the inbox wait in their order. Return their connections, the first used first."""
        touched: dict[_Connection, None] = {}
        while self._inbox:
            connections, frame = self._inbox.popleft()
            if frame.kind in (LEAVE, ABORT):
                connections[0].own.append(frame)
            else:
                heappush(connections[0].waiting, (frame.order, next(self._serial), frame))
            touched.update(dict.fromkeys(connections))
        return touched

    def _set_pace(self, connection: _Connection, kind: int) -> None:
        """Limit a connection to the rate of the frame that leaves next, and share it with others to the same peer."""
        pace = self._paces.get(connection.peer)
        if pace is None or kind == ABORT:
            return
        rate = pace.alone if kind == MESSAGE else pace.together
        if rate is not None:
            others = [bool(link.sending) for link in self._links[connection.peer] if link is not connection]
            rate /= 1 + sum(others) + min(others.count(False), len(connection.waiting))
        if rate != connection.pace:
            connection.pace = rate
            _limit(connection.sock, rate)

    def _write(self, connection: _Connection) -> None:
        if connection.ended:
            self._lost_connection(connection, "")
            return
        sending = connection.sending
        try:
            while sending or connection.waiting or connection.own:
                if not sending:
                    self._take_next(connection)
                sent = connection.sock.sendmsg(sending)
                while sending and sent >= len(sending[0]):
                    sent -= len(sending.popleft())
                if sending:
                    sending[0] = sending[0][sent:]
                else:
                    connection.flushed()
        except BlockingIOError:
            pass
        except OSError as error:
            connection.broken = f"the connection to rank {self.names[connection.peer]} broke: {error}"
            if connection.said_goodbye:
                self._lost_connection(connection, connection.broken)
                return
            # What the peer sent before can say why, so reading fails next, behind that.
        writing = bool(sending) and not connection.broken
        if writing != connection.writing:
            connection.writing = writing
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
            self._selector.modify(connection.sock, events, connection)

    def _lost_connection(self, connection: _Connection, reason: str) -> None:
        """End a connection whose peer has said goodbye. Raises: CommError if it has not."""
        if not connection.said_goodbye:
            raise CommError(reason)
        if not connection.ended:
            connection.ended = True
            self._selector.unregister(connection.sock)
        dropped = [frame.flushed for frame in (*(frame for _, _, frame in connection.waiting), *connection.own)]
        cut_off = [connection.flushed] if connection.sending else []
        for queue in (connection.sending, connection.waiting, connection.own):
            queue.clear()
        for flushed in (*cut_off, *dropped):
            flushed()

    def _take_next(self, connection: _Connection) -> None:
        own = connection.own
        at_once = own and (own[0].kind == ABORT or not connection.waiting)
        frame = own.popleft() if at_once else heappop(connection.waiting)[-1]
        self._set_pace(connection, frame.kind)
        nbytes = len(frame.body) + len(frame.about)
        head = Head(frame.kind, frame.last, len(frame.about), frame.chunk, frame.sequence, nbytes)
        connection.sending.extend((memoryview(_HEADER.pack(*head)), frame.body, memoryview(frame.about)))
        connection.flushed = frame.flushed

    def _read(self, connection: _Connection) -> None:
        budget = _READ_BUDGET
        while budget > 0:
            target = memoryview(connection.header) if connection.body is None else connection.body
            try:
                received = connection.sock.recv_into(target[connection.filled :])
            except BlockingIOError:
                return
            except OSError as error:
                self._lost_connection(
                    connection, f"the connection to rank {self.names[connection.peer]} broke: {error}"
                )
                return
            if received == 0:
                closed = f"rank {self.names[connection.peer]} closed the connection"
                self._lost_connection(connection, connection.broken or closed)
                return
            budget -= received
            connection.filled += received
            if connection.filled == len(target):
                self._advance(connection)

    def _advance(self, connection: _Connection) -> None:
        """Continue after a complete header or body."""
        connection.filled = 0
        if connection.body is None:
            connection.head = Head(*_HEADER.unpack(connection.header))
            if connection.head == _IGNORED:
                return
            connection.body = self._buffer_for(connection.head, connection.peer)
            if connection.head.nbytes:  # reading zero bytes would look like the end of the stream
                return
        body, connection.body = connection.body, None
        if connection.head.kind == LEAVE:
            connection.said_goodbye = True
            if not all(link.said_goodbye for link in self._links[connection.peer]):
                return  # its frames on other connections come before
        self._arrived(connection.head, connection.peer, body)


# ---------------------------------------------------------------- how the connections are made

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
        rank: this rank. addresses: by rank, where it listens. timeout_s: time limit.
        paces, names: as for `Mesh`.
        token: TOKEN_BYTES that all ranks know. A connection that does not begin with them is closed.
        silence_s: a connection fails if its peer's kernel is silent for so long; None: it is waited for.

    Raises:
        CommError: names the peers that did not accept or connect within `timeout_s`. Those that did are told.
    """
    links: dict[tuple[int, int], socket.socket] = {}
    try:
        _link(links, listener, rank, addresses, connections, token, time.monotonic() + timeout_s)
    except OSError as error:
        raise _not_connected(links, rank, names or range(len(addresses)), connections, error) from error
    finally:
        listener.close()
    if silence_s is not None:
        for sock in links.values():
            notice_silence(sock, silence_s)
    return Mesh(rank, len(addresses), links, connections, paces, names)


def round_trips_s(addresses: Sequence[tuple[str, int]], timeout_s: float) -> Iterator[tuple[int, float]]:
    """Connect to listeners, and yield the number of each and the round trip that its handshake took.

    Raises: OSError: one refuses, or does not answer in time.
    """
    with contextlib.closing(_dialled(addresses, time.monotonic() + timeout_s)) as dialled:
        for number, sock in dialled:
            with sock:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_US.size + _RTT_AT)
                yield number, _RTT_US.unpack_from(info, _RTT_AT)[0] / 1e6


def _link(
    links: dict[tuple[int, int], socket.socket],
    listener: socket.socket,
    rank: int,
    addresses: Sequence[tuple[str, int]],
    connections: int,
    token: bytes,
    deadline: float,
) -> None:
    """Add the connections to `links`, by peer and number. Raises: OSError: not all are there at the deadline."""
    for index in range(connections):
        with contextlib.closing(_dialled(addresses[:rank], deadline)) as dialled:
            for peer, sock in dialled:
                links[peer, index] = sock
                sock.sendall(_HELLO.pack(token, rank, index))
    with contextlib.closing(_arrivals(listener, token, deadline)) as arrivals:
        while len(links) < (len(addresses) - 1) * connections:
            sock, peer, index = next(arrivals)
            if not rank < peer < len(addresses) or index >= connections or (peer, index) in links:
                sock.close()
            else:
                links[peer, index] = sock


def _not_connected(
    links: Mapping[tuple[int, int], socket.socket], rank: int, names: Sequence[int], connections: int, error: OSError
) -> CommError:
    """Tell the peers that are connected which others are not, and return the error that says so."""
    incomplete = {peer for peer in range(len(names)) for index in range(connections) if (peer, index) not in links}
    missing = [names[peer] for peer in sorted(incomplete - {rank})]
    reason = f"rank {names[rank]} has no connection to ranks {missing}: {error}"
    for sock in links.values():
        with contextlib.suppress(OSError):
            sock.sendall(_HEADER.pack(*Head(ABORT, True, 0, 0, 0, len(reason.encode()))) + reason.encode())
        sock.close()
    return CommError(f"direct: {reason}")


def notice_silence(sock: socket.socket, seconds: float) -> None:
    """Let a connection fail if its peer's kernel has been silent for `seconds`, and at most about a second more.

    A peer that has nothing to say still answers the kernel. One that is cut off does not.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, math.floor(seconds / 2)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(1000 * seconds)))


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
