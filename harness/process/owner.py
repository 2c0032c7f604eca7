"""Whose is it? Marks of a running process, by which what a crashed run left is told from what a live one uses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def mark() -> dict[str, Any]:
    """This process, as plain data; `is_gone` reads it."""
    return {"pid": os.getpid(), "started": _start_time(os.getpid()), "seen_from": _seen_from()}


def is_gone(owner: Mapping[str, Any]) -> bool:
    """True if the process with this mark has certainly ended.

    Marks from another boot or PID namespace say nothing: a container, or a guest kernel on the same file system, cannot
    see whether their owner lives.

    Raises:
        KeyError, TypeError: not a mark.
    """
    return bool(owner["seen_from"] == _seen_from() and _start_time(owner["pid"]) != owner["started"])


def _start_time(pid: int) -> int | None:
    """Boot-relative start of a process, None if there is none: tells a reused pid from the old process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _seen_from() -> str:
    """Where a PID means the same process: this boot of this kernel, and this PID namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"
