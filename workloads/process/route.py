"""The congestion control of a worker's connections, set as an attribute of the route to its peers.

The kernel restricts the sysctl, and the socket option, of a namespace to some congestion controls; others are allowed
to a route. A route decides for connections that this side opens and for those that it accepts.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

_RTM_NEWROUTE = 24
_REPLACE_ACK = 0x1 | 0x4 | 0x100 | 0x400  # NLM_F_REQUEST, ACK, REPLACE, CREATE
_RTA_DST, _RTA_OIF, _RTA_PREFSRC, _RTA_METRICS, _RTAX_CC_ALGO = 1, 4, 7, 8, 16
_MAIN_TABLE, _BY_KERNEL, _SCOPE_LINK, _UNICAST = 254, 2, 253, 1


def set_congestion(device: str, address: str, name: str, *, prefix: int = 16) -> bool:
    """Use a congestion control for all connections over `device`, which has `address`/`prefix`.

    Return false if the kernel does not have it. Raises: OSError, without the right to change routes.
    """
    network = struct.pack("!I", struct.unpack("!I", socket.inet_aton(address))[0] & -1 << (32 - prefix) & 0xFFFFFFFF)
    route = struct.pack("8BI", socket.AF_INET, prefix, 0, 0, _MAIN_TABLE, _BY_KERNEL, _SCOPE_LINK, _UNICAST, 0)
    route += _attribute(_RTA_DST, network)
    route += _attribute(_RTA_OIF, struct.pack("i", socket.if_nametoindex(device)))
    route += _attribute(_RTA_PREFSRC, socket.inet_aton(address))
    route += _attribute(_RTA_METRICS, _attribute(_RTAX_CC_ALGO, name.encode() + b"\0"))
    header = struct.pack("IHHII", 16 + len(route), _RTM_NEWROUTE, _REPLACE_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.sendall(header + route)
        number: int = -struct.unpack_from("i", sock.recv(4096), 16)[0]
    if number not in (0, errno.EINVAL):
        raise OSError(number, os.strerror(number))
    return number == 0


def _attribute(kind: int, value: bytes) -> bytes:
    padding = -len(value) % 4
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(padding)
