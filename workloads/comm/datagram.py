"""Exchanges over UDP: one socket per worker, served by an I/O thread. A datagram is never sent again.

Only the network should lose datagrams, so hosts must not. No datagram is larger than a packet; the kernel refuses to
fragment one. The I/O thread empties the socket's buffer while the worker computes. Workers send at the given rate at
most, and slow enough that a peer without a processor for `ABSORBED_S` can buffer everything. The kernel counts the
datagrams that overflow the buffer nevertheless (`process.tun.udp_overflows`).
"""

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import torch

from wanbench.workloads.comm.base import CommError, Terms, Vector
from wanbench.workloads.comm.blocks import HEADER, MTU, WIRE_HEADER_BYTES
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.mesh import Mesh
from wanbench.workloads.comm.tensors import bytes_of

ABSORBED_S = 0.01
_WANTED_BUFFER_BYTES = 8 << 20
_BUFFER_BYTES_PER_DATAGRAM = 2560  # the kernel counts so much for a packet of 1500 bytes, rounded up
_BURST_S = 0.004  # the selector sleeps in milliseconds
_MAX_AHEAD = 8  # exchanges; to get further ahead, a peer must give up on this worker in each
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2
_READ_BUDGET = 256

Datagram = tuple[int, bytes, memoryview]


class UdpExchange:
    """An `Exchange` over UDP. The worker calls only `wait` and `done`; `Datagrams` calls the rest."""

    def __init__(self, number: int, receives: Mapping[int, torch.Tensor], terms: Terms, timeout_s: float) -> None:
        self.number, self.terms, self._timeout_s = number, terms, timeout_s
        self._event = threading.Event()
        self._error: str | None = None
        self._cuts = {peer: terms.blocks(tensor) for peer, tensor in receives.items()}
        self._views = {peer: bytes_of(tensor) for peer, tensor in receives.items()}
        self._sizes = {peer: tensor.element_size() for peer, tensor in receives.items()}
        self._flags = {peer: bytearray(cut.datagrams) for peer, cut in self._cuts.items()}
        self.missing = sum(cut.datagrams for cut in self._cuts.values())
        self._unheard = {peer for peer, cut in self._cuts.items() if cut.datagrams}
        self._latest_ns = 0
        self.sent_ns: int | None = None
        self.ended_ns: int | None = None

    @property
    def arrived(self) -> dict[int, list[slice]]:
        """By peer, the elements that arrived in time."""
        return {peer: cut.runs(cut.arrived(self._flags[peer])) for peer, cut in self._cuts.items()}

    @property
    def blocks(self) -> tuple[int, int]:
        """The number of blocks expected, and the number of blocks that did not arrive in time."""
        arrived = [complete for peer, cut in self._cuts.items() for complete in cut.arrived(self._flags[peer])]
        return len(arrived), arrived.count(False)

    def done(self) -> bool:
        """True once `wait` would return at once."""
        return self._event.is_set()

    def wait(self) -> None:
        """Block until the exchange has ended. Raises: CommError, if the datagrams could not be sent."""
        if not self._event.wait(self._timeout_s + self.terms.deadline_ns / 1e9):
            raise CommError(f"udp: the datagrams of exchange {self.number} were not sent within {self._timeout_s:g} s")
        if self._error is not None:
            raise CommError(f"udp: exchange {self.number} failed: {self._error}")

    def heard_from(self, peer: int, now_ns: int) -> None:
        """Note that `peer` has sent a datagram of this exchange or of a later one."""
        if peer in self._unheard:
            self._unheard.discard(peer)
            self._latest_ns = now_ns

    def store(self, peer: int, index: int, body: memoryview, now_ns: int) -> None:
        """Store a datagram of this exchange; ignore a duplicate. Raises: CommError, if its size is wrong."""
        self.heard_from(peer, now_ns)
        flags = self._flags.get(peer)
        if flags is None or index >= len(flags):
            raise CommError(f"rank {peer} sent the datagram with index {index}; expected {len(flags or ())} datagrams")
        begin, end = (element * self._sizes[peer] for element in self._cuts[peer].part(index))
        if len(body) != end - begin:
            raise CommError(f"rank {peer} sent a datagram of {len(body)} bytes; expected {end - begin}")
        self._latest_ns = now_ns
        if not flags[index]:
            flags[index] = 1
            self.missing -= 1
            self._views[peer][begin:end] = body

    def due_ns(self) -> int | None:
        """When the exchange ends if nothing more arrives; None until its own datagrams have been sent."""
        if self.sent_ns is None:
            return None
        if not self.missing:
            return self.sent_ns
        return self.terms.end_ns(self.sent_ns, None if self._unheard else self._latest_ns)

    def end(self, error: str | None = None) -> None:
        """End the exchange: later datagrams are ignored."""
        self._error = error
        self.ended_ns = time.monotonic_ns()
        self._event.set()


