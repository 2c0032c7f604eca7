"""Test whether this kernel has what the netem emulator needs, in a network namespace that ends with the process.

    python -m wanbench.harness.emulators.netem.detect

It prints nothing if nothing is missing, else one line with what is missing. It uses only the standard library, to
start fast: it runs before every use of netem.
"""

import errno
import os
import socket
import struct

from wanbench.workloads.process.namespace import NamespaceError, enter_private_network

_PACKAGES = "linux-modules-extra-$(uname -r) on Ubuntu, kernel-modules-extra on Fedora"
_RTM_NEWLINK, _RTM_NEWQDISC, _RTM_NEWTFILTER = 16, 36, 44
_NEW = 0x1 | 0x4 | 0x400  # request, acknowledge, create
_IFLA_LINKINFO, _IFLA_INFO_KIND, _TCA_KIND, _TCA_OPTIONS = 18, 1, 1, 2
_HTB_INIT, _U32_SEL = 2, 5
_LOOPBACK, _ROOT, _OWN = 1, 0xFFFFFFFF, 0x10000
_ETH_P_IP = 0x0008  # in network byte order


def missing() -> str | None:
    """Return what is missing and how to fix it, in one line, or None. Moves this process into a new namespace."""
    try:
        enter_private_network()
    except NamespaceError as error:
        return f"netem: {error}"
    for option, module, kind, body in _needs():
        number = _try(kind, body)
        if number in (errno.ENOENT, errno.EOPNOTSUPP):
            feature = module.removeprefix("sch_").removeprefix("cls_")
            return f"netem: this kernel has no {feature} ({option}): sudo modprobe {module}, from {_PACKAGES}"
        if number:
            return f"netem: the kernel refuses {module}: {os.strerror(number)}"
    return None


def _needs() -> tuple[tuple[str, str, int, bytes], ...]:
    """Kernel option, module, and a netlink message that needs it. Each message builds on the one before."""
    netem = struct.pack("=6I", 0, 1000, 0, 0, 0, 0)
    htb = _attribute(_HTB_INIT, struct.pack("=5I", 3, 10, 0, 0, 0))
    u32 = _attribute(_U32_SEL, bytes(16))
    veth = _attribute(_IFLA_LINKINFO, _attribute(_IFLA_INFO_KIND, b"veth\0"))
    return (
        ("CONFIG_NET_SCH_NETEM", "sch_netem", _RTM_NEWQDISC, _tc(b"netem\0", netem, _ROOT)),
        ("CONFIG_NET_SCH_HTB", "sch_htb", _RTM_NEWQDISC, _tc(b"htb\0", htb, _ROOT, handle=_OWN)),
        ("CONFIG_NET_CLS_U32", "cls_u32", _RTM_NEWTFILTER, _tc(b"u32\0", u32, _OWN, info=1 << 16 | _ETH_P_IP)),
        ("CONFIG_VETH", "veth", _RTM_NEWLINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0) + veth),
    )


def _tc(kind: bytes, options: bytes, parent: int, *, handle: int = 0, info: int = 0) -> bytes:
    header = struct.pack("=BxxxiIII", 0, _LOOPBACK, handle, parent, info)
    return header + _attribute(_TCA_KIND, kind) + _attribute(_TCA_OPTIONS, options)


def _attribute(number: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), number) + data + bytes(-len(data) % 4)


def _try(kind: int, body: bytes) -> int:
    """Send one netlink message. Return the error number, or 0."""
    flags = _NEW | (0x100 if kind == _RTM_NEWQDISC else 0)  # NLM_F_REPLACE: the second root replaces the first
    message = struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.sendall(message)
        return -int(struct.unpack_from("=i", sock.recv(4096), 16)[0])


if __name__ == "__main__":
    reason = missing()
    if reason is not None:
        print(reason)
