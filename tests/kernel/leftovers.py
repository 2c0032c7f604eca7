"""What is left on the host."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone_within(seconds, pids):
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(alive(pid) for pid in pids)


def namespaces(pid):
    """Network namespaces that a process is in, or that it holds by a descriptor."""
    found = set()
    with contextlib.suppress(OSError):
        for path in [Path(f"/proc/{pid}/ns/net"), *Path(f"/proc/{pid}/fd").iterdir()]:
            with contextlib.suppress(OSError):
                found.add(os.readlink(path))
    return {name for name in found if name.startswith("net:[")} - {os.readlink("/proc/self/ns/net")}


def host_state():
    """Devices of this namespace, and every other network namespace that a process is in or holds."""
    devices = {line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]}
    return devices, set().union(*(namespaces(path.name) for path in Path("/proc").glob("[0-9]*")))
