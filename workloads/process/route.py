"""The routes of a worker: the congestion control of its connections, and what it does with addresses outside.

The kernel restricts the sysctl, and the socket option, of a namespace to some congestion controls; others are allowed
to a route. A route decides for connections that this side opens and for those that it accepts.
"""

from __future__ import annotations

import errno
import socket
import struct

from wanbench.workloads.process.netlink import ACKNOWLEDGED, REPLACE_OR_CREATE, ask, attribute

_RTM_NEWROUTE, _RTM_NEWRULE = 24, 32
_RTA_DST, _RTA_OIF, _RTA_PREFSRC, _RTA_METRICS, _RTAX_CC_ALGO = 1, 4, 7, 8, 16
_MAIN_TABLE, _BY_KERNEL, _BY_BOOT, _SCOPE_LINK, _UNICAST = 254, 2, 3, 253, 1
_FRA_PRIORITY, _FRA_IP_PROTO, _FRA_DPORT_RANGE = 6, 22, 24
_LOOK_UP, _UNREACHABLE = 1, 7
OUTSIDE_TABLE, OUTSIDE_PRIORITY, DNS_PORT = 100, 40_000, 53  # the main table comes before, with priority 32766


def set_congestion(device: str, address: str, name: str, *, prefix: int = 16) -> bool:
    """Use a congestion control for all connections over `device`, which has `address`/`prefix`.

    Return false if the kernel does not have it. Raises: OSError, without the right to change routes.
    """
    network = struct.pack("!I", struct.unpack("!I", socket.inet_aton(address))[0] & -1 << (32 - prefix) & 0xFFFFFFFF)
    chosen = attribute(_RTA_METRICS, attribute(_RTAX_CC_ALGO, name.encode() + b"\0"))
    try:
        _set_route(device, address, _MAIN_TABLE, _BY_KERNEL, prefix, attribute(_RTA_DST, network) + chosen)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def lead_outside(device: str, address: str) -> None:
    """Let programs find out the address that they have, which they do with a UDP socket that is connected outside.

    Other connections to the outside, and searches for names, are refused at once, as there is no route.

    Raises:
        OSError: without the right to change routes.
    """
    _set_route(device, address, OUTSIDE_TABLE, _BY_BOOT, 0, b"")
    port = attribute(_FRA_DPORT_RANGE, struct.pack("HH", DNS_PORT, DNS_PORT))
    _add_rule(OUTSIDE_PRIORITY, 0, _UNREACHABLE, port)
    _add_rule(OUTSIDE_PRIORITY + 1, OUTSIDE_TABLE, _LOOK_UP, b"")


def _set_route(device: str, address: str, table: int, protocol: int, prefix: int, attributes: bytes) -> None:
    route = struct.pack("8BI", socket.AF_INET, prefix, 0, 0, table, protocol, _SCOPE_LINK, _UNICAST, 0)
    route += attribute(_RTA_OIF, struct.pack("i", socket.if_nametoindex(device)))
    route += attribute(_RTA_PREFSRC, socket.inet_aton(address))
    ask(_RTM_NEWROUTE, route + attributes, ACKNOWLEDGED | REPLACE_OR_CREATE)


def _add_rule(priority: int, table: int, action: int, attributes: bytes) -> None:
    """Add a rule for UDP."""
    rule = struct.pack("8BI", socket.AF_INET, 0, 0, 0, table, 0, 0, action, 0)
    rule += attribute(_FRA_PRIORITY, struct.pack("I", priority))
    rule += attribute(_FRA_IP_PROTO, struct.pack("B", socket.IPPROTO_UDP))
    ask(_RTM_NEWRULE, rule + attributes, ACKNOWLEDGED | REPLACE_OR_CREATE)
