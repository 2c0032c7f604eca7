"""A private network stack for one worker: namespace, TCP settings, and no more rights than needed.

Everything here is for the start of a worker, while it has a single thread: a namespace of its own, `lo` up,
TCP pinned, and, once its device is open (`workloads.process.tun`), the rights to change any of it given up. The
namespace has no name anywhere: the kernel removes it, with its devices, when the last process in it has
ended and the relay has closed its device, however they end.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_TIMERSLACK, _PR_SET_NO_NEW_PRIVS = 1, 24, 29, 38
_SYS_ADMIN = 21
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_CAPABILITY_VERSION_3 = 0x20080522
_THREAD_END_S = 5.0

_IPV4 = Path("/proc/sys/net/ipv4")
# Default socket buffers cap one flow at about 150 Mbit/s on a path of 150 ms, and metrics cached from an
# earlier connection would make a repetition depend on the one before it.
_PINNED = {
    "tcp_no_metrics_save": "1",
    "tcp_rmem": "4096 131072 67108864",
    "tcp_wmem": "4096 65536 67108864",
}
_SETTINGS = {"congestion": "tcp_congestion_control", "slow_start_after_idle": "tcp_slow_start_after_idle"}

# What could change a network, look into other processes or reach the kernel. File rights stay: a worker
# started through sudo still writes into its user's results folder.
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
    """The host refuses a private network stack or one of its settings; the message names the remedy."""


def die_with_parent(parent_pid: int | None = None, sig: int = signal.SIGKILL) -> None:
    """End this process with the *thread* that started it, however that ends. Call it before anything else.

    The kernel watches the parent's thread, not its process: start children from a thread that lives as long
    as they shall. With `parent_pid`, a parent that ended even before this call is noticed too.

    Raises:
        SystemExit: the parent is gone already.
        NamespaceError: the kernel refuses.
    """
    parent = os.getppid() if parent_pid is None else parent_pid
    if _libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0) != 0:
        raise NamespaceError(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent process ended first")


def cpu_wait_ns() -> int | None:
    """How long this process's threads have been runnable without a processor; None where the kernel hides it."""
    try:
        return sum(int(path.read_text().split()[1]) for path in Path("/proc/self/task").glob("*/schedstat"))
    except OSError:
        return None


def set_timer_slack(ns: int) -> None:
    """How late timers of this thread may fire: 50 us by default, too much for a network on a clock."""
    _libc.prctl(_PR_SET_TIMERSLACK, ns, 0, 0, 0)


