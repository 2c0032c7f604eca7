"""What limited the TCP connections of this network namespace, as `ss -ti` shows it: from the kernel's sock_diag."""

import socket
import struct
from collections import Counter
from collections.abc import Iterator

from wanbench.workloads.process.namespace import LISTED, ask, attributes

_SOCK_DIAG, _BY_FAMILY = 4, 20
_INFO = 2  # INET_DIAG_INFO, a struct tcp_info
_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8  # established, and closing with data to send
_HEAD_BYTES = 72  # struct inet_diag_msg
_PEER = slice(20, 24)  # the address of the other end, in its inet_diag_sockid
# Offsets of fields of struct tcp_info (linux/tcp.h): numbers of 32 bits, and times of 64.
_MSS, _UNACKED, _WINDOW = 16, 24, 228
TIMES_US = {"BusyUs": 168, "WindowLimitedUs": 176, "BufferLimitedUs": 184}
_BYTES_OF_INFO = 232  # with the window, which Linux has since 5.4


class Connections:
    """Adds up what all connections tell, also those that have been closed since an earlier look."""

    def __init__(self) -> None:
        self._times_us: dict[bytes, tuple[int, ...]] = {}
        self._window = self._in_flight = self._to_a_peer = 0

    def look(self) -> None:
        """Read the connections that are open now. Kernels without sock_diag for TCP have none to show."""
        peers: Counter[bytes] = Counter()
        for name, info in _infos():
            peers[name[_PEER]] += 1
            self._times_us[name] = tuple(struct.unpack_from("Q", info, offset)[0] for offset in TIMES_US.values())
            self._window = max(self._window, _field(info, _WINDOW))
            self._in_flight = max(self._in_flight, _field(info, _UNACKED) * _field(info, _MSS))
        self._to_a_peer = max(self._to_a_peer, *peers.values(), 0)

    def counters(self) -> dict[str, int]:
        """Look, and return what all connections together tell; nothing if there was none.

        The times so far in microseconds: with data to send, waiting for the receiver's window, and for their own send
        buffer. The largest window, and the most bytes in flight and connections to a peer since the last call.
        """
        self.look()
        if not self._times_us:
            return {}
        totals = [sum(times) for times in zip(*self._times_us.values(), strict=True)]
        largest = {"WindowBytes": self._window, "InFlightBytes": self._in_flight, "ToAPeer": self._to_a_peer}
        self._window = self._in_flight = self._to_a_peer = 0
        return dict(zip(TIMES_US, totals, strict=True)) | largest


def _infos() -> Iterator[tuple[bytes, bytes]]:
    """Yield the identity and the tcp_info of every connection to another host."""
    wanted = struct.pack("BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INFO - 1), _STATES) + bytes(48)
    try:
        answers = ask(_BY_FAMILY, wanted, LISTED, _SOCK_DIAG)
    except OSError:
        return
    for answer in answers:
        info = attributes(answer[_HEAD_BYTES:]).get(_INFO, b"")
        if len(info) >= _BYTES_OF_INFO and answer[8] != _LOOPBACK:
            yield answer[4:52], info  # ports, addresses and the kernel's cookie


_LOOPBACK = 127  # the first byte of the source address


def _field(info: bytes, offset: int) -> int:
    return int(struct.unpack_from("I", info, offset)[0])
