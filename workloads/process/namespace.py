"""A private network stack for one worker: namespace, TCP settings, routes, and only the rights that it needs.

All this happens at the start of a worker, while it has a single thread. The worker gets its own namespace, brings `lo`
up and fixes the TCP settings. Once its device is open (`workloads.process.tun`), it gives up the right to change any of
this. The namespace has no name. However the processes end, the kernel removes it with its devices when its last process
has ended and the relay has closed its device.
"""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from wanbench.workloads.comm.windows import window_share

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_TIMERSLACK, _PR_SET_NO_NEW_PRIVS = 1, 24, 29, 38
_SYS_ADMIN = 21
_CAPABILITY_VERSION_3 = 0x20080522
_THREAD_END_S = 5.0

_IPV4 = Path("/proc/sys/net/ipv4")
BUFFER_BYTES = 64 << 20
"""The largest socket buffer. Linux's own limits one flow to about 150 Mbit/s on a path of 150 ms."""
# Metrics cached from an earlier connection would make a repetition depend on the previous one.
_PINNED = {"tcp_no_metrics_save": "1"}
_SETTINGS = {
    "congestion": "tcp_congestion_control",
    "slow_start_after_idle": "tcp_slow_start_after_idle",
    "receive": "tcp_rmem",
    "send": "tcp_wmem",
}
_BUFFERS = {"receive": f"4096 131072 {BUFFER_BYTES}", "send": f"4096 65536 {BUFFER_BYTES}"}

# Capabilities to change a network, inspect other processes or access the kernel. The worker keeps its file rights: if
# started through sudo, it still writes into the user's results folder.
_DROPPED = {
    "NET_BROADCAST": 11,
    "NET_ADMIN": 12,
    "NET_RAW": 13,
    "SYS_MODULE": 16,
    "SYS_RAWIO": 17,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": _SYS_ADMIN,
    "SYS_BOOT": 22,
    "SYS_TIME": 25,
    "MKNOD": 27,
    "MAC_OVERRIDE": 32,
    "MAC_ADMIN": 33,
    "SYSLOG": 34,
    "PERFMON": 38,
    "BPF": 39,
    "SETPCAP": 8,  # last: dropping the others from the bounding set needs it
}

_libc = ctypes.CDLL(None, use_errno=True)


class NamespaceError(ValueError):
    """The host refuses a private network stack or one of its settings. The message names the remedy."""


