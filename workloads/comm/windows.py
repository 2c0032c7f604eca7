"""What the buffers of a host let one TCP connection have in flight, and how many connections fill a path.

A receiver advertises a share of its buffer, which grows with what arrives. Before Linux 6.6 the share is half
(`tcp_adv_win_scale` = 1). Since then it follows what packets occupy in memory; with the long segments of an emulated
network it is `WINDOW_SHARE`. A sender wakes up a program when a third of its buffer is free, so a full buffer has five
sixths of its size in flight on average. Sources: Documentation/networking/ip-sysctl.rst of each kernel,
net/ipv4/tcp_input.c (`tcp_rcv_space_adjust`) and include/net/sock.h (`sk_stream_min_wspace`).
"""

import math
import os
import re
from pathlib import Path
from typing import Any

WINDOW_SHARE = 170 / 256
"""The share of its receive buffer that Linux advertises since 6.6, if segments are as long as on an emulated network.

Measured on 6.18: 0.66 with the relay's segments of 64 kB, 0.62 with single packets.
"""
_OLD_WINDOW_SHARE = 0.5  # tcp_adv_win_scale = 1
_IN_FLIGHT = 5 / 6
PAYLOAD_OF_QUEUE = 0.98  # of what a sender's queue occupies in memory
MOST_CONNECTIONS = 16  # a piece of a vector has few chunks to spread
_MOST_OF_A_RANK = 256  # many systems let a process open 1024 files


def window_share(release: str) -> float:
    """The share of a receive buffer that a kernel advertises as its window."""
    version = tuple(map(int, re.findall(r"[0-9]+", release)[:2]))
    return WINDOW_SHARE if version >= (6, 6) else _OLD_WINDOW_SHARE


def in_flight(receive: float, send: float, share: float) -> float:
    """The most payload that one connection has in flight, on average, while it sends without end.

    Args:
        receive, send: bytes of the largest buffers. share: of the receive buffer that is the window.
    """
    return min(receive * share, _IN_FLIGHT * PAYLOAD_OF_QUEUE * send)


def in_turns(full: Any, queue: float, unsent: Any) -> Any:
    """What a sender that keeps to the rate of its path has in flight on average, if that fills its buffer.

    It fills the buffer, waits until a third of it is acknowledged, and sends on at the rate of the path. That does not
    fill the buffer again before the pause has come back with the acknowledgements, a round trip later. So it sends for
    a round trip, and pauses for the time of that third, less what the kernel still had to send.

    Args:
        full: bytes that fill the path, or an array of them. queue: payload that the buffer holds.
        unsent: bytes that the kernel holds of the connection and has not sent, with the shape of `full`.
    """
    idle = queue / 3 - unsent
    return full / (1 + (idle + abs(idle)) / 2 / full)


def in_flight_here() -> float | None:
    """`in_flight` of a connection of this network namespace; None if the kernel does not tell its buffers."""
    try:
        texts = [Path(f"/proc/sys/net/ipv4/tcp_{name}").read_text(encoding="ascii") for name in ("rmem", "wmem")]
    except OSError:
        return None
    receive, send = (int(text.split()[-1]) for text in texts)
    return in_flight(receive, send, window_share(os.uname().release))


def connections_that_fill(rtt_s: float, rate: float, carried: float, ranks: int) -> int:
    """The number of connections that fill a path of `rate` bytes/s, at most 16, and fewer if there are many ranks.

    Args:
        carried: what one has in flight at most, in bytes.
    """
    return max(1, min(MOST_CONNECTIONS, _MOST_OF_A_RANK // max(1, ranks - 1), math.ceil(rate * rtt_s / carried)))
