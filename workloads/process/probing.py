"""The worker's part of measuring the emulated network: trains of UDP packets that contain their sending time.

All workers of a host share this clock, so the sending time gives the one-way delay of each direction separately.
`harness.emulators.probe` decides which worker sends which trains to which peers, and evaluates the result.
"""

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from wanbench.workloads.process.namespace import set_timer_slack

_STAMP = struct.Struct("<IIIIq")  # round, train, sequence number and packets of the segment, sending time in ns
HEADERS_BYTES = 28  # IPv4 and UDP
SMALLEST_BYTES = HEADERS_BYTES + _STAMP.size
_RECEIVE_BUFFER_BYTES = 4 << 20
_LARGEST_READ = 1 << 16
_QUIET_NS = 100_000_000

_UDP_SEGMENT, _UDP_GRO = 103, 104  # Linux; Python has no names for them
_SO_TIMESTAMPNS = 35  # Linux; Python has no name for it
_TIMESPEC = struct.Struct("qq")
_INT = struct.Struct("i")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size) + socket.CMSG_SPACE(_INT.size)

_listener: socket.socket | None = None  # a worker takes part in one measurement at a time


def handle(message: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out a probe message; its `role` is one of

    `listen` (`address`): open the receiving socket; answers with its `port`.
    `send` (`address`, `round`, `to`: addresses and ports, `trains`): see `probe_send`.
    `receive` (`round`, `expect`, `until_ns`): see `probe_receive`.
    `close`: close the receiving socket.

    Raises:
        ValueError: an unknown role, or `receive` before `listen`.
    """
    global _listener
    role = message["role"]
    if role == "send":
        return probe_send(message["address"], [*map(tuple, message["to"])], message["round"], message["trains"])
    if role == "receive":
        if _listener is None:
            raise ValueError("probe: role 'receive' before 'listen'; expected 'listen' first")
        return probe_receive(_listener, message["round"], message["expect"], message["until_ns"])
    if role not in ("listen", "close"):
        raise ValueError(f"probe: unknown role {role!r}; expected listen, send, receive or close")
    if _listener is not None:
        _listener.close()
        _listener = None
    if role == "close":
        return {}
    _listener = open_listener(message["address"])
    return {"port": _listener.getsockname()[1]}


def open_listener(address: str) -> socket.socket:
    """Open a UDP socket on any port, which takes datagrams of one segment together.

    Its buffer holds a train of single packets while the process is not scheduled.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    sock.bind((address, 0))
    return sock


def probe_send(
    address: str, to: Sequence[tuple[str, int]], number: int, trains: Sequence[Mapping[str, int]]
) -> dict[str, Any]:
    """Send trains of packets to each address of `to` in turn; send a late packet at once.

    Args:
        address: address of this worker.
        number: number of the round; receivers ignore packets of other rounds.
        trains: `start_ns` (monotonic clock), `packets`, `bytes` per IP packet, `segment` packets per call of the
            kernel, and `burst` packets every `spacing_ns`. If the first start has passed, all trains are shifted by
            the same time.

    Returns:
        `shift_ns`: how much later than requested the trains were sent.
    """
    set_timer_slack(1)
    shift = max(0, time.monotonic_ns() - trains[0]["start_ns"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, 0))
        for index, train in enumerate(trains):
            padding = bytes(train["bytes"] - SMALLEST_BYTES)
            segment, due = train["segment"], train["start_ns"] + shift
            for sequence in range(0, train["packets"], segment):
                if sequence % train["burst"] == 0:
                    _sleep_until(due)
                    due += train["spacing_ns"]
                for receiver in to:
                    packets = min(segment, train["packets"] - sequence)
                    datagram = _STAMP.pack(number, index, sequence, packets, time.monotonic_ns()) + padding
                    _send(sock, datagram, packets, receiver)
    return {"shift_ns": shift}


def _send(sock: socket.socket, datagram: bytes, times: int, to: tuple[str, int]) -> None:
    """Send a datagram `times` times, in one call if the device has segmentation offload."""
    if times > 1:
        size = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("H", len(datagram)))]
        with suppress(OSError):  # the device has no checksum offload
            sock.sendmsg([datagram * times], size, 0, to)
            return
    for _ in range(times):
        sock.sendto(datagram, to)


def _sleep_until(ns: int) -> None:
    remaining = ns - time.monotonic_ns()
    if remaining > 0:
        time.sleep(remaining / 1e9)


def _since_arrival_ns(ancillary: dict[int, bytes]) -> int:
    """How long a packet has waited in the socket. TCP answers in the kernel, so this time is not part of the delay."""
    if _SO_TIMESTAMPNS not in ancillary:
        return 0
    seconds, ns = _TIMESPEC.unpack(ancillary[_SO_TIMESTAMPNS])
    return time.time_ns() - int(seconds * 1_000_000_000 + ns)


def probe_receive(sock: socket.socket, number: int, expect: int, until_ns: int) -> dict[str, Any]:
    """Receive the packets of one round: `expect`, or those until the clock reads `until_ns` and no more arrive.

    Returns:
        `segments`: [train, sequence number, sent ns, received ns, packets, copies] of each segment, in the order in
            which their last packets arrived. Packets that arrive once more are its copies, and change nothing else.
    """
    set_timer_slack(1)
    segments: dict[tuple[int, int], list[int]] = {}
    arrived = 0
    while arrived < expect:
        sock.settimeout(max(0.0, (until_ns - time.monotonic_ns()) / 1e9))
        try:
            data, messages, _, _ = sock.recvmsg(_LARGEST_READ, _ANCILLARY_BYTES)
        except (TimeoutError, BlockingIOError):
            break
        ancillary = {kind: value for _, kind, value in messages}
        received = time.monotonic_ns() - _since_arrival_ns(ancillary)
        size = _INT.unpack(ancillary[_UDP_GRO])[0] if _UDP_GRO in ancillary else len(data)
        until_ns = max(until_ns, time.monotonic_ns() + _QUIET_NS)  # the sender can be late, or this worker
        for (round_number, train, sequence, whole, sent), packets in _counted(data, size):
            if round_number != number:
                continue
            segment = segments.setdefault((train, sequence), [train, sequence, sent, received, 0, 0])
            new = min(packets, whole - segment[4])
            segment[4] += new
            segment[5] += packets - new
            if new:
                segment[3] = received
                segments[train, sequence] = segments.pop((train, sequence))  # the last one so far
            arrived += new
    return {"segments": list(segments.values())}


def _counted(data: bytes, size: int) -> list[tuple[tuple[int, ...], int]]:
    """Return the stamps in datagrams of `size` bytes, in their order, and how often each follows itself."""
    first, last = _STAMP.unpack_from(data), _STAMP.unpack_from(data, (len(data) - 1) // size * size)
    if first == last:  # the usual case: 10 Gbit/s leave no time for 20,000 stamps in 20 ms
        return [(first, -(-len(data) // size))]
    stamps = (_STAMP.unpack_from(data, offset) for offset in range(0, len(data), size))
    return [(stamp, len(list(same))) for stamp, same in groupby(stamps)]