def die_with_parent(parent_pid: int | None = None, sig: int = signal.SIGKILL) -> None:
    """End this process when the *thread* that started it ends, for any reason. Call it before anything else.

    The kernel watches the parent's thread, not its process: start children from a thread that lives as long as they
    should live. With `parent_pid`, this also notices a parent that ended before this call.

    Raises:
        SystemExit: the parent has already ended.
        NamespaceError: the kernel refuses.
    """
    parent = os.getppid() if parent_pid is None else parent_pid
    if _libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0) != 0:
        raise NamespaceError(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent process ended first")


def fork(work: Callable[[], int], parent_pid: int | None = None) -> int:
    """Run `work`, which returns an exit status, in a child that ends with this thread. Return the child's number.

    Args:
        parent_pid: as for `die_with_parent`.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        die_with_parent(parent_pid)
        status = work()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def cpu_wait_ns() -> int | None:
    """How long this process's threads have waited for a processor; None if the kernel does not report it."""
    try:
        return sum(int(path.read_text().split()[1]) for path in Path("/proc/self/task").glob("*/schedstat"))
    except OSError:
        return None


def set_timer_slack(ns: int) -> None:
    """Set how late the timers of this thread can fire: 50 us by default, too late for an emulated network."""
    _libc.prctl(_PR_SET_TIMERSLACK, ns, 0, 0, 0)


def become_namespace_root() -> None:
    """Unless it has CAP_SYS_ADMIN, make this process root of a new user namespace, which can create networks.

    Its children can then call `enter_private_network`. Call this while the process has a single thread.

    Raises:
        NamespaceError: the kernel or its security module refuses.
    """
    if _capabilities()[0] >> _SYS_ADMIN & 1:
        return
    uid, gid = os.geteuid(), os.getegid()
    unshare(_CLONE_NEWUSER, "new user namespace")
    for file, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        try:
            Path("/proc/self", file).write_text(text)
        except OSError as error:
            raise NamespaceError(
                f"new user namespace: /proc/self/{file}: {error.strerror}{_remedy(errno.EPERM)}"
            ) from error


def unshare(flags: int, what: str) -> None:
    """Move this process into new namespaces. Raises: NamespaceError, which begins with `what`."""
    if _libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise NamespaceError(f"{what}: {os.strerror(number)}{_remedy(number)}")


def enter_private_network() -> None:
    """Move this process into a new network namespace with only `lo`, which is up. Only `lo` has IPv6.

    If needed, become root of a user namespace first (`become_namespace_root`). Call this while the process has a single
    thread.

    Raises:
        NamespaceError: the kernel or its security module refuses.
    """
    become_namespace_root()
    unshare(_CLONE_NEWNET, "new network namespace")
    try:
        bring_up("lo")
    except OSError as error:
        raise NamespaceError(f"new network namespace: lo: {error.strerror}{_remedy(errno.EPERM)}") from error
    # Neighbour and router discovery would send packets over the emulated network. `lo`, which exists, keeps ::1.
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")


def _remedy(number: int) -> str:
    """What the administrator can do about a refused namespace."""
    if number == errno.EINVAL and not Path("/proc/self/ns/user").exists():
        return "; this kernel has no user namespaces (CONFIG_USER_NS); run as root"
    if number == errno.EINVAL:
        return "; it must be created before the process starts a thread"
    if number == errno.ENOSPC:
        return "; too many namespaces; `sudo sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000`"
    if number not in (errno.EPERM, errno.EACCES):
        return ""
    if _read_sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return " (AppArmor's default on Ubuntu 24.04); run as root, or with the profile that `wanbench doctor` shows"
    if _read_sysctl("kernel/unprivileged_userns_clone") == "0":
        return "; run as root, or `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
    return "; run as root, or in a container started with --cap-add SYS_ADMIN"


def _read_sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def bring_up(device: str, attributes: bytes = b"") -> None:
    """Bring a device up, with these attributes. Raises: OSError."""
    link = struct.pack("BxHiII", socket.AF_UNSPEC, 0, socket.if_nametoindex(device), IFF_UP, IFF_UP)
    ask(_RTM_SETLINK, link + attributes)


def set_tcp(settings: Mapping[str, object], routed: str | None = None) -> dict[str, str]:
    """Set TCP in this namespace, read all settings back, and return the values in force by sysctl name.

    Args:
        settings: `congestion` (name) and `slow_start_after_idle` (bool), which are not changed if missing;
            `receive` and `send` (the smallest, first and largest buffer; the largest is `BUFFER_BYTES` by default);
            `window_share` (the share of `receive` that another kernel advertises: this one gets an equivalent buffer).
        routed: the congestion control that the route to the peers already has (`set_congestion`).

    Raises:
        NamespaceError: an unknown key, or a value that the kernel refuses or changes.
    """
    sysctls = tcp_sysctls(settings)
    # The kernel can refuse, or restrict, what the route has.
    if routed is not None and sysctls.pop("tcp_congestion_control", routed) != routed:
        raise NamespaceError(f"tcp congestion {settings['congestion']!r}: the route to the peers has {routed!r}")
    for name, text in sysctls.items():
        _write_sysctl(name, text)
    effective = {name: _in_force(name) for name in (*_SETTINGS.values(), *_PINNED)}
    for name, text in sysctls.items():
        if effective[name] != text:
            raise NamespaceError(f"{name}: wrote {text!r}, but the kernel reports {effective[name]!r}")
    return effective if routed is None else effective | {"tcp_congestion_control": routed}


def tcp_sysctls(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the values that `set_tcp` writes, by sysctl name below net.ipv4. Containers need them at their start.

    Raises:
        NamespaceError: an unknown key.
    """
    keys = (*_SETTINGS, "window_share")
    for key in settings:
        if key not in keys:
            raise NamespaceError(f"tcp: unknown setting {key!r}; expected one of {', '.join(keys)}")
    given = _BUFFERS | {
        key: str(int(value)) if isinstance(value, bool) else str(value) for key, value in settings.items()
    }
    if (share := given.pop("window_share", None)) is not None:
        *sizes, largest = given["receive"].split()
        given["receive"] = " ".join(
            [*sizes, str(round(int(largest) * float(share) / window_share(os.uname().release)))]
        )
    return _PINNED | {_SETTINGS[key]: value for key, value in given.items()}


def _in_force(name: str) -> str:
    return " ".join((_IPV4 / name).read_text().split())


def _write_sysctl(name: str, text: str) -> None:
    try:
        if _in_force(name) == text:  # a container can only read them
            return
        (_IPV4 / name).write_text(text)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES):
            raise NamespaceError(
                f"{name} is {_in_force(name)!r} in this container and cannot be changed to {text!r};"
                f" start the container with sysctl net.ipv4.{name}={text}"
            ) from error
        if name != "tcp_congestion_control":
            raise NamespaceError(f"{name}: the kernel refuses {text!r}: {error.strerror}") from error
        raise NamespaceError(congestion_refused(text, error.errno)) from error


def congestion_refused(name: str, number: int | None) -> str:
    """Explain why the kernel refuses a congestion control in a namespace, and name the ones that it accepts."""
    remedy = f"use one of {', '.join(_in_force('tcp_allowed_congestion_control').split())}"
    if number == errno.EPERM:
        # Only the host's default and `reno` are unrestricted, and other namespaces can default only to those.
        return f"tcp congestion {name!r}: the kernel restricts it to the host's own namespace; {remedy}"
    if number == errno.ENOENT:
        return f"tcp congestion {name!r}: not loaded; {remedy}, or `sudo modprobe tcp_{name}`"
    return f"tcp congestion {name!r}: {os.strerror(number or 0)}; {remedy}"


def drop_privileges() -> None:
    """Give up for good the capabilities that only the start of a worker needs; children do not get them either.

    This applies to the calling thread, so call it before starting another one. `set_tcp` works afterwards: the kernel
    lets the host's root write the sysctls of its network namespace without any capability. Root of a user namespace
    needs NET_ADMIN for that and keeps it; there it has no effect outside the namespaces that the worker owns.

    Raises:
        NamespaceError: the kernel refuses.
    """
    of_host = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    dropped = [number for name, number in _DROPPED.items() if name != "NET_ADMIN" or of_host]
    kept = ~sum(1 << number for number in dropped)
    sets = [capabilities & kept for capabilities in _capabilities()]
    for number in dropped:
        # EINVAL: the kernel does not have the capability. EPERM: without CAP_SETPCAP the set cannot grow again anyway.
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    _set_capabilities(*sets)


def become_user(uid: int, gid: int) -> None:
    """Become a user and give up every capability for good, in all threads of this process.

    A container can already run as this user; then nothing changes.

    Raises:
        NamespaceError: the kernel refuses, or a thread still has a capability.
    """
    try:
        if os.getgroups() not in ([], [gid]):
            os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except PermissionError as error:
        raise NamespaceError(f"cannot become user {uid}:{gid}: the container needs SETUID and SETGID") from error
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _set_capabilities(0, 0, 0)
    deadline = time.monotonic() + _THREAD_END_S
    while kept := _capable_threads():
        if time.monotonic() > deadline:
            raise NamespaceError(f"threads still have capabilities: {', '.join(kept)}; expected none")
        time.sleep(0.001)  # a thread that is just ending does not change user with the others


def _capable_threads() -> list[str]:
    """Return the threads of this process that have a capability, with their capability sets."""
    capable = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            lines = (task / "status").read_text().splitlines()
            sets = [line.split()[1] for line in lines if line.startswith(("CapInh", "CapPrm"))]
            if any(int(mask, 16) for mask in sets):
                capable.append(f"{task.name} ({' '.join(sets)})")
    return capable


def _capabilities() -> tuple[int, int, int]:
    header, data = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), ctypes.create_string_buffer(24)
    if _libc.capget(header, data) != 0:
        raise NamespaceError(f"capget: {os.strerror(ctypes.get_errno())}")
    low_e, low_p, low_i, high_e, high_p, high_i = struct.unpack("6I", data.raw)
    return low_e | high_e << 32, low_p | high_p << 32, low_i | high_i << 32


def _set_capabilities(effective: int, permitted: int, inheritable: int) -> None:
    masks = (effective, permitted, inheritable)
    data = struct.pack("6I", *(m & 0xFFFFFFFF for m in masks), *(m >> 32 for m in masks))
    if _libc.capset(struct.pack("Ii", _CAPABILITY_VERSION_3, 0), data) != 0:
        raise NamespaceError(f"capset: {os.strerror(ctypes.get_errno())}")


# ---------------------------------------------------------------- routes

# The kernel restricts the sysctl, and the socket option, of a namespace to some congestion controls; others are allowed
# to a route. A route decides for connections that this side opens and for those that it accepts.

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


# ---------------------------------------------------------------- netlink

IFF_UP = 0x1
_RTM_SETLINK = 19
ACKNOWLEDGED, REPLACE_OR_CREATE, LISTED = 0x4, 0x100 | 0x400, 0x300
_REQUEST, _ERROR, _DONE = 0x1, 2, 3
_HEADER = struct.Struct("IHHII")
_MOST_BYTES = 1 << 16  # twice what the kernel sends at a time


def attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute as bytes."""
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """Return the values of attributes by their kind."""
    values, at = {}, 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("HH", data, at)
        values[kind & 0x3FFF] = data[at + 4 : at + length]  # without its flag "nested"
        at += max(4, length + -length % 4)
    return values


def ask(kind: int, body: bytes, flags: int = ACKNOWLEDGED, family: int = socket.NETLINK_ROUTE) -> list[bytes]:
    """Send a request to change or list a network namespace, and return the answers without their headers.

    Args:
        family: of netlink.

    To list needs no rights.

    Raises:
        OSError: the kernel refuses.
    """
    answers: list[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as sock:
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
