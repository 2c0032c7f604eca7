"""Marks of the owning process, which distinguish leftovers of a crashed run from things that a live run uses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def mark() -> dict[str, Any]:
    """Return the mark of this process as plain data, which `is_gone` reads."""
    return {"pid": os.getpid(), "started": _start_time(os.getpid()), "seen_from": _seen_from()}


def is_gone(owner: Mapping[str, Any]) -> bool:
    """Whether the process with this mark has certainly ended.

    This is false for marks from another boot or PID namespace: a container, or a guest kernel on the same file system,
    cannot see whether their owner is alive.

    Raises:
        KeyError, TypeError: the argument is not a mark.
    """
    return bool(owner["seen_from"] == _seen_from() and _start_time(owner["pid"]) != owner["started"])


def _start_time(pid: int) -> int | None:
    """The start time of a process since boot, which reveals a reused pid; None if there is no such process.

    One that has ended and that its parent has not reaped does not count.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _seen_from() -> str:
    """The scope in which a PID names one process: this boot of this kernel, and this PID namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"