class Datagrams:
    """The datagrams of one worker.

    Args:
        sock: a bound UDP socket, which this object closes.
        rank: rank of this worker. addresses: addresses of the sockets of all ranks.
        token: 32 bits that distinguish this group's datagrams from those of an earlier group.
        bytes_per_s: rate of the paths to the peers; None is unlimited.
        timeout_s: time limit for sending.

    Attributes:
        buffer_bytes: size of the socket's buffer as the kernel counts it; it can be less than requested.
        bytes_per_s: rate at which this worker sends, including headers.
    """

    def __init__(
        self,
        sock: socket.socket,
        rank: int,
        addresses: Sequence[tuple[str, int]],
        *,
        token: int,
        bytes_per_s: float | None,
        timeout_s: float,
    ) -> None:
        self._sock, self._rank, self._addresses = sock, rank, addresses
        self._token, self._timeout_s = token & 0xFFFFFFFF, timeout_s
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WANTED_BUFFER_BYTES)
        self.buffer_bytes = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        absorbed = self.buffer_bytes / _BUFFER_BYTES_PER_DATAGRAM * MTU / ABSORBED_S
        self.bytes_per_s = absorbed if bytes_per_s is None else min(bytes_per_s, absorbed)
        self._burst = max(self.bytes_per_s * _BURST_S, 2.0 * MTU)
        self._credit, self._credited_ns = self._burst, time.monotonic_ns()
        self._lock = threading.Lock()
        self._issued = 0
        self._pending: dict[int, UdpExchange] = {}
        self._early: dict[int, list[tuple[int, int, bytes]]] = defaultdict(list)
        self._newest = [-1] * len(addresses)
        self._outgoing: deque[tuple[UdpExchange, Iterator[Datagram]]] = deque()
        self._unsent: Datagram | None = None
        self._buffer = bytearray(2 * MTU)
        self._failed: str | None = None
        self._closing = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="datagrams", daemon=True)
        self._thread.start()

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> UdpExchange:
        """Begin an exchange, as `LossyComm` says."""
        with self._lock:
            number = self._issued
            exchange = UdpExchange(number, cast(Mapping[int, torch.Tensor], receives), terms, self._timeout_s)
            if self._failed is not None:
                exchange.end(self._failed)
                return exchange
            self._issued += 1
            self._pending[number] = exchange
            now_ns = time.monotonic_ns()
            for peer, newest in enumerate(self._newest):
                if newest >= number:
                    exchange.heard_from(peer, now_ns)
            for peer, index, body in self._early.pop(number, ()):
                exchange.store(peer, index, memoryview(body), now_ns)
            self._outgoing.append((exchange, self._cut(number, cast(Mapping[int, torch.Tensor], sends), terms)))
        os.eventfd_write(self._wake, 1)
        return exchange

    def close(self) -> None:
        """Stop the thread and close the socket; calling it again does nothing."""
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._selector.close()
        self._sock.close()
        os.close(self._wake)

    def _cut(self, number: int, sends: Mapping[int, torch.Tensor], terms: Terms) -> Iterator[Datagram]:
        """Yield the datagrams of an exchange, to each peer in turn. The next rank comes first, to spread the load."""
        count = len(self._addresses)
        order = ((self._rank + hop) % count for hop in range(1, count))
        tensors = [(peer, sends[peer]) for peer in order if peer in sends]
        vectors = [(peer, terms.blocks(tensor), bytes_of(tensor), tensor.element_size()) for peer, tensor in tensors]
        for index in range(max((cut.datagrams for _, cut, _, _ in vectors), default=0)):
            for peer, cut, view, size in vectors:
                if index < cut.datagrams:
                    begin, end = cut.part(index)
                    header = HEADER.pack(self._token, number, index, self._rank)
                    yield peer, header, view[begin * size : end * size]

    # ---------------------------------------------------------------- the I/O thread

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._selector.select(self._idle_s())
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
                # Read all datagrams before an exchange ends, because this thread itself can be late.
                more = self._receive()
                self._send()
                if not more:
                    self._end_due()
        except Exception as error:  # no worker may wait for a thread that has ended
            self._fail(str(error) if isinstance(error, CommError) else repr(error))

    def _idle_s(self) -> float | None:
        """Seconds until something is due; None if nothing is."""
        with self._lock:
            dues = [due for exchange in self._pending.values() if (due := exchange.due_ns()) is not None]
            waiting = bool(self._outgoing) and not self._blocked
        times = [(due - time.monotonic_ns()) / 1e9 for due in dues]
        times += [_BURST_S / 4] if waiting else []
        return max(0.0, min(times)) if times else None

    def _receive(self) -> bool:
        """Read the datagrams in the socket, up to a budget; return True if there may be more."""
        view = memoryview(self._buffer)
        for _ in range(_READ_BUDGET):
            try:
                nbytes = self._sock.recv_into(self._buffer)
            except BlockingIOError:
                return False
            if nbytes < HEADER.size:
                continue
            token, number, index, peer = HEADER.unpack_from(self._buffer)
            if token == self._token and peer < len(self._addresses):
                self._arrived(peer, number, index, view[HEADER.size : nbytes])
        return True

    def _arrived(self, peer: int, number: int, index: int, body: memoryview) -> None:
        now_ns = time.monotonic_ns()
        with self._lock:
            if number > self._newest[peer]:
                self._newest[peer] = number
                for earlier, exchange in self._pending.items():
                    if earlier <= number:
                        exchange.heard_from(peer, now_ns)
            current = self._pending.get(number)
            if current is not None:
                current.store(peer, index, body, now_ns)
            elif self._issued <= number < self._issued + _MAX_AHEAD:
                self._early[number].append((peer, index, bytes(body)))

    @property
    def _blocked(self) -> bool:
        """True while the kernel's send buffer is full; the selector reports when it has room."""
        return bool(self._selector.get_key(self._sock).events & selectors.EVENT_WRITE)

    def _send(self) -> None:
        """Send as many datagrams as the credit allows."""
        now_ns = time.monotonic_ns()
        self._credit = min(self._burst, self._credit + (now_ns - self._credited_ns) / 1e9 * self.bytes_per_s)
        self._credited_ns = now_ns
        full = False
        while self._outgoing and self._credit > 0:
            exchange, datagrams = self._outgoing[0]
            datagram = self._unsent or next(datagrams, None)
            self._unsent = None
            if datagram is None:
                self._outgoing.popleft()
                exchange.sent_ns = time.monotonic_ns()
                continue
            peer, header, body = datagram
            try:
                self._sock.sendmsg([header, body], (), 0, self._addresses[peer])
            except BlockingIOError:
                self._unsent, full = datagram, True
                break
            except OSError as error:
                raise CommError(f"a datagram to rank {peer} could not be sent: {error}") from error
            self._credit -= len(body) + WIRE_HEADER_BYTES
        if full != self._blocked:
            self._selector.modify(self._sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if full else 0))

    def _end_due(self) -> None:
        now_ns = time.monotonic_ns()
        with self._lock:
            for exchange in list(self._pending.values()):
                due = exchange.due_ns()
                if due is not None and due <= now_ns:
                    del self._pending[exchange.number]
                    exchange.end()

    def _fail(self, reason: str) -> None:
        with self._lock:
            self._failed = reason
            pending = list(self._pending.values())
            self._pending.clear()
        for exchange in pending:
            exchange.end(reason)


class DatagramComm(DirectComm):
    """The `direct` comm, with datagrams as well as connections.

    Args:
        mesh, timeout_s: as for `DirectComm`. datagrams: the datagrams of this worker.
    """

    def __init__(self, mesh: Mesh, datagrams: Datagrams, *, timeout_s: float) -> None:
        super().__init__(mesh, timeout_s=timeout_s)
        self._datagrams = datagrams

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> UdpExchange:
        return self._datagrams.exchange(sends, receives, terms)

    def close(self) -> None:
        """Close all connections and the socket."""
        super().close()
        self._datagrams.close()


def bind(address: str, port: int = 0) -> socket.socket:
    """Open a UDP socket on an address. Raises: CommError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.bind((address, port))
    except OSError as error:
        sock.close()
        raise CommError(f"udp: cannot bind {address}:{port}: {error.strerror}") from error
    return sock
