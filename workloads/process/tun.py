"""A worker's network device and its counters.

The worker opens the device in its own namespace and passes the file descriptor to the relay. The relay reads the
packets that the worker sends, and writes the packets that it receives. The worker needs CAP_NET_ADMIN in its namespace
and /dev/net/tun, but only at its start.
"""

import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

from wanbench.workloads.comm.blocks import MTU
from wanbench.workloads.process.namespace import ask, attribute, bring_up

_TUNSETIFF, _TUNGETIFF, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ = 0x400454CA, 0x800454D2, 0x400454D0, 0x400454D8
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
# What the reader of the device does itself. USO is one bit for IPv4 and one for IPv6, only together, since Linux 6.2.
_CSUM, _TSO4, _USO = 0x01, 0x02, 0x20 | 0x40
VIRTIO_HEADER_BYTES = 10
_RTM_NEWADDR, _IFA_ADDRESS, _IFA_LOCAL, _IFLA_MTU, _IFLA_TXQLEN = 20, 1, 2, 4, 13
_CLONE_DEVICE = "/dev/net/tun"

_COLUMNS = {  # of /proc/net/dev
    "rx_bytes": 0,
    "rx_packets": 1,
    "rx_errors": 2,
    "rx_dropped": 3,
    "tx_bytes": 8,
    "tx_packets": 9,
    "tx_errors": 10,
    "tx_dropped": 11,
}
_TCP_STATE = (
    ("Tcp", "OutSegs"),
    ("Tcp", "RetransSegs"),
    ("TcpExt", "TCPTimeouts"),
    ("TcpExt", "TCPLostRetransmit"),
    ("TcpExt", "TCPFastRetrans"),
    ("TcpExt", "TCPSACKReorder"),
    ("TcpExt", "TCPSlowStartRetrans"),
)


class TunError(ValueError):
    """The device cannot be created. The message names the fix."""


def open_tun(name: str, address: str, *, prefix: int = 16, mtu: int = MTU, queue_packets: int = 10_000) -> int:
    """Create a TUN device in the current network namespace, configure it, bring it up; return its descriptor.

    The device has segmentation offload: a read or write moves up to 64 KB of one TCP or UDP flow, behind a virtio
    header with the size of its packets (`passes_segments`). If the kernel refuses it, or the environment has
    WANBENCH_OFFLOAD=off, a read returns one IP packet of at most `mtu` bytes. The descriptor does not block. The device
    exists as long as a descriptor of it is open.

    Raises:
        TunError: no /dev/net/tun, no right to use it, or a refused setting.
    """
    fd = _open(name, 0 if os.environ.get("WANBENCH_OFFLOAD") == "off" else _IFF_VNET_HDR)
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
    return bool(struct.unpack_from("H", fcntl.ioctl(fd, _TUNGETIFF, bytes(40)), 16)[0] & _IFF_VNET_HDR)


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
    # The ioctl for the queue needs CAP_NET_ADMIN on the host, even for root of a user namespace.
    index, own = socket.if_nametoindex(name), socket.inet_aton(address)
    of_device = struct.pack("4BI", socket.AF_INET, prefix, 0, 0, index)
    ask(_RTM_NEWADDR, of_device + attribute(_IFA_ADDRESS, own) + attribute(_IFA_LOCAL, own))
    sizes = ((_IFLA_MTU, mtu), (_IFLA_TXQLEN, queue_packets))
    bring_up(name, b"".join(attribute(kind, struct.pack("I", value)) for kind, value in sizes))


def device_counters(name: str = "wan0") -> dict[str, int]:
    """Return the device's counters since its creation: rx_ and tx_ bytes, packets, errors, dropped.

    `tx` counts what this worker sent, with IP headers. `tx_dropped` counts packets that the relay read too late.

    Raises:
        TunError: this namespace has no such device.
    """
    for line in Path("/proc/net/dev").read_text().splitlines():
        device, colon, rest = line.partition(":")
        if colon and device.strip() == name:
            return {key: int(rest.split()[index]) for key, index in _COLUMNS.items()}
    raise TunError(f"device {name}: not in this network namespace")


def tcp_counters() -> dict[str, int]:
    """Return TCP counters of this network namespace: segments sent and retransmitted, timeouts, reorderings.

    Counters that this kernel does not have are omitted.
    """
    counters = _protocol_counters()
    return {key: counters[protocol, key] for protocol, key in _TCP_STATE if (protocol, key) in counters}


def udp_overflows() -> int:
    """Return the number of datagrams dropped so far in this network namespace by full buffers of sockets."""
    return _protocol_counters()["Udp", "RcvbufErrors"]


def _protocol_counters() -> dict[tuple[str, str], int]:
    """Return all counters of this network namespace by protocol and name."""
    counters: dict[tuple[str, str], int] = {}
    for file in ("snmp", "netstat"):
        lines = Path("/proc/net", file).read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            protocol, *keys = names.replace(":", "").split()
            counters |= {(protocol, key): int(value) for key, value in zip(keys, values.split()[1:], strict=True)}
    return counters
