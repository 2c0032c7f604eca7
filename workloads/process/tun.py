"""A worker's network device and its counters.

The worker opens the device in its own namespace and passes the file descriptor to the relay. The relay reads the
packets that the worker sends, and writes the packets that it receives. The worker needs CAP_NET_ADMIN in its namespace
and /dev/net/tun, but only at its start.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

_TUNSETIFF, _TUNGETIFF, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ = 0x400454CA, 0x800454D2, 0x400454D0, 0x400454D8
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
# What the reader of the device does itself. USO is one bit for IPv4 and one for IPv6, only together, since Linux 6.2.
_CSUM, _TSO4, _USO = 0x01, 0x02, 0x20 | 0x40
VIRTIO_HEADER_BYTES = 10
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCSIFTXQLEN = (
    0x8914,
    0x8916,
    0x891C,
    0x8922,
    0x8943,
)
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_RTM_SETLINK, _NLM_F_REQUEST_ACK, _IFLA_TXQLEN = 19, 0x5, 13
_CLONE_DEVICE = "/dev/net/tun"

_COUNTERS = (
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
)
_COLUMNS = (0, 1, 2, 3, 8, 9, 10, 11)  # their columns in /proc/net/dev
_TCP_STATE = {
    "Tcp": ("OutSegs", "RetransSegs"),
    "TcpExt": ("TCPTimeouts", "TCPLostRetransmit", "TCPFastRetrans", "TCPSACKReorder", "TCPSlowStartRetrans"),
}


class TunError(ValueError):
    """The device cannot be created. The message names the fix."""


def open_tun(name: str, address: str, *, prefix: int = 16, mtu: int = 1500, queue_packets: int = 10_000) -> int:
    """Create a TUN device in the current network namespace, configure it, bring it up; return its descriptor.

    The device has segmentation offload: a read or write moves up to 64 KB of one TCP or UDP flow, behind a virtio
    header with the size of its packets (`passes_segments`). If the kernel refuses it, or the environment has
    WANBENCH_OFFLOAD=off, a read returns one IP packet of at most `mtu` bytes. The descriptor does not block. The device
    exists as long as a descriptor of it is open.

    Raises:
        TunError: no /dev/net/tun, no right to use it, or a refused setting.
    """
    wanted = os.environ.get("WANBENCH_OFFLOAD") != "off"
    fd = _open(name, _IFF_VNET_HDR if wanted else 0)
    if passes_segments(fd) and not _offload(fd):
        os.close(fd)
        fd = _open(name, 0)
    try:
        _configure(name, address, prefix, mtu, queue_packets)
    except OSError as error:
        os.close(fd)
        raise TunError(f"device {name}: cannot set {address}/{prefix} mtu {mtu}: {error.strerror}") from error
    return fd


def passes_segments(fd: int) -> bool:
    """Whether reads and writes of a TUN device have a virtio header, and can move segments. Raises: OSError."""
    reply = fcntl.ioctl(fd, _TUNGETIFF, bytes(40))
    return bool(struct.unpack_from("H", reply, 16)[0] & _IFF_VNET_HDR)


def _open(name: str, flags: int) -> int:
    try:
        fd = os.open(_CLONE_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise TunError(_cannot_open(error)) from error
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI | flags))
    except OSError as error:
        os.close(fd)
        if flags and error.errno == errno.EINVAL:
            return _open(name, 0)
        if error.errno == errno.EPERM:
            raise TunError(f"device {name}: not allowed to create it; it needs NET_ADMIN in this namespace") from error
        raise TunError(f"device {name}: {error.strerror}") from error
    return fd


def _offload(fd: int) -> bool:
    """Take over checksums and segmentation from the kernel. Return false if it refuses."""
    try:
        fcntl.ioctl(fd, _TUNSETVNETHDRSZ, struct.pack("i", VIRTIO_HEADER_BYTES))
        try:
            fcntl.ioctl(fd, _TUNSETOFFLOAD, _CSUM | _TSO4 | _USO)
        except OSError:
            fcntl.ioctl(fd, _TUNSETOFFLOAD, _CSUM | _TSO4)
    except OSError:
        return False
    return True


def _cannot_open(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return (
            f"{_CLONE_DEVICE}: no TUN driver: `sudo modprobe tun`;"
            " in a container also `--device /dev/net/tun --cap-add NET_ADMIN`"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{_CLONE_DEVICE}: {error.strerror}: `sudo chmod 666 {_CLONE_DEVICE}`, or run as root"
    return f"{_CLONE_DEVICE}: {error.strerror}"


def _configure(name: str, address: str, prefix: int, mtu: int, queue_packets: int) -> None:
    device = name.encode()
    netmask = socket.inet_ntoa(struct.pack("!I", 0xFFFFFFFF << (32 - prefix) & 0xFFFFFFFF))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for request, text in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, netmask)):
            fcntl.ioctl(sock, request, struct.pack("16sH2x4s16x", device, socket.AF_INET, socket.inet_aton(text)))
        fcntl.ioctl(sock, _SIOCSIFMTU, struct.pack("16si20x", device, mtu))
        _set_queue(name, queue_packets)
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH22x", device, _IFF_UP | _IFF_RUNNING))


def _set_queue(name: str, packets: int) -> None:
    # Use netlink: the ioctl needs CAP_NET_ADMIN on the host, even for root of a user namespace.
    link = struct.pack("BxHiII", socket.AF_UNSPEC, 0, socket.if_nametoindex(name), 0, 0)
    body = link + struct.pack("HHI", 8, _IFLA_TXQLEN, packets)
    header = struct.pack("IHHII", 16 + len(body), _RTM_SETLINK, _NLM_F_REQUEST_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.sendall(header + body)
        number = -struct.unpack_from("i", sock.recv(4096), 16)[0]
    if number:
        raise OSError(number, os.strerror(number))


def device_counters(name: str = "wan0") -> dict[str, int]:
    """Return the device's counters since its creation: rx_ and tx_ bytes, packets, errors, dropped.

    `tx` counts what this worker sent, with IP headers. `tx_dropped` counts packets that the relay read too late.

    Raises:
        TunError: this namespace has no such device.
    """
    for line in Path("/proc/net/dev").read_text().splitlines():
        device, colon, rest = line.partition(":")
        if colon and device.strip() == name:
            columns = rest.split()
            return {key: int(columns[index]) for key, index in zip(_COUNTERS, _COLUMNS, strict=True)}
    raise TunError(f"device {name}: not in this network namespace")


def tcp_counters() -> dict[str, int]:
    """Return TCP counters of this network namespace: segments sent and retransmitted, timeouts, reorderings.

    Counters that this kernel does not have are omitted.
    """
    state: dict[str, int] = {}
    for file in ("snmp", "netstat"):
        lines = Path("/proc/net", file).read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            protocol = names.partition(":")[0]
            counters = dict(zip(names.split()[1:], values.split()[1:], strict=True))
            state |= {key: int(counters[key]) for key in _TCP_STATE.get(protocol, ()) if key in counters}
    return state


def udp_overflows() -> int:
    """Return the number of datagrams dropped so far in this network namespace by full buffers of sockets."""
    lines = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Udp:")]
    return int(dict(zip(lines[0], lines[1], strict=True))["RcvbufErrors"])
