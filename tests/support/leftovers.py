"""Snapshots of a host, and what was left on it; all tests use this one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_SIOCGIFFLAGS, _SIOCGIFMTU = 0x8913, 0x8921
_SETTINGS = ("net", "user", "vm")  # of /proc/sys
_COUNTERS = ("nf_conntrack_count", "dirty_", "stat_refresh")  # these files are counters, not settings


class Snapshot(NamedTuple):
    """The parts of a host that a run must not change, by name."""

    devices: Mapping[str, str]  # of this network namespace, with number, MTU and flags
    named_namespaces: Mapping[str, str]  # as `ip netns` creates them
    sysctls: Mapping[str, str]

    @classmethod
    def take(cls) -> Snapshot:
        named = Path("/run/netns")
        return cls(
            dict(_devices()),
            {path.name: "" for path in named.iterdir()} if named.is_dir() else {},
            dict(_sysctls()),
        )

    def changes(self, before: Snapshot) -> list[str]:
        """Return a line for each difference."""
        return [
            f"{kind}: {name}: {now.get(name, 'gone')}, before {then.get(name, 'absent')}"
            for kind, now, then in zip(self._fields, self, before, strict=True)
            for name in sorted(now.keys() | then.keys())
            if now.get(name) != then.get(name)
        ]


def _devices() -> Iterable[tuple[str, str]]:
    """Read them by system calls, because /sys shows the namespace in which it was mounted."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        for index, name in socket.if_nameindex():
            values = [f"number {index}"]
            for what, request, form in (("MTU", _SIOCGIFMTU, "i"), ("flags", _SIOCGIFFLAGS, "h")):
                answer = fcntl.ioctl(here, request, struct.pack("16s24x", name.encode()))
                values.append(f"{what} {struct.unpack_from(form, answer, 16)[0]}")
            yield name, ", ".join(values)


def _sysctls() -> Iterable[tuple[str, str]]:
    for top in _SETTINGS:
        for path in Path("/proc/sys", top).rglob("*"):
            if not path.name.startswith(_COUNTERS) and path.is_file():
                yield str(path), _read(path)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):  # some files are write-only, and devices come and go
        return ""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone_within(seconds, pids):
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(alive(pid) for pid in pids)


def started_with(setting: str) -> set[int]:
    """Return the processes with `NAME=value` in their environment, in any session."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if setting.encode() in (path / "environ").read_bytes().split(b"\0") and alive(path.name):
                found.add(int(path.name))
    return found


def namespaces(pid):
    """Return the network namespaces that a process is in or holds open."""
    found = set()
    with contextlib.suppress(OSError):
        for path in [Path(f"/proc/{pid}/ns/net"), *Path(f"/proc/{pid}/fd").iterdir()]:
            with contextlib.suppress(OSError):
                found.add(os.readlink(path))
    return {name for name in found if name.startswith("net:[")} - {os.readlink("/proc/self/ns/net")}


def held_namespaces(born_before_s: float = float("inf")) -> set[str]:
    """Return the network namespaces, without this one, that processes of at least this age are in or hold open.

    The kernel reuses the numbers of namespaces at once, so a younger process can hold a new namespace of that number.
    """
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            ticks = int((path / "stat").read_text().rpartition(")")[2].split()[19])
            if ticks / os.sysconf("SC_CLK_TCK") <= born_before_s:
                found |= namespaces(path.name)
    return found


def host_state() -> tuple[set[str], set[str]]:
    """Return the devices of this namespace, and every other network namespace that a process is in or holds open."""
    return set(Snapshot.take().devices), held_namespaces()
