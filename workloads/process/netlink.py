"""Requests to the kernel over rtnetlink, with the standard library alone: change a network namespace, or list it.

To list needs no rights.
"""

from __future__ import annotations

import os
import socket
import struct

RTM_SETLINK, IFF_UP = 19, 0x1
ACKNOWLEDGED, REPLACE_OR_CREATE, LISTED = 0x4, 0x100 | 0x400, 0x300
_REQUEST, _ERROR, _DONE = 0x1, 2, 3
_HEADER = struct.Struct("IHHII")
_MOST_BYTES = 1 << 16  # twice what the kernel sends at a time


def attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute as bytes."""
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """Return the values of attributes by their kind."""
    found, at = {}, 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("HH", data, at)
        found[kind & 0x3FFF] = data[at + 4 : at + length]  # without its flag "nested"
        at += max(4, length + -length % 4)
    return found


def ask(kind: int, body: bytes, flags: int = ACKNOWLEDGED) -> list[bytes]:
    """Send a request, and return the answers without their headers. Raises: OSError, if the kernel refuses."""
    answers: list[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.sendall(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 1, 0) + body)
        while True:
            data = sock.recv(_MOST_BYTES)
            while data:
                length, answer, *_ = _HEADER.unpack_from(data)
                content, data = data[_HEADER.size : length], data[length + -length % 4 :]
                if answer in (_ERROR, _DONE):
                    number = -struct.unpack_from("i", content)[0]
                    if number:
                        raise OSError(number, os.strerror(number))
                    return answers
                answers.append(content)
