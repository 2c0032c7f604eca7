"""A segment: one or more packets of a flow that pass the relay together, as a network card with offload sees them.

A TUN device with segmentation offload puts a virtio header before each IP packet. If the IP packet is a segment, it
has the payloads of many packets behind a single TCP or UDP header, and the virtio header has the payload size of
each. The receiver's kernel takes such a segment as it is. Only a loss, a full buffer or a slow path needs single
packets, or smaller segments: `Segment.part` cuts them out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wanbench.harness.emulators.relay.switch import Port

# struct virtio_net_hdr: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
_VIRTIO = struct.Struct("=BBHHHH")
VIRTIO_BYTES = _VIRTIO.size
NO_OFFLOAD = bytes(VIRTIO_BYTES)
"""The header of a packet whose checksums are complete."""
_UDP_SEGMENT = 5  # gso_type; TCP over IPv4 is 1, with an ECN bit
_FIN, _PSH, _CWR = 0x01, 0x08, 0x80
_U16, _U32 = struct.Struct(">H"), struct.Struct(">I")


class Segment:
    """Packets of one flow on their way to a worker.

    Attributes:
        data: virtio header, IP header, TCP or UDP header, payloads.
        port: the receiver.
        packets, nbytes: number of packets, and their IP bytes together, each with its own headers.
        head, tail: IP bytes of the first packet, and of the last one, which can be shorter.
        first, last: when the first and the last packet reach the present place, in ns. The packets between have even
            distances, and the last one follows in proportion to its size.
    """

    __slots__ = ("data", "first", "head", "last", "nbytes", "packets", "port", "tail")

    def __init__(self, data: bytes, port: Port, now: float) -> None:
        self.data, self.port = data, port
        self.first = self.last = now
        if not data[1]:
            self.packets = 1
            self.nbytes = self.head = self.tail = len(data) - VIRTIO_BYTES
            return
        size, headers = _VIRTIO.unpack_from(data)[3], _header_bytes(data)
        payload = len(data) - VIRTIO_BYTES - headers
        self.packets = max(1, -(-payload // size))
        self.nbytes = payload + self.packets * headers
        self.head = min(payload, size) + headers
        self.tail = payload - (self.packets - 1) * size + headers

    def at(self, index: int) -> float:
        """When this packet reaches the present place."""
        last = self.packets - 1
        if index == last:
            return self.last
        return self.first + (self.last - self.first) * index / (last - 1 + self.tail / self.head)

    def part(self, begin: int, end: int, first: float, last: float) -> Segment:
        """Return the packets `begin` to `end` (exclusive), which reach the present place at `first` to `last`."""
        piece = Segment.__new__(Segment)
        piece.port, piece.first, piece.last = self.port, first, last
        piece.packets, piece.head = end - begin, self.head
        piece.tail = self.tail if end == self.packets else self.head
        piece.nbytes = (piece.packets - 1) * self.head + piece.tail
        if piece.packets == 1:
            piece.head = piece.tail
        piece.data = self.data if piece.packets == self.packets else _cut(self.data, begin, end, self.packets)
        return piece

    def without(self, lost: Sequence[int]) -> Iterator[Segment]:
        """Yield the packets between those with these indices, which ascend, as few segments."""
        begin = 0
        for index in (*lost, self.packets):
            if begin < index:
                yield self.part(begin, index, self.at(begin), self.at(index - 1))
            begin = index + 1

    def chunks(self, packets: int) -> Iterator[Segment]:
        """Yield segments of at most this many packets."""
        for begin in range(0, self.packets, packets):
            end = min(begin + packets, self.packets)
            yield self.part(begin, end, self.at(begin), self.at(end - 1))


def _header_bytes(data: bytes) -> int:
    """The bytes of the IP header and of the TCP or UDP header."""
    ip = (data[VIRTIO_BYTES] & 0xF) * 4
    return ip + (8 if data[1] == _UDP_SEGMENT else (data[VIRTIO_BYTES + ip + 12] >> 4) * 4)


def _cut(data: bytes, begin: int, end: int, packets: int) -> bytes:
    """Return the packets `begin` to `end` (exclusive) of a segment, as the kernel's segmentation would send them.

    The checksum of TCP or UDP remains unfinished (VIRTIO_NET_HDR_F_NEEDS_CSUM), but it includes the length.
    """
    flags, kind, head, size, start, offset = _VIRTIO.unpack_from(data)
    transport, body = VIRTIO_BYTES + start, VIRTIO_BYTES + _header_bytes(data)
    out, stop = bytearray(data[:body]), body + end * size
    nbytes = min(stop, len(data)) - begin * size
    if end - begin == 1:
        _VIRTIO.pack_into(out, 0, flags, 0, head, 0, start, offset)
    shorter = 0xFFFF - (len(data) - nbytes)  # to add in ones' complement
    (ident,), (check,) = _U16.unpack_from(data, VIRTIO_BYTES + 4), _U16.unpack_from(data, VIRTIO_BYTES + 10)
    later = (ident + begin) & 0xFFFF
    total = (check ^ 0xFFFF) + shorter + (ident ^ 0xFFFF) + later
    _U16.pack_into(out, VIRTIO_BYTES + 2, nbytes - VIRTIO_BYTES)
    _U16.pack_into(out, VIRTIO_BYTES + 4, later)
    _U16.pack_into(out, VIRTIO_BYTES + 10, _fold(total) ^ 0xFFFF)
    _U16.pack_into(out, transport + offset, _fold(_U16.unpack_from(data, transport + offset)[0] + shorter))
    if kind == _UDP_SEGMENT:
        _U16.pack_into(out, transport + 4, nbytes - transport)
    else:
        if begin:
            sequence = _U32.unpack_from(data, transport + 4)[0] + begin * size
            _U32.pack_into(out, transport + 4, sequence & 0xFFFFFFFF)
            out[transport + 13] &= 0xFF & ~_CWR
        if end < packets:
            out[transport + 13] &= 0xFF & ~(_FIN | _PSH)
    out += data[body + begin * size : stop]
    return bytes(out)


def _fold(total: int) -> int:
    """Add the carries of a ones' complement sum of 16-bit words."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