def become_namespace_root() -> None:
    """Unless it has CAP_SYS_ADMIN, make this process root of a new user namespace, which may make networks.

    Children may then call `enter_private_network`. Must be called while the process has a single thread.

    Raises:
        NamespaceError: the kernel or its security module refuses.
    """
    if _capabilities()[0] >> _SYS_ADMIN & 1:
        return
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(_CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise NamespaceError(f"new user namespace: {os.strerror(number)}{_remedy(number)}")
    for file, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        try:
            Path("/proc/self", file).write_text(text)
        except OSError as error:
            reason = f"{error.strerror}{_remedy(errno.EPERM)}"
            raise NamespaceError(f"new user namespace: /proc/self/{file}: {reason}") from error


def enter_private_network() -> None:
    """Move this process into a new network namespace: `lo` up, no IPv6, nothing else.

    Becomes root of a user namespace first where that is needed (`become_namespace_root`). Must be called
    while the process has a single thread.

    Raises:
        NamespaceError: the kernel or its security module refuses.
    """
    become_namespace_root()
    if _libc.unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise NamespaceError(f"new network namespace: {os.strerror(number)}{_remedy(number)}")
    try:
        _loopback_up()
    except OSError as error:
        raise NamespaceError(f"new network namespace: lo: {error.strerror}{_remedy(errno.EPERM)}") from error
    _disable_ipv6()


def _remedy(number: int) -> str:
    """What the administrator can do about a refused namespace."""
    if number == errno.EINVAL and not Path("/proc/self/ns/user").exists():
        return ", this kernel has none for users (CONFIG_USER_NS); run as root"
    if number == errno.EINVAL:
        return "; it must be created before the process starts a thread"
    if number == errno.ENOSPC:
        return "; `sudo sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000`"
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


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH22x", b"lo", 0)
        flags = struct.unpack_from("H", fcntl.ioctl(sock, _SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))


def _disable_ipv6() -> None:
    # Neighbour and router discovery would send packets of its own over the emulated network.
    for scope in ("all", "default"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            Path("/proc/sys/net/ipv6/conf", scope, "disable_ipv6").write_text("1")


def set_tcp(settings: Mapping[str, object]) -> dict[str, str]:
    """Set this namespace's TCP, read everything back, and return what is in force by sysctl name.

    Args:
        settings: `congestion` (name) and `slow_start_after_idle` (bool); what is left out stays as it is.

    Raises:
        NamespaceError: an unknown key, or a value that the kernel refuses or changes.
    """
    wanted = tcp_sysctls(settings)
    for name, text in wanted.items():
        _write_sysctl(name, text)
    effective = {name: _in_force(name) for name in (*_SETTINGS.values(), *_PINNED)}
    for name, text in wanted.items():
        if effective[name] != text:
            raise NamespaceError(f"{name}: wrote {text!r}, the kernel made it {effective[name]!r}")
    return effective


def tcp_sysctls(settings: Mapping[str, object]) -> dict[str, str]:
    """What `set_tcp` writes, by sysctl name below net.ipv4; for the start of containers, which cannot write them.

    Raises:
        NamespaceError: an unknown key.
    """
    for key in settings:
        if key not in _SETTINGS:
            raise NamespaceError(f"tcp: unknown setting {key!r}; expected one of {', '.join(_SETTINGS)}")
    wanted = dict(_PINNED)
    for key, value in settings.items():
        wanted[_SETTINGS[key]] = str(int(value)) if isinstance(value, bool) else str(value)
    return wanted


def _in_force(name: str) -> str:
    return " ".join((_IPV4 / name).read_text().split())


def _write_sysctl(name: str, text: str) -> None:
    try:
        if _in_force(name) == text:  # in a container these can only be read
            return
        (_IPV4 / name).write_text(text)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES):
            raise NamespaceError(
                f"{name} is {_in_force(name)!r} in this container, where it cannot be changed to {text!r};"
                f" start the container with sysctl net.ipv4.{name}={text}"
            ) from error
        if name != "tcp_congestion_control":
            raise NamespaceError(f"{name}: the kernel refuses {text!r}: {error.strerror}") from error
        raise NamespaceError(congestion_refused(text, error.errno)) from error


def congestion_refused(name: str, number: int | None) -> str:
    """Why the kernel refuses this congestion control to a namespace, and which ones it takes."""
    allowed = (_IPV4 / "tcp_allowed_congestion_control").read_text().split()
    works = f"use one of {', '.join(allowed)}"
    if number == errno.EPERM:
        # Only the host's own default and `reno` are unrestricted, and other namespaces may default to those
        # alone.
        return f"tcp congestion {name!r}: the kernel restricts it to the host's own namespace; {works}"
    if number == errno.ENOENT:
        return f"tcp congestion {name!r}: not loaded; {works}, or `sudo modprobe tcp_{name}`"
    return f"tcp congestion {name!r}: {os.strerror(number or 0)}; {works}"


def drop_privileges() -> None:
    """Give up the capabilities that only the start of a worker needs, for good and for all children.

    Applies to the calling thread, so call it before any other is started. `set_tcp` works afterwards: the
    kernel lets the host's root write the sysctls of its network namespace without any capability. Root of a
    user namespace needs NET_ADMIN for that and keeps it; there it means nothing outside the namespaces that
    the worker owns.

    Raises:
        NamespaceError: the kernel refuses.
    """
    effective, permitted, inheritable = _capabilities()
    mask = 0
    for name, number in _DROPPED.items():
        if name == "NET_ADMIN" and not _is_host_user_namespace():
            continue
        mask |= 1 << number
        # EINVAL: a kernel that does not have it; EPERM: without CAP_SETPCAP the set cannot grow back anyway.
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    _set_capabilities(effective & ~mask, permitted & ~mask, inheritable & ~mask)


def become_user(uid: int, gid: int) -> None:
    """Become this user and give up every capability for good, in all threads of this process.

    Nothing to change is fine: a container may run as this user from the start.

    Raises:
        NamespaceError: the kernel refuses, or a thread has kept a capability.
    """
    try:
        if os.getgroups() not in ([], [gid]):
            os.setgroups([])
        if os.getresgid() != (gid, gid, gid):
            os.setresgid(gid, gid, gid)
        if os.getresuid() != (uid, uid, uid):
            os.setresuid(uid, uid, uid)
    except PermissionError as error:
        raise NamespaceError(f"cannot become user {uid}:{gid}: SETUID and SETGID are needed for it") from error
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _set_capabilities(0, 0, 0)
    deadline = time.monotonic() + _THREAD_END_S
    while kept := _capable_threads():
        if time.monotonic() > deadline:
            raise NamespaceError(f"threads have kept capabilities: {', '.join(kept)}")
        time.sleep(0.001)  # one that is just ending is left out when the others change user


def _capable_threads() -> list[str]:
    """Threads of this process that have a capability, with their sets."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # ended meanwhile
            lines = (task / "status").read_text().splitlines()
            sets = [line.split()[1] for line in lines if line.startswith(("CapInh", "CapPrm"))]
            if any(int(mask, 16) for mask in sets):
                found.append(f"{task.name} ({' '.join(sets)})")
    return found


def _is_host_user_namespace() -> bool:
    return Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]


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
